"""What a person's client shows in a room: made of the events it received, by the rules of the specification.

An edit replaces text (https://spec.matrix.org/v1.11/client-server-api/#event-replacements), a redaction takes them away
(#redactions), a reaction stands beneath (#event-annotations-and-reactions), a thread has a root (#threading).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]


@dataclass
class Shown:
    """A message on the screen, in its last shape."""

    id: str
    sender: str
    text: str
    content: Event  # the newest
    thread: str | None = None
    reply_to: str | None = None
    edits: int = 0
    reactions: dict[str, set[str]] = field(default_factory=dict)  # who, by the emoji

    @property
    def kind(self) -> str:
        """m.text, m.notice, m.image, ..."""
        return str(self.content.get("msgtype", ""))


@dataclass
class Screen:
    """One room: its messages, oldest first, who types, and how far each person read."""

    messages: list[Shown] = field(default_factory=list)
    typing: set[str] = field(default_factory=set)
    read: dict[str, str] = field(default_factory=dict)  # the newest event that somebody read, by person

    def by(self, sender: str, thread: str | None = None) -> list[Shown]:
        """What somebody wrote; in one thread only, if it is named."""
        return [each for each in self.messages if each.sender == sender and thread in {None, each.thread}]

    def texts(self, sender: str, thread: str | None = None) -> list[str]:
        """The texts of them."""
        return [each.text for each in self.by(sender, thread)]

    def message(self, event_id: str) -> Shown:
        """One of them."""
        return next(each for each in self.messages if each.id == event_id)


def drawn(events: Iterable[Event], typing: Iterable[str] = (), read: dict[str, str] | None = None) -> Screen:
    """The screen that these events make, in their order."""
    events = list(events)
    gone = {redacted(event) for event in events if event["type"] == "m.room.redaction"}
    kept = [event for event in events if event["event_id"] not in gone]
    shown: dict[str, Shown] = {}
    for event in kept:
        if event["type"] == "m.room.message" and event["content"].get("msgtype"):
            _message(shown, event)
        elif event["type"] == "m.reaction":
            _reaction(shown, event)
    return Screen(list(shown.values()), set(typing), dict(read or {}))


def redacted(event: Event) -> str:
    """What a redaction takes away; newer rooms name it in the content."""
    return str(event.get("redacts") or event["content"].get("redacts"))


def _message(shown: dict[str, Shown], event: Event) -> None:
    content, relation = event["content"], event["content"].get("m.relates_to", {})
    first = shown.get(relation.get("event_id", ""))
    if relation.get("rel_type") == "m.replace":
        # Only the author may replace: others' attempts are not shown.
        if first is not None and first.sender == event["sender"]:
            first.content = content["m.new_content"]
            first.text = first.content["body"]
            first.edits += 1
        return
    shown[event["event_id"]] = Shown(
        event["event_id"],
        event["sender"],
        content["body"],
        content,
        thread=relation.get("event_id") if relation.get("rel_type") == "m.thread" else None,
        reply_to=relation.get("m.in_reply_to", {}).get("event_id"),
    )


def _reaction(shown: dict[str, Shown], event: Event) -> None:
    relation = event["content"].get("m.relates_to", {})
    if (message := shown.get(relation.get("event_id", ""))) is not None:
        message.reactions.setdefault(relation["key"], set()).add(event["sender"])
