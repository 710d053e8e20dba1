"""Invalid responses of homeservers: each becomes one of our errors, or is read as far as it makes sense."""

from typing import Any

import msgspec
import pytest

from everturn.clock import SystemClock
from everturn.errors import OutcomeUnknown
from everturn.model import SessionSource
from everturn.people.rules.access import AccessVerdict
from everturn.platform.matrix import MatrixSettings
from everturn.platform.matrix.calls import Homeserver, read_answer
from everturn.platform.matrix.reading import MatrixReader
from everturn.platform.matrix.rooms import Invitations, MatrixRoom
from everturn.platform.matrix.rules import MatrixNotFound
from everturn.platform.matrix.wire import (
    DEEPEST,
    HistoryPage,
    Invited,
    MatrixEvent,
    Sync,
    content_of,
    event_id_of,
    flattened,
    is_media,
    room_id_of,
    understood,
)


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b"\xff", b'{"a":' * 100_000])
def test_what_is_not_understood_leaves_the_outcome_open(answer: bytes) -> None:
    with pytest.raises(OutcomeUnknown, match="cannot be read"):
        read_answer(answer, dict[str, Any])


def test_a_place_that_is_null_is_none() -> None:
    room = b'{"timeline": {"events": [], "limited": true, "prev_batch": null}}'
    news = read_answer(b'{"next_batch": "s1", "rooms": {"join": {"!a:x": ' + room + b"}}}", Sync)
    assert news.rooms.join["!a:x"].timeline.prev_batch is None
    assert read_answer(b'{"chunk": [], "end": null}', HistoryPage).end is None


@pytest.mark.parametrize(("size", "read"), [(7, 7), (True, 0), ("7", 0), (-1, 0), (None, 0)])
def test_only_a_number_is_a_size(size: object, read: int) -> None:
    found = content_of({"info": {"size": size}}).size
    assert (found, type(found)) == (read, int)


@pytest.mark.parametrize(
    ("named", "read"),
    [
        ("$a:x", "$a:x"),
        ("$" + "a" * 254, "$" + "a" * 254),
        ("$" + "a" * 255, ""),
        ("$" + "ü" * 128, ""),
        ("a", ""),
        ("/" * 22_000, ""),
        ("$a\n", ""),
        ("$\ud800", ""),
        (7, ""),
        (["$a"], ""),
        (None, ""),
    ],
)
def test_what_can_be_no_id_is_none(named: object, read: str) -> None:
    """Promise 9: a stranger writes it, and it becomes part of an address or of a session's key."""
    thread = {"rel_type": "m.thread", "event_id": named, "m.in_reply_to": {"event_id": named}}
    content = content_of({"m.relates_to": thread})
    assert (event_id_of(named), content.related, content.reply_to) == (read, read, read)
    assert room_id_of(named) == ""


def test_a_thread_that_can_be_none_is_no_thread() -> None:
    relation = {"rel_type": "m.thread", "event_id": "$" + "a" * 9000}
    said = {"msgtype": "m.text", "body": "hello", "m.relates_to": relation}
    event = MatrixEvent(type="m.room.message", sender="@ann:x", event_id="$1", content=said)
    found = MatrixReader("@bot:x").read(event, MatrixRoom("!a:x"))
    assert found is not None
    assert (found.text, found.source.thread_id) == ("hello", None)


@pytest.mark.parametrize(
    ("address", "media"),
    [
        ("mxc://x.org:8448/a_B-1=", True),
        ("mxc://x/" + "a" * 255, True),
        ("mxc://x/" + "a" * 256, False),
        ("mxc://" + "x:" * 128 + "/a", False),
        ("mxc://x/../a", False),
        ("https://x/a", False),
    ],
)
def test_only_the_address_of_a_file_is_one(address: str, *, media: bool) -> None:
    assert is_media(address) is media


def nested(levels: int) -> object:
    """A list in a list in a list."""
    value: object = 7
    for _ in range(levels):
        value = [value]
    return value


async def test_what_can_have_no_address_is_not_there() -> None:
    """Nothing is asked: the server of this test does not exist."""
    server = Homeserver("http://nowhere.invalid", "secret")
    with pytest.raises(MatrixNotFound, match="address"):
        await server.event("!a:x", "/" * 22_000)
    await server.close()


def invited_by(sender: str) -> dict[str, object]:
    content = {"membership": "invite", "is_direct": True}
    return {"type": "m.room.member", "sender": sender, "state_key": "@bot:x", "content": content}


async def test_who_invites_is_whom_our_own_homeserver_names() -> None:
    """Promise 11: what stands before the invitation itself was chosen by the server of who invites."""
    asked = []

    async def welcome(source: SessionSource) -> AccessVerdict:
        asked.append(source.user_id)
        return AccessVerdict.SILENT

    server = Homeserver("http://nowhere.invalid", "secret")
    invitations = Invitations(server, "matrix", "@bot:x", welcome, SystemClock())
    told = {"invite_state": {"events": [invited_by("@owner:x"), invited_by("@mallory:y")]}}
    await invitations.hear({"!a:y": read_answer(msgspec.json.encode(told), Invited)})
    invitations.close()
    await server.close()
    assert asked == ["@mallory:y"]


def test_names_that_are_no_texts_are_none() -> None:
    """To show one that is nested so deep as this fails."""
    room, odd = MatrixRoom("!a:x"), nested(100_000)
    told = {"m.room.member": "displayname", "m.room.name": "name", "m.room.canonical_alias": "alias"}
    content = {"membership": "join", "predecessor": {"room_id": odd}}
    room.hear(
        MatrixEvent(type=kind, sender="@a:x", state_key="@a:x", content={**content, name: odd})
        for kind, name in told.items()
    )
    room.hear([MatrixEvent(type="m.room.create", sender="@a:x", state_key="", content=content)])
    assert (room.title("@b:x"), room.before) == ("a", "")


def test_settings_do_not_show_the_token() -> None:
    assert "secret" not in repr(MatrixSettings(homeserver="https://x", user="@a:x", token="secret"))


def nested_json(levels: int, sign: str = "[]") -> str:
    begin, end = ('{"a":', "}") if sign == "{}" else ("[", "]")
    return begin * levels + "0" + end * levels


@pytest.mark.parametrize("levels", [10, 500, 980, 30_000])
@pytest.mark.parametrize("sign", ["[]", "{}"])
def test_an_event_that_is_nested_deep_is_read_with_all_others(levels: int, sign: str) -> None:
    """Promise 9: the text may hold brackets, and a string may look like the end of one."""
    said = [
        f'{{"type":"m.room.message","sender":"@eve:x","event_id":"$e","content":{{"body":"]}}\\"{{","x":{nested_json(levels, sign)}}}}}',
        '{"type":"m.room.message","sender":"@ann:x","event_id":"$a","content":{"body":"hello"}}',
    ]
    answer = f'{{"rooms":{{"join":{{"!a:x":{{"timeline":{{"events":[{",".join(said)}]}}}}}}}},"next_batch":"s2"}}'
    news = read_answer(answer.encode(), Sync)
    assert news.next_batch == "s2"
    found = understood(news.rooms.join["!a:x"].timeline.events)
    assert [(each.event_id, each.content["body"]) for each in found] == [("$e", ']}"{'), ("$a", "hello")]


@pytest.mark.parametrize("levels", [DEEPEST - 1, DEEPEST, DEEPEST + 1, 5_000])
def test_what_is_too_deep_is_left_out_and_its_event_is_named(levels: int) -> None:
    event = f'{{"event_id": "$e" , "a": {nested_json(levels)} , "b": [1, {{"c": "["}}] }}'
    flat, events = flattened(event.encode())
    whole = levels < DEEPEST
    assert (flat == event.encode(), events) == (whole, [] if whole else ["$e"])
    found = msgspec.json.decode(flat)
    assert (found["event_id"], found["b"]) == ("$e", [1, {"c": "["}])


@pytest.mark.parametrize(
    "broken", [b"", b"]" * 9, b"}{", b"[" * 999, b'"', b'["' + b"[" * 999, b'{"a":' * 999 + b"}" * 9]
)
def test_what_is_no_json_stays_none(broken: bytes) -> None:
    flat, _ = flattened(broken)
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(flat)
