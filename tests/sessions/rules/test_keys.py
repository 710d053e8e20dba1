"""The session key of a source: every case of the table, and that hostile ids can neither collide nor escape."""

from urllib.parse import unquote

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.model import SessionSource
from everturn.platform.posted import V1Platform
from everturn.sessions.rules.keys import Isolation, is_shared, is_single_call, session_key
from tests.sessions.rules.examples import FEW_AND_MANY

SHARED_GROUPS = Isolation(group_sessions_per_user=False)
OWN_THREADS = Isolation(thread_sessions_per_user=True)
ONLY_THREAD_FLAG = Isolation(group_sessions_per_user=False, thread_sessions_per_user=True)
ROOMS = Isolation(changing_directs=frozenset({"telegram"}))


def source(chat_type: str = "dm", platform: str = "telegram", **ids: str) -> SessionSource:
    return msgspec.convert({"platform": platform, "chat_type": chat_type, **ids}, SessionSource)


@pytest.mark.parametrize(
    ("origin", "isolation", "tail"),
    [
        (source(chat_id="7", user_id="u"), Isolation(), "dm:7"),
        (source(chat_id="7", user_id="u", thread_id="t"), Isolation(), "dm:7:t"),
        (source(user_id="u"), Isolation(), "dm:@u"),
        (source(user_id="u", thread_id="t"), Isolation(), "dm::t:@u"),
        (source(), Isolation(), "dm"),
        (source(thread_id="t"), Isolation(), "dm::t"),
        (source("group", chat_id="7", user_id="u"), Isolation(), "group:7:@u"),
        (source("channel", chat_id="7", user_id="u"), Isolation(), "channel:7:@u"),
        (source("group", chat_id="7", user_id="u"), SHARED_GROUPS, "group:7"),
        (source("group", chat_id="7"), Isolation(), "group:7"),
        (source("group", user_id="u"), Isolation(), "group:@u"),
        (source("thread", chat_id="7", thread_id="t", user_id="u"), Isolation(), "thread:7:t"),
        (source("forum", chat_id="7", thread_id="t", user_id="u"), Isolation(), "forum:7:t"),
        (source("thread", chat_id="7", thread_id="t", user_id="u"), OWN_THREADS, "thread:7:t:@u"),
        (source("thread", chat_id="7", thread_id="t", user_id="u"), ONLY_THREAD_FLAG, "thread:7:t"),
        (source("group"), Isolation(), "group"),
        (source(chat_id="7", user_id="u"), ROOMS, "dm:7:@u"),
        (source(chat_id="7", thread_id="t", user_id="u", user_id_alt="v"), ROOMS, "dm:7:t:@v"),
        (source(chat_id="7"), ROOMS, "dm:7"),
    ],
)
def test_each_kind_of_lane_has_its_key(origin: SessionSource, isolation: Isolation, tail: str) -> None:
    assert session_key(origin, isolation) == f"agent:main:telegram:{tail}"


def test_an_empty_id_is_a_missing_id() -> None:
    bare = source("group", chat_id="", thread_id="", user_id="", user_id_alt="", prospective_thread_id="")
    assert session_key(bare) == "agent:main:telegram:group"


def test_the_key_of_an_api_chat_ends_in_its_name() -> None:
    assert session_key(source(platform="api", chat_id="alice")) == "agent:main:api:dm:alice"
    assert session_key(source(platform="api", chat_id="torture-12_b.c")).endswith(":torture-12_b.c")


def test_only_slack_inserts_its_workspace() -> None:
    slack = source("channel", "slack", chat_id="C1", user_id="U1", scope_id="T1")
    assert session_key(slack) == "agent:main:slack:channel:=T1:C1:@U1"
    assert session_key(source("channel", "discord", chat_id="C1", scope_id="T1")) == "agent:main:discord:channel:C1"
    assert session_key(source("dm", "slack", chat_id="D1")) == "agent:main:slack:dm:D1"


def test_an_account_and_another_agent_have_lanes_of_their_own() -> None:
    assert session_key(source(account="bot2", chat_id="7")) == "agent:main:telegram@bot2:dm:7"
    assert session_key(source(chat_id="7"), agent="work") == "agent:work:telegram:dm:7"


def test_one_person_under_two_ids_has_one_lane() -> None:
    first = source("group", chat_id="7", user_id="phone-form", user_id_alt="person")
    second = source("group", chat_id="7", user_id="lid-form", user_id_alt="person")
    assert session_key(first) == session_key(second) == "agent:main:telegram:group:7:@person"


def test_two_people_share_a_lane_only_in_a_shared_group() -> None:
    ann, bob = (source("group", chat_id="7", user_id=name) for name in ("ann", "bob"))
    assert session_key(ann) != session_key(bob)
    assert session_key(ann, SHARED_GROUPS) == session_key(bob, SHARED_GROUPS)


def test_who_comes_into_a_direct_chat_does_not_continue_the_conversation_of_who_left() -> None:
    ann, bob = (source(chat_id="!room", user_id=name) for name in ("ann", "bob"))
    assert session_key(ann, ROOMS) != session_key(bob, ROOMS)
    assert not is_shared(ann, ROOMS)
    elsewhere = source(chat_id="7", platform="api", user_id="ann")
    assert session_key(elsewhere, ROOMS) == session_key(elsewhere)


def test_the_message_that_opens_a_thread_shares_its_lane() -> None:
    opening = source("channel", chat_id="7", user_id="u", prospective_thread_id="t")
    follow_up = source("thread", chat_id="7", user_id="v", thread_id="t")
    assert session_key(opening) == session_key(follow_up) == "agent:main:telegram:thread:7:t"


def test_a_real_thread_wins_over_an_announced_one() -> None:
    both = source("forum", chat_id="7", thread_id="real", prospective_thread_id="announced")
    assert session_key(both) == "agent:main:telegram:forum:7:real"


def test_a_thread_announced_in_a_dm_stays_a_dm() -> None:
    opening = source(chat_id="7", prospective_thread_id="t")
    assert session_key(opening) == session_key(source(chat_id="7", thread_id="t"))
    assert not is_shared(opening, Isolation())


@pytest.mark.parametrize(
    ("origin", "isolation", "shared"),
    [
        (source(chat_id="7"), SHARED_GROUPS, False),
        (source(chat_id="7", thread_id="t"), Isolation(), False),
        (source("group", chat_id="7", user_id="u"), Isolation(), False),
        (source("group", chat_id="7", user_id="u"), SHARED_GROUPS, True),
        (source("group", chat_id="7"), Isolation(), True),
        (source("thread", chat_id="7", thread_id="t", user_id="u"), Isolation(), True),
        (source("thread", chat_id="7", thread_id="t", user_id="u"), OWN_THREADS, False),
        (source("thread", chat_id="7", thread_id="t", user_id="u"), ONLY_THREAD_FLAG, True),
        (source("channel", chat_id="7", prospective_thread_id="t", user_id="u"), Isolation(), True),
    ],
)
def test_a_lane_is_shared_when_its_key_names_no_person(
    origin: SessionSource, isolation: Isolation, *, shared: bool
) -> None:
    assert is_shared(origin, isolation) is shared


@pytest.mark.parametrize(
    ("chat", "escaped"),
    [
        ("a:b", "a%3Ab"),
        ("../../etc/passwd", "%2E%2E%2F%2E%2E%2Fetc%2Fpasswd"),
        (".", "%2E"),
        ("a..b", "a%2E%2Eb"),
        ("C:\\x", "C%3A%5Cx"),
        ("100%", "100%25"),
        ("!room:matrix.org", "%21room%3Amatrix.org"),
        ("\0\n", "%00%0A"),
        ("é", "%C3%A9"),
        ("\ud800", "%ED%A0%80"),
        ("+49~1", "+49~1"),
    ],
)
def test_what_a_hostile_id_contains_is_escaped(chat: str, escaped: str) -> None:
    assert session_key(source(chat_id=chat)) == f"agent:main:telegram:dm:{escaped}"


HOSTILE = st.text(
    st.sampled_from([":", "/", "\\", "%", "@", "=", ".", "a", "2", "E", "\0", "é", "\ud800", "😀"]), max_size=4
)
MAYBE = st.none() | HOSTILE
SOURCES = st.builds(
    SessionSource,
    platform=st.sampled_from(["slack", "api", "x@y"]) | HOSTILE,
    account=HOSTILE,
    chat_id=MAYBE,
    chat_type=st.sampled_from(["dm", "group", "channel", "thread", "forum"]) | HOSTILE,
    thread_id=MAYBE,
    user_id=MAYBE,
    user_id_alt=MAYBE,
    scope_id=MAYBE,
    prospective_thread_id=MAYBE,
)
ISOLATIONS = st.builds(
    Isolation, st.booleans(), st.booleans(), st.sampled_from([frozenset[str](), frozenset({"api", "x@y"})])
)
Lane = tuple[str, str, str, str, str, str, str]


def lane(origin: SessionSource, isolation: Isolation) -> Lane:
    """The table of lanes, written down a second time: what must and what must not share a key."""
    thread = origin.thread_id or origin.prospective_thread_id or ""
    person = origin.user_id_alt or origin.user_id or ""
    slot = origin.chat_type
    if slot == "dm":
        person = "" if origin.chat_id and origin.platform not in isolation.changing_directs else person
    else:
        slot = "thread" if thread and not origin.thread_id else slot
        split = isolation.group_sessions_per_user and (isolation.thread_sessions_per_user or not thread)
        person = person if split else ""
    scope = (origin.scope_id or "") if origin.platform == "slack" else ""
    return origin.platform, origin.account, slot, scope, origin.chat_id or "", thread, person


def read_back(key: str) -> Lane:
    """What the key says. That it can be read back proves that two lanes never share one."""
    platform, slot, *rest = key.removeprefix("agent:main:").split(":")
    name, _, account = platform.partition("@")
    scope = rest.pop(0)[1:] if rest and rest[0].startswith("=") else ""
    person = rest.pop()[1:] if rest and rest[-1].startswith("@") else ""
    chat, thread = [*rest, "", ""][:2]
    return tuple(unquote(part, errors="surrogatepass") for part in (name, account, slot, scope, chat, thread, person))  # type: ignore[return-value]


@pytest.mark.parametrize("examples", FEW_AND_MANY)
def test_a_key_names_its_lane_and_nothing_else(examples: int) -> None:
    @settings(max_examples=examples)
    @given(SOURCES, ISOLATIONS)
    def names_it(origin: SessionSource, isolation: Isolation) -> None:
        assert read_back(session_key(origin, isolation)) == lane(origin, isolation)

    names_it()


@pytest.mark.parametrize("examples", FEW_AND_MANY)
def test_two_different_lanes_never_share_a_key(examples: int) -> None:
    @settings(max_examples=examples)
    @given(SOURCES, SOURCES, ISOLATIONS)
    def differ(one: SessionSource, other: SessionSource, isolation: Isolation) -> None:
        same_lane = lane(one, isolation) == lane(other, isolation)
        assert (session_key(one, isolation) == session_key(other, isolation)) is same_lane

    differ()


@pytest.mark.parametrize("examples", FEW_AND_MANY)
def test_no_key_contains_a_path_or_anything_unprintable(examples: int) -> None:
    @settings(max_examples=examples)
    @given(SOURCES, ISOLATIONS, HOSTILE)
    def is_plain(origin: SessionSource, isolation: Isolation, agent: str) -> None:
        key = session_key(origin, isolation, agent)
        assert key.isascii()
        assert key.isprintable()
        assert not any(part in key for part in ("/", "\\", "..", "\0", " "))
        assert "." not in key.replace("@", ":").split(":")
        assert key == session_key(origin, isolation, agent)

    is_plain()


@given(SOURCES, ISOLATIONS)
def test_shared_and_key_agree(origin: SessionSource, isolation: Isolation) -> None:
    named = lane(origin, isolation)[-1] != ""
    assert is_shared(origin, isolation) is (origin.chat_type != "dm" and not named)


def test_a_programs_call_that_stands_alone_is_known_by_its_key() -> None:
    programs = V1Platform()
    sources = (programs.call("a:client", "0f"), programs.session("a:client", "call:1"), SessionSource(platform="api"))
    assert [is_single_call(session_key(source)) for source in sources] == [True, False, False]
