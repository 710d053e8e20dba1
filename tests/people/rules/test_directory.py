"""Which chat is meant by a name, what is kept of what was seen, and who may have something sent where."""

import pytest

from everturn.model import SessionSource
from everturn.people.rules.directory import (
    COMPARED,
    KnownChat,
    NotFound,
    at_address,
    kinds,
    listing_due,
    may_use,
    newer,
    resolve,
    seen_in,
)

TEAM = KnownChat(platform="telegram", chat_id="-100", name="Team", seen_at=1.0)
FORUM = KnownChat(platform="telegram", chat_id="-200", name="Garden", seen_at=1.0)
PLANS = KnownChat(platform="telegram", chat_id="-200", thread_id="7", name="Plans", parent="Garden", seen_at=1.0)
IDEAS = KnownChat(platform="telegram", chat_id="-200", thread_id="8", name="Ideas", parent="Garden", seen_at=1.0)
ANN = KnownChat(platform="telegram", chat_id="5", chat_type="dm", name="Ann Lee", person="5", seen_at=1.0)
ROOM = KnownChat(platform="matrix", chat_id="!abc:example.org", name="#plans", seen_at=1.0)
THREAD = KnownChat(platform="matrix", chat_id="!abc:example.org", thread_id="$x", parent="#plans", seen_at=1.0)
ALL = [TEAM, FORUM, PLANS, IDEAS, ANN, ROOM, THREAD]
ALIASES = {"boss": "telegram:5", "garden": "telegram:-100", "new": "telegram:-900:3"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("-100", TEAM),
        ("telegram:-200", FORUM),
        ("telegram:-200:7", PLANS),
        ("matrix:!abc:example.org", ROOM),
        ("matrix:!abc:example.org:$x", THREAD),
        ("team", TEAM),
        ("#TEAM ", TEAM),
        ("Garden/Plans", PLANS),
        ("matrix/plans", ROOM),
        ("ide", IDEAS),
        ("ann", ANN),
        ("Boss", ANN),
        ("#garden", TEAM),  # an alias goes first
        ("new", KnownChat(platform="telegram", chat_id="-900", thread_id="3")),  # named before it was seen
    ],
)
def test_a_name_leads_to_one_chat(text: str, found: KnownChat) -> None:
    assert resolve(text, ALL, ALIASES) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("plans", ["several chats fit plans", "Garden/Plans (telegram:-200:7)", "#plans (matrix:!abc:example.org)"]),
        ("tame", ["no chat is known as tame", "The nearest: Team"]),
        ("Garden/Ideal", ["The nearest: Garden/Ideas"]),
        ("zzzz", ["no chat is known as zzzz."]),
        (" # ", ["say which chat"]),
        ("x\x07[y]", ["known as x (y)"]),
    ],
)
def test_what_fits_nobody_or_several_names_what_there_is(text: str, words: list[str]) -> None:
    found = resolve(text, ALL, ALIASES)
    assert isinstance(found, NotFound)
    assert [each for each in words if each not in found.why] == []


def test_only_the_names_of_the_chats_seen_last_are_compared_letter_by_letter() -> None:
    """Comparing all of twenty thousand took seconds, in which nobody was served."""
    newer = [KnownChat(platform="telegram", chat_id=str(n), name=f"{n:05}", seen_at=9.0) for n in range(COMPARED)]
    found = resolve("tame", [TEAM, *newer], {})
    assert isinstance(found, NotFound)
    assert found.why == "no chat is known as tame."
    named = resolve("tame", [TEAM, *newer[1:]], {})
    assert isinstance(named, NotFound)
    assert named.why == "no chat is known as tame. The nearest: Team."


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("Telegram:-100", TEAM),
        ("telegram:-100:9", KnownChat(platform="telegram", chat_id="-100", thread_id="9", parent="Team", seen_at=1.0)),
        ("telegram:1:2", KnownChat(platform="telegram", chat_id="1", thread_id="2")),
        ("matrix:!new:example.org:8448", KnownChat(platform="matrix", chat_id="!new:example.org:8448")),
        ("matrix:!new:example.org:$e", KnownChat(platform="matrix", chat_id="!new:example.org", thread_id="$e")),
        ("telegram:", None),
        ("telegram", None),
    ],
)
def test_an_address_is_a_chat_whether_it_was_seen_or_not(address: str, place: KnownChat | None) -> None:
    assert at_address(address, ALL) == place


def test_a_message_shows_its_chat_and_its_topic() -> None:
    source = SessionSource(
        platform="telegram", chat_id="-200", chat_type="group", thread_id="7", chat_name="Garden", chat_topic="Plans", user_id="5"
    )  # fmt: skip
    chat, topic = seen_in(source, 1.0)
    assert (chat, topic) == (FORUM, PLANS)
    kind = kinds([chat, topic, TEAM, ANN])
    assert [kind(each) for each in (chat, topic, TEAM, ANN)] == ["forum", "topic", "group", "dm"]
    direct = SessionSource(platform="telegram", chat_id="5", user_id="5", user_name="Ann\nLee")
    assert seen_in(direct, 1.0) == [ANN]
    assert seen_in(SessionSource(platform="telegram", user_id="5"), 1.0) == []


def at(known: KnownChat, seen_at: float, name: str = "Team") -> KnownChat:
    return KnownChat(platform=known.platform, chat_id=known.chat_id, name=name, seen_at=seen_at)


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        (None, TEAM, TEAM),
        (TEAM, at(TEAM, 2.0), None),  # the same, a moment later
        (TEAM, at(TEAM, 100.0), at(TEAM, 100.0)),
        (TEAM, at(TEAM, 2.0, "Crew"), at(TEAM, 2.0, "Crew")),
        (TEAM, at(TEAM, 100.0, ""), at(TEAM, 100.0)),  # a name that is not told is not forgotten
        (TEAM, at(TEAM, 0.5, "Crew"), None),  # last seen wins
    ],
)
def test_last_seen_wins(old: KnownChat | None, new: KnownChat, kept: KnownChat | None) -> None:
    assert newer(old, new, 50.0) == kept


@pytest.mark.parametrize(
    ("place", "user", "chat", "owner", "may"),
    [
        (TEAM, "5", "5", True, True),
        (TEAM, "5", "5", False, False),
        (TEAM, "5", "-100", False, True),  # where they write
        (ANN, "5", "-100", False, True),  # their own direct chat
        (ANN, "6", "-100", False, False),
        (PLANS, "5", "-200", False, False),  # another thread of the chat they write in
        (ROOM, "5", "!abc:example.org", False, False),  # another platform
    ],
)
def test_owners_may_send_everywhere_and_others_to_their_own(
    place: KnownChat,
    user: str,
    chat: str,
    owner: bool,  # noqa: FBT001
    may: bool,  # noqa: FBT001
) -> None:
    who = SessionSource(platform="telegram", chat_id=chat, chat_type="group", user_id=user)
    assert may_use(place, who, owner=owner) is may


@pytest.mark.parametrize(
    ("asked_s", "failures", "changed", "due"),
    [
        (None, 0, False, True),  # not yet
        (299.0, 0, False, False),
        (300.0, 0, False, True),
        (29.0, 0, True, False),  # many who invite us make no more of it
        (30.0, 0, True, True),
        (29.0, 1, False, False),
        (30.0, 1, False, True),
        (119.0, 3, True, False),  # one that is in trouble is asked less and less
        (120.0, 3, False, True),
        (300.0, 99, False, True),
    ],
)
def test_a_platform_is_asked_now_and_then_and_sooner_for_a_reason(
    asked_s: float | None,
    failures: int,
    changed: bool,  # noqa: FBT001
    due: bool,  # noqa: FBT001
) -> None:
    assert listing_due(asked_s, failures, 300.0, changed=changed) is due
