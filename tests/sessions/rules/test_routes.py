"""Which agent answers: the most exact route that fits, else the main one."""

from itertools import permutations

import pytest

from everturn.model import SessionSource
from everturn.sessions.rules.keys import Isolation, Route, agent_for, agent_of, session_key

HERE = SessionSource(platform="telegram", chat_id="7", chat_type="group", thread_id="3", user_id="ann")
EVERYWHERE = Route(agent="everywhere")
PLATFORM = Route(agent="platform", platform="telegram")
CHAT = Route(agent="chat", platform="telegram", chat="7")
ANY_CHAT = Route(agent="any chat", chat="7")
THREAD = Route(agent="thread", platform="telegram", chat="7", thread="3")
PERSON = Route(agent="person", person="ann")
PERSON_HERE = Route(agent="person here", person="ann", chat="7")


@pytest.mark.parametrize(
    ("routes", "agent"),
    [
        ((), "main"),
        ((EVERYWHERE,), "everywhere"),
        ((EVERYWHERE, PLATFORM), "platform"),
        ((PLATFORM, CHAT, ANY_CHAT), "chat"),
        ((CHAT, THREAD), "thread"),
        ((THREAD, PERSON), "person"),
        ((PERSON, PERSON_HERE, THREAD), "person here"),
        ((Route(agent="other", platform="discord"), Route(agent="no", chat="8")), "main"),
        ((Route(agent="other", thread="4"), Route(agent="no", person="bob"), PLATFORM), "platform"),
        ((Route(agent="half", platform="discord", person="ann"), CHAT), "chat"),
        ((Route(agent="main", person="ann"), CHAT), "main"),
    ],
)
def test_the_most_exact_route_wins_in_whatever_order(routes: tuple[Route, ...], agent: str) -> None:
    assert {agent_for(HERE, order) for order in permutations(routes)} == {agent}


@pytest.mark.parametrize(
    ("source", "agent"),
    [
        (SessionSource(platform="x", chat_id="t", parent_chat_id="7", chat_type="thread"), "parent"),
        (SessionSource(platform="x", chat_id="t2", parent_chat_id="7", chat_type="thread"), "own"),
        (SessionSource(platform="x", chat_id="other", chat_id_alt="7", chat_type="group"), "parent"),
        (SessionSource(platform="x", chat_id="a", prospective_thread_id="9", chat_type="group"), "opened"),
        (SessionSource(platform="x", chat_id="a", thread_id="9", chat_type="group"), "opened"),
        (SessionSource(platform="x", user_id="1", user_id_alt="uuid"), "person"),
        (SessionSource(platform="x"), "main"),
    ],
)
def test_second_ids_parents_and_threads_that_open_fit_too(source: SessionSource, agent: str) -> None:
    routes = (
        Route(agent="parent", chat="7"),
        Route(agent="own", chat="t2"),
        Route(agent="opened", thread="9"),
        Route(agent="person", person="uuid"),
    )
    assert agent_for(source, routes) == agent


def test_the_agent_is_the_second_part_of_the_key_and_main_changes_none() -> None:
    assert session_key(HERE, Isolation(), agent_for(HERE, ())) == session_key(HERE)
    key = session_key(HERE, Isolation(), agent_for(HERE, (CHAT,)))
    assert key == "agent:chat:telegram:group:7:3"
    assert (agent_of(key), agent_of(session_key(HERE))) == ("chat", "main")


@pytest.mark.parametrize(("key", "agent"), [("", ""), ("agent", ""), ("agent:a%3Ab:x", "a:b"), ("agent:a", "a")])
def test_whatever_key_names_an_agent_or_none(key: str, agent: str) -> None:
    assert agent_of(key) == agent
