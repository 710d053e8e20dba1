"""From an update of Telegram to an Inbound, or to nothing when it is not for us."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from everturn.decide.addressed import addressed
from everturn.model import Attachment, Heard, Inbound, SessionSource
from everturn.platform.telegram.wire import File, Message, Press, Update, User

TYPES = {"private": "dm", "group": "group", "supergroup": "group", "channel": "channel"}
NAME = "telegram"


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads for one bot. `listening`: in groups everything is for us, not only what is addressed to us."""

    account: str
    name: str  # without the @
    listening: bool = False

    def read(self, update: Update) -> Inbound | None:
        """What was said to us, if anything was."""
        if update.callback_query is not None:
            return self._press(update.callback_query)
        edited = update.edited_message or update.edited_channel_post
        message = update.message or update.channel_post or edited
        if message is None or message.is_automatic_forward or (by_bot(message) and message.sender_chat is None):
            return None
        return self._message(message, f"edit-{update.update_id}" if edited else None)

    def _message(self, message: Message, edit: str | None) -> Inbound | None:
        files = tuple(_attachments(message))
        said = addressed(
            message.text or message.caption,
            self.name,
            direct=message.chat.type == "private",
            reply_to_us=self._to_us(message),
            listening=self.listening,
        )
        text = said if said is None or said.strip() else " ".join(_stands_for(each) for each in files)
        if not text:
            return None  # not for us, or nothing that can be read: somebody joined, a dice was thrown
        number = f"{message.message_id}@{message.chat.id}"
        return Inbound(
            id=f"{number}#{edit}" if edit else number,
            source=self._source(message, message.sender),
            text=text,
            what=Heard.EDITED if edit else Heard.SAID,
            of=number if edit else None,
            attachments=files,
            said_at=message.edit_date if edit and message.edit_date else message.date or None,
        )

    def _press(self, press: Press) -> Inbound | None:
        """A press arrives as the command, said by who pressed."""
        if press.message is None or not press.data.startswith("/"):
            return None
        return Inbound(id=f"press-{press.id}", source=self._source(press.message, press.sender), text=press.data)

    def _source(self, message: Message, sender: User | None) -> SessionSource:
        chat, direct = message.chat, message.chat.type == "private"
        whole = message.sender_chat if sender is message.sender else None  # a channel, or an admin who stays unnamed
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
            message_id=str(message.message_id),
        )

    def _to_us(self, message: Message) -> bool:
        replied = message.reply_to_message
        return replied is not None and replied.sender is not None and str(replied.sender.id) == self.account


def by_bot(message: Message) -> bool:
    """Whether a program wrote it."""
    return message.sender is not None and message.sender.is_bot


def _name(user: User | None) -> str:
    return f"{user.first_name} {user.last_name}".strip() or user.username if user else ""


def _attachments(message: Message) -> Iterator[Attachment]:
    if message.photo:  # several sizes of one photo, the largest last
        yield _attachment("image", message.photo[-1], "image/jpeg")
    kinds: tuple[tuple[str, File | None, str], ...] = (
        ("voice", message.voice, "audio/ogg"),
        ("audio", message.audio, ""),
        ("video", message.video or message.video_note or message.animation, "video/mp4"),
        ("document", None if message.animation else message.document, ""),  # an animation comes as both
        ("sticker", message.sticker, "image/webp"),
    )
    for kind, file, mime in kinds:
        if file is not None:
            yield _attachment(kind, file, mime)


def _attachment(kind: str, file: File, mime: str) -> Attachment:
    return Attachment(
        kind=kind,
        ref=file.file_id,
        name=file.file_name,
        mime=file.mime_type or mime,
        size=file.file_size,
        words=file.emoji,
    )


def _stands_for(attachment: Attachment) -> str:
    """What is said by a message that is nothing but a file."""
    what = attachment.words or attachment.name
    return f"[{attachment.kind}: {what}]" if what else f"[{attachment.kind}]"
