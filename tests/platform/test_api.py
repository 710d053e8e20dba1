"""The api platform's translation: what a request says, and the error that an invalid one gets."""

import json

import pytest

from everturn.platform.interface import CanPull, CanSend
from everturn.platform.posted import CHAT_CHARS, ID_CHARS, ApiPlatform, unique_id
from everturn.sessions.rules.keys import session_key

API = ApiPlatform()


def body(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def test_a_posted_message_keeps_its_words_and_names_its_chat() -> None:
    inbound = API.read("alice", body(id="m1", text="  hello\n"))
    assert (inbound.id, inbound.text) == ("m1@alice", "  hello\n")
    assert (inbound.source.platform, inbound.source.chat_id, inbound.source.message_id) == ("api", "alice", "m1")
    assert session_key(inbound.source) == "agent:main:api:dm:alice"


def test_it_is_neither_read_nor_sent_to() -> None:
    assert not isinstance(API, CanPull)
    assert not isinstance(API, CanSend)


@pytest.mark.parametrize(
    ("raw", "name", "end_of_key"),
    [
        (b"alice", "alice", ":alice"),
        (b"a%2Fb", "a/b", ":a%2Fb"),
        (b"..", "..", ":%2E%2E"),
        (b"%2e%2e%2fetc", "../etc", ":%2E%2E%2Fetc"),
        (b"a%3Ab", "a:b", ":a%3Ab"),
        (b"%C3%BCml%C3%A4ut", "ümläut", ":%C3%BCml%C3%A4ut"),
        (b"a%20b+c", "a b+c", ":a%20b+c"),
        (b"%25", "%", ":%25"),
    ],
)
def test_a_chat_may_have_any_name_and_its_key_never_holds_a_path(raw: bytes, name: str, end_of_key: str) -> None:
    assert API.chat(raw) == name
    assert session_key(API.source(name)).endswith(end_of_key)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "is empty"),
        (b"%ff%fe", "UTF-8"),
        (b"%ed%a0%80", "UTF-8"),
        (b"a%00b", "control character"),
        (b"a%0d%0ab", "control character"),
        (b"a%C2%85", "control character"),
        (b"x" * (CHAT_CHARS + 1), f"at most {CHAT_CHARS}"),
    ],
)
def test_a_bad_chat_name_is_refused_with_the_reason(raw: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        API.chat(raw)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", "must be JSON"),
        (b"{", "must be JSON"),
        (b"[]", "Expected `object`"),
        (b'{"id": "\xff", "text": "x"}', "must be JSON"),
        (b'{"id": "\\ud800", "text": "x"}', "must be JSON"),
        (body(id="a"), "missing required field `text`"),
        (body(text="a"), "missing required field `id`"),
        (body(id=1, text="a"), r"Expected `str`, got `int` - at `\$.id`"),
        (body(id="a", text=None), r"Expected `str`, got `null` - at `\$.text`"),
        (body(id="a", text="b", user="c"), "unknown field `user`"),
        (body(id="", text="a"), "the id is empty"),
        (body(id="x" * (ID_CHARS + 1), text="a"), f"at most {ID_CHARS}"),
        (body(id="a\nb", text="a"), "control character"),
        (body(id="a", text=""), "the text is empty"),
        (body(id="a", text=" \n\t"), "the text is empty"),
        (body(id="a", text="b\x00c"), "NUL"),
    ],
)
def test_a_bad_body_is_refused_with_the_reason(sent: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        API.read("alice", sent)


def test_two_messages_never_share_an_id_whatever_the_names() -> None:
    pairs = [("b@c", "a"), ("c", "a@b"), ("c", "a%40b"), ("b%40c", "a"), ("c", "a%b"), ("c", "a%25b")]
    assert len({unique_id(chat, message) for chat, message in pairs}) == len(pairs)


def test_an_id_is_looked_up_as_it_is_and_as_it_is_stored() -> None:
    assert API.stored_ids("m1") == ["m1"]
    assert API.stored_ids("a@b%") == ["a@b%", "a%40b%25"]
