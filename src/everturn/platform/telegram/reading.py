"""What Telegram sends, as messages: who said what where, albums, and edits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from everturn.commands.rules.registry import parse_command
from everturn.inbox.rules import in_reply, placeholders
from everturn.model import Attachment, Heard, Inbound, SessionSource
from everturn.platform.rules import addressed
from everturn.platform.telegram.rules import album_of, folded, taken
from everturn.platform.telegram.wire import Location, Press, TelegramFile, TelegramMessage, Update, User

TYPES = {"private": "dm", "group": "group", "supergroup": "group", "channel": "channel"}
NAME = "telegram"
UNREAD = ("story", "game", "invoice", "checklist", "paid_media", "giveaway")  # the agent gets their name only


@dataclass(frozen=True, slots=True)
class TelegramReader:
    """Reads updates for one bot. `listening`: in groups every message is for us, not only those that address us."""

    account: str
    name: str  # without the @
    listening: bool = False

    def read(self, update: Update) -> Inbound | None:
        """The message of an update; None if it is not for us."""
        if update.callback_query is not None:
            return self._press(update.callback_query)
        edited = update.edited_message or update.edited_channel_post
        message = update.message or update.channel_post or edited
        if message is not None and (message.migrate_to_chat_id or message.migrate_from_chat_id):
            was, now = message.migrate_from_chat_id or message.chat.id, message.migrate_to_chat_id or message.chat.id
            return self.moved(str(was), str(now))
        if message is None or message.is_automatic_forward:
            return None
        if message.sender is not None and message.sender.is_bot and message.sender_chat is None:
            return None
        return self._message(message, update.update_id if edited else None)

    def moved(self, was: str, now: str) -> Inbound:
        """The notice that a group became a supergroup, with another id."""
        source = SessionSource(platform=NAME, account=self.account, chat_id=now, chat_type="group")
        return Inbound(id=f"moved-{was}", source=source, text="", what=Heard.MOVED, of=was)

    def _message(self, message: TelegramMessage, edit: int | None) -> Inbound | None:
        files = tuple(_attachments(message))
        said = self._said(message, listening=self.listening, edited=edit is not None)
        only_with_album = said is None and message.media_group_id is not None
        if only_with_album:
            said = self._said(message, listening=True)
        text = said
        if said is not None and not said.strip():  # nothing but our name: somebody calls us
            text = placeholders(files) or ("" if edit is not None else _named(message)) or message.text.strip()
        if not text:
            return None  # not for us, or no message: somebody joined, a location that moves
        if message.reply_to_message is not None or message.quote is not None:
            text, files = self._in_reply(text, message), (*files, *_answered_files(message, text))
        number = f"{message.message_id}@{message.chat.id}"
        return Inbound(
            id=f"{number}#edit-{edit}" if edit is not None else number,
            source=self._source(message, message.sender),
            text=text,
            what=Heard.EDITED if edit is not None else Heard.SAID,
            of=number if edit is not None else None,
            edition=edit,  # update ids grow
            attachments=files,
            said_at=message.edit_date if edit is not None and message.edit_date else message.date or None,
            album=message.media_group_id,
            only_with_album=only_with_album,
        )

    def _said(self, message: TelegramMessage, *, listening: bool, edited: bool = False) -> str | None:
        return addressed(
            message.text or message.caption,
            self.name,
            direct=message.chat.type == "private",
            reply_to_us=message.reply_to_message is not None and self._to_us(message),
            listening=listening,
            edited=edited,
        )

    def _press(self, press: Press) -> Inbound | None:
        """A button press as its command, sent by the person who pressed."""
        if press.message is None or not press.data.startswith("/"):
            return None
        return Inbound(id=f"press-{press.id}", source=self._source(press.message, press.sender), text=press.data)

    def _source(self, message: TelegramMessage, sender: User | None) -> SessionSource:
        chat, direct = message.chat, message.chat.type == "private"
        made = message.reply_to_message.forum_topic_created if message.reply_to_message else None
        whole = message.sender_chat if sender is message.sender else None  # a channel, or an anonymous admin
        who = whole.id if whole else sender.id if sender else None
        name = whole.title if whole else _name(sender)
        return SessionSource(
            platform=NAME,
            account=self.account,
            chat_id=str(chat.id),
            chat_type=TYPES.get(chat.type, "group"),
            # In a group without topics the thread is only that of a reply: the conversation is the group's.
            thread_id=str(message.message_thread_id) if message.is_topic_message else None,
            user_id=None if who is None else str(who),
            user_name=name or None,
            chat_name=None if direct else chat.title or None,
            chat_topic=(made.name or None) if made and message.is_topic_message else None,
            message_id=str(message.message_id),
        )

    def _to_us(self, message: TelegramMessage) -> bool:
        replied = _replied(message)
        return replied is not None and replied.sender is not None and str(replied.sender.id) == self.account

    def _in_reply(self, text: str, message: TelegramMessage) -> str:
        """The text with the message that it replies to; of a long message the part that was quoted."""
        replied = _replied(message)
        chosen = message.quote.text if message.quote else ""
        if replied is None:  # something in another chat
            return in_reply(text, chosen, "")
        whole = replied.sender_chat
        author = None if self._to_us(message) else whole.title if whole else _name(replied.sender)
        quoted = chosen or replied.text or replied.caption or placeholders(tuple(_attachments(replied)))
        return in_reply(text, quoted, author)


def _replied(message: TelegramMessage) -> TelegramMessage | None:
    """The message that it replies to; in a topic, a message that is no reply names the one that made the topic."""
    replied = message.reply_to_message
    return None if replied is None or replied.forum_topic_created is not None else replied


def _answered_files(message: TelegramMessage, text: str) -> Iterator[Attachment]:
    """The attachments of the message that it replies to: who asks beneath a picture means the picture; a command does not."""
    replied = _replied(message)
    if replied is not None and parse_command(text) is None:
        yield from _attachments(replied)


def _name(user: User | None) -> str:
    return f"{user.first_name} {user.last_name}".strip() or user.username if user else ""


def _named(message: TelegramMessage) -> str:
    """A text for a message that has neither text nor a file, so that its sender gets an answer; empty for service messages."""
    if message.venue:
        return f"[venue: {message.venue.title}, {message.venue.address}, {_place(message.venue.location)}]"
    if message.location:
        return f"[location: {_place(message.location)}]"
    if message.contact:
        name = f"{message.contact.first_name} {message.contact.last_name}".strip()
        return f"[contact: {name}, {message.contact.phone_number}]"
    if message.poll:
        return f"[poll: {message.poll.question} ({' / '.join(each.text for each in message.poll.options)})]"
    if message.dice:
        return f"[dice: {message.dice.emoji} {message.dice.value}]"
    other = next((kind for kind in UNREAD if getattr(message, kind) is not None), "")
    return f"[{other.replace('_', ' ')}]" if other else ""


def _place(location: Location) -> str:
    return f"{location.latitude}, {location.longitude}"


def _attachments(message: TelegramMessage) -> Iterator[Attachment]:
    if message.photo:  # several sizes of one photo, the largest last
        yield _attachment("image", message.photo[-1], "image/jpeg")
    kinds: tuple[tuple[str, TelegramFile | None, str], ...] = (
        ("voice", message.voice, "audio/ogg"),
        ("audio", message.audio, ""),
        ("video", message.video or message.video_note or message.animation, "video/mp4"),
        ("document", None if message.animation else message.document, ""),  # an animation comes as both
        ("sticker", message.sticker, "image/webp"),
    )
    for kind, file, mime in kinds:
        if file is not None:
            yield _attachment(kind, file, mime)


def _attachment(kind: str, file: TelegramFile, mime: str) -> Attachment:
    return Attachment(
        kind=kind,
        ref=file.file_id,
        name=file.file_name,
        mime=file.mime_type or mime,
        size=file.file_size,
        text=file.emoji,
        seconds=file.duration,
        unique=file.file_unique_id,
        family=file.set_name or "",
        moving=file.is_animated or file.is_video,
    )


# Albums that arrive by webhook in groups where our name must be mentioned.
# Telegram posts the next message of a chat only after the last was answered, so that a photo has to be acknowledged
# before the one with our name arrives. Until then it is here, in memory only: a message that is not for us is not
# stored. A crash at that moment loses the photo. By polling nothing is acknowledged before the album is decided.


REMEMBERED_S = 5.0  # how long the next part of an album may take
MOST_ALBUMS = 200  # albums at once; the oldest is forgotten


@dataclass(slots=True)
class Album:
    """An album that is arriving."""

    heard_at: float
    named: bool = False
    parts: dict[str, Inbound] = field(default_factory=dict)  # by id: those that are not stored


class Albums:
    """The albums of the last seconds."""

    def __init__(self) -> None:
        self._albums: dict[tuple[str | None, str | None], Album] = {}

    def add(self, inbound: Inbound, now: float) -> list[Inbound]:
        """The messages to take now: with the first part that names us all earlier parts, in the order of the album."""
        self.forget(now)
        if inbound.album is None or inbound.what is not Heard.SAID:
            return [inbound]
        album = self._albums.pop(album_of(inbound), None) or Album(now)
        self._albums[album_of(inbound)] = album
        album.heard_at, album.named = now, album.named or not inbound.only_with_album
        album.parts[inbound.id] = inbound
        if not album.named:
            return [inbound]  # an earlier process may have stored one that names us
        return [taken(each) for each in sorted(album.parts.values(), key=_number)]

    def mark_stored(self, inbound: Inbound) -> None:
        """Forget a part that is stored, unless it still waits for one that names us."""
        album = self._albums.get(album_of(inbound))
        if album is not None and not inbound.only_with_album:
            album.parts.pop(inbound.id, None)

    def forget(self, now: float) -> None:
        """Forget old albums."""
        kept = [(which, album) for which, album in self._albums.items() if now - album.heard_at < REMEMBERED_S]
        self._albums = dict(kept[-MOST_ALBUMS:])


def _number(part: Inbound) -> int:
    return int(part.source.message_id or 0)


# Edits that arrive by webhook concurrently with the message they change: concurrent requests have no order.
# An edit that arrives before its message, or while that is being stored, finds nothing to change in the database. It
# is here for some seconds, in memory only: a crash between the two leaves the message with its first text.


MOST_EDITS = 1000


class RecentEdits:
    """The edits of the last seconds, and the messages that are being stored; each by the message's id, the oldest first."""

    def __init__(self) -> None:
        self._edits: dict[str, tuple[float, tuple[Inbound, ...]]] = {}
        self._storing: dict[str, tuple[float, tuple[Inbound, ...]]] = {}

    def add(self, inbounds: Sequence[Inbound], now: float) -> list[Inbound]:
        """The messages to take now: each with the text of its last edit, and edits after the message they change."""
        self.forget(now)
        return [each for inbound in inbounds for each in self._add(inbound, now)]

    def _add(self, inbound: Inbound, now: float) -> list[Inbound]:
        match inbound.what:
            case Heard.EDITED:
                of = inbound.of or ""
                _, before = self._edits.pop(of, (now, ()))
                self._edits[of] = now, (*(each for each in before if each.id != inbound.id), inbound)
                return [*self._storing.get(of, (now, ()))[1], inbound]
            case Heard.SAID:
                edits = self._edits.get(inbound.id, (now, ()))[1]
                revised = folded([inbound, *sorted(edits, key=lambda each: each.edition or 0)])[0]
                self._storing[inbound.id] = now, (revised,)
                return [revised]
            case _:
                return [inbound]

    def mark_stored(self, inbound: Inbound) -> None:
        """Record that a message is stored."""
        self._storing.pop(inbound.id, None)

    def forget(self, now: float) -> None:
        """Forget old edits: only the oldest are looked at."""
        for found in (self._edits, self._storing):
            while found and (len(found) > MOST_EDITS or now - next(iter(found.values()))[0] >= REMEMBERED_S):
                del found[next(iter(found))]
