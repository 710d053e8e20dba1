"""Whole events, and what each becomes. They are what a real Synapse sent, unchanged: tests/synapse/record.py recorded them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from everturn.inbox.rules import in_reply
from everturn.model import Heard, Inbound
from everturn.platform.matrix.reading import MatrixReader, answers_to
from everturn.platform.matrix.rooms import MatrixRoom
from everturn.platform.matrix.wire import MatrixEvent, understood

FOLDER = Path(__file__).parent / "payloads" / "matrix"
US, ANN, BOB, TEAM = "@everturn:everturn.test", "@ann:everturn.test", "@bob:everturn.test", "!team:everturn.test"
AROUND = {"room", "invitation"}  # lists of state
NOTHING = {"ours", "plain_in_a_group", "notice", "reaction", "press", "encrypted", "redacted"}
TEXTS = {  # the text, and who
    "message": ("what is new?", ANN),
    "formatted": ("**now**", ANN),
    "emote": ("* ann waves", ANN),
    "reply_to_us": (in_reply("this", "What shall I do?", None), BOB),
    "thread_reply": ("in the thread", ANN),
    "reply_in_a_thread": (in_reply("to that", "What shall I do?", None), ANN),
    "file": ("please read", ANN),
    "sticker": ("[sticker: a cat]", ANN),
}
LISTENING = {
    "plain_in_a_group": ("lunch?", ANN),
    "file_without_words": ("[document: list.txt]", ANN),
}
CHANGES = {  # what happened to which message, the text, and who
    "edit": (Heard.EDITED, "message", "what is old?", ANN),
    "edited_by_another": (Heard.EDITED, "message", "nonsense", BOB),
    "redaction": (Heard.DELETED, "redacted", "", ANN),
}


def event(name: str) -> MatrixEvent:
    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=MatrixEvent)


def around(name: str) -> list[MatrixEvent]:
    return understood(msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=list[msgspec.Raw]))


def team() -> MatrixRoom:
    room = MatrixRoom(TEAM)
    room.hear(around("room"))
    return room


def read(name: str, *, listening: bool = False) -> Inbound | None:
    """As the adapter does it: with the message that it answers, which is one of ours here."""
    said = event(name)
    return MatrixReader(US, listening).read(said, team(), event("ours") if answers_to(said) else None)


def test_the_tables_name_every_payload() -> None:
    tables = AROUND | NOTHING | TEXTS.keys() | LISTENING.keys() | CHANGES.keys()
    assert {file.stem for file in FOLDER.iterdir()} == tables


@pytest.mark.parametrize("name", sorted(NOTHING))
def test_what_is_nothing_to_us(name: str) -> None:
    assert read(name) is None


@pytest.mark.parametrize("name", [*TEXTS, *LISTENING])
def test_what_was_said(name: str) -> None:
    found = read(name, listening=name in LISTENING)
    assert found is not None
    assert (found.what, found.id, found.said_at) == (Heard.SAID, event(name).event_id, event(name).said_at)
    assert (found.text, found.source.user_id) == (TEXTS | LISTENING)[name]
    assert (found.source.chat_id, found.source.chat_type, found.source.chat_name) == (TEAM, "group", "Team")


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_something(name: str) -> None:
    found, (what, of, text, who) = read(name), CHANGES[name]
    assert found is not None
    assert (found.what, found.of, found.text, found.source.user_id) == (what, event(of).event_id, text, who)


@pytest.mark.parametrize(
    ("name", "thread"), [("thread_reply", "message"), ("reply_in_a_thread", "message"), ("message", None)]
)
def test_in_which_thread_it_was_said(name: str, thread: str | None) -> None:
    found = read(name)
    assert found is not None
    assert found.source.thread_id == (event(thread).event_id if thread else None)


def test_what_came_with_it() -> None:
    file, sticker = read("file"), read("sticker")
    assert file
    assert sticker
    (document,), (picture,) = file.attachments, sticker.attachments
    assert (document.kind, document.name, document.mime, document.size) == ("document", "list.txt", "text/plain", 8)
    assert (picture.kind, picture.text, picture.moving) == ("sticker", "a cat", False)
    assert all(each.ref.startswith("mxc://everturn.test/") for each in (document, picture))


@pytest.mark.parametrize(("name", "text"), [("press", "/approve 7"), ("reaction", None)])
def test_an_emoji_beneath_a_question_of_ours_is_the_choice_it_stands_for(name: str, text: str | None) -> None:
    found = MatrixReader(US).press(event(name), event("ours"), team())
    assert (found.text if found else None) == text
    assert found is None or (found.source.user_id, found.source.message_id) == (BOB, event("ours").event_id)


def test_who_is_in_the_room_and_who_asked_us_in() -> None:
    room, asked = team(), [each for each in around("invitation") if each.membership_of(US) == "invite"]
    assert (room.name, room.direct, room.encrypted) == ("Team", False, False)
    assert room.people == {US: "everturn", ANN: "ann", BOB: "bob"}
    assert [(each.sender, each.event_id) for each in asked] == [(ANN, "")]


@pytest.mark.parametrize("name", sorted(file.stem for file in FOLDER.iterdir()))
def test_it_comes_from_the_server_of_the_tests_and_from_nowhere_else(name: str) -> None:
    raw: Any = msgspec.json.decode((FOLDER / f"{name}.json").read_bytes())
    for each in raw if name in AROUND else [raw]:
        assert each["sender"].endswith(":everturn.test")
        assert name == "invitation" or each["event_id"].startswith("$")  # an invitation is stripped of them
