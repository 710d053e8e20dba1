"""Turns a Matrix event into an Inbound, or into None when it is not for us."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from everturn.commands.rules.registry import parse_command
from everturn.inbox.rules import STILL, in_reply, placeholders
from everturn.model import Attachment, Heard, Inbound, SessionSource
from everturn.platform.matrix.rooms import MatrixRoom
from everturn.platform.matrix.rules import for_us, without_fallback
from everturn.platform.matrix.wire import CHOICES, Content, MatrixEvent, as_it_reads, content_of, event_id_of, is_media

NAME = "matrix"
TEXT_TYPES = frozenset({"m.text", "m.emote", "m.location"})  # an m.notice is from a program, and nobody answers it
SAID = frozenset({"m.room.message", "m.sticker"})
FILES = {"m.image": "image", "m.audio": "audio", "m.video": "video", "m.file": "document"}


@dataclass(frozen=True, slots=True)
class MatrixReader:
    """Reads events for one account. `listening`: in groups every message is for us, not only those that address us."""

    user: str
    listening: bool = False

    def read(self, event: MatrixEvent, room: MatrixRoom, answered: MatrixEvent | None = None) -> Inbound | None:
        """The message of an event; None if it is not for us. `answered`: the message to which it is a reply."""
        if event.sender == self.user or event.state_key is not None or not event.event_id:
            return None
        if event.type == "m.room.redaction":
            return self._deletion(event, room)
        if event.type not in SAID:
            return None
        content = content_of(event.content)
        edited = content.related if content.rel_type == "m.replace" else ""
        new = content_of(content.new) if edited else content
        return self._message(event, new, room, edited, answered)

    def press(self, event: MatrixEvent, asked: MatrixEvent, room: MatrixRoom) -> Inbound | None:
        """The command of a reaction to an approval request of ours, sent by the person who reacted; None if it is none."""
        choices = asked.content.get(CHOICES)
        mark = content_of(event.content).key
        command = choices.get(mark) if isinstance(choices, dict) and asked.sender == self.user else None
        if not isinstance(command, str) or event.sender == self.user:
            return None
        source = replace(self._source(event, room, content_of(asked.content)), message_id=asked.event_id)
        return Inbound(id=event.event_id, source=source, text=command, said_at=event.said_at)

    def moved(self, room: MatrixRoom) -> Inbound:
        """The notice that a room replaced another one."""
        source = SessionSource(platform=NAME, account=self.user, chat_id=room.id, chat_type="group")
        return Inbound(id=f"moved-{room.id}", source=source, text="", what=Heard.MOVED, of=room.before)

    def _message(
        self, event: MatrixEvent, content: Content, room: MatrixRoom, edited: str, answered: MatrixEvent | None
    ) -> Inbound | None:
        """The message of an event. An edit says neither to what it replies nor, always, whom it mentions: whether it is for us
        depends on the message it changes, and an edit of a message that was not for us is dropped.
        """
        files = _attachments(event.type, content)
        if not files and content.msgtype not in TEXT_TYPES:
            return None
        full = self._text(event, content, room, files)
        said = for_us(
            full,
            self.user,
            room.people.get(self.user, ""),
            direct=room.direct,
            mentioned=self.user in content.mentions,
            reply_to_us=answered is not None and answered.sender == self.user,
            listening=self.listening or bool(edited),
        )
        text = said if said is None or said.strip() else placeholders(files) or full.strip()  # nothing but our name
        if not text:
            return None
        if answered is not None and parse_command(text) is None:
            text, files = self._in_reply(text, answered, room), (*files, *files_of(answered))
        return Inbound(
            id=event.event_id,
            source=self._source(event, room, content),
            text=text,
            what=Heard.EDITED if edited else Heard.SAID,
            of=edited or None,
            attachments=files,
            said_at=event.said_at,
        )

    def _text(self, event: MatrixEvent, content: Content, room: MatrixRoom, files: tuple[Attachment, ...]) -> str:
        if files:
            return _beneath(content)
        text = body_of(content)
        return f"* {room.called(event.sender)} {text}" if content.msgtype == "m.emote" else text

    def _in_reply(self, text: str, answered: MatrixEvent, room: MatrixRoom) -> str:
        """The text with the message that it replies to."""
        author = None if answered.sender == self.user else room.called(answered.sender)
        content, files = as_it_reads(answered), files_of(answered)
        return in_reply(text, _beneath(content) or placeholders(files) if files else body_of(content), author)

    def _deletion(self, event: MatrixEvent, room: MatrixRoom) -> Inbound | None:
        gone = event_id_of(event.redacts or event.content.get("redacts"))
        if not gone:
            return None
        return Inbound(
            id=event.event_id,
            source=self._source(event, room, content_of({})),
            text="",
            what=Heard.DELETED,
            of=gone,
            said_at=event.said_at,
        )

    def _source(self, event: MatrixEvent, room: MatrixRoom, content: Content) -> SessionSource:
        return SessionSource(
            platform=NAME,
            account=self.user,
            chat_id=room.id,
            chat_type="dm" if room.direct else "group",
            thread_id=(content.related or None) if content.rel_type == "m.thread" else None,
            user_id=event.sender,
            user_name=room.called(event.sender),
            chat_name=None if room.direct else room.title(self.user),
            message_id=event.event_id,
        )


def files_of(event: MatrixEvent) -> tuple[Attachment, ...]:
    """The attachment of an event, if it is a file."""
    return _attachments(event.type, as_it_reads(event))


def _beneath(content: Content) -> str:
    """The caption of a file; without one the body is the file's name."""
    return content.body if content.filename and content.filename != content.body else ""


def body_of(content: Content) -> str:
    """The text, without the quoted message."""
    return without_fallback(content.body) if content.reply_to else content.body


def answers_to(event: MatrixEvent) -> str:
    """The id of the message that this one replies to, without a thread's fallback for clients without threads."""
    content = content_of(event.content)
    return "" if event.type not in SAID or content.falling_back else content.reply_to


def _attachments(kind: str, content: Content) -> tuple[Attachment, ...]:
    what = "sticker" if kind == "m.sticker" else FILES.get(content.msgtype)
    if what is None:
        return ()
    address = content.url if is_media(content.url) else ""  # without one it cannot be fetched, and the agent sees that
    file = Attachment(
        kind="voice" if what == "audio" and content.voice else what,
        ref=address,
        name="" if what == "sticker" else content.filename or content.body,
        mime=content.mime,
        size=content.size,
        text=content.body if what == "sticker" else "",
        seconds=content.seconds,
        unique=address if what == "sticker" else "",
        moving=what == "sticker" and content.mime not in STILL,
    )
    return (file,)
