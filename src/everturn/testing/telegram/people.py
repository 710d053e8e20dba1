"""Scripted people: they write, edit, delete, press buttons, send files, and join groups.

The bot gets each as an https://core.telegram.org/bots/api#update with an https://core.telegram.org/bots/api#message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from everturn.testing.telegram.state import ChatState, Object, found_in
from everturn.testing.telegram.telegram import Telegram

FIRST_PERSON = 1001
FIRST_GROUP = -100_200_000


@dataclass(frozen=True)
class Person:
    """A person on Telegram (https://core.telegram.org/bots/api#user). They act in their chat with the bot, unless
    another one is named.
    """

    telegram: Telegram
    about: Object

    @property
    def id(self) -> int:
        """Their id, which is also that of their chat with the bot. https://core.telegram.org/bots/api#chat"""
        number: int = self.about["id"]
        return number

    def says(self, text: str, chat: int | None = None, thread: int | None = None, reply_to: int | None = None) -> int:
        """Write; returns the message's id. Commands and mentions in it are marked, as Telegram does it.

        https://core.telegram.org/bots/api#message (`text`, `reply_to_message`) and https://core.telegram.org/bots/api#messageentity
        """
        return self._send({"text": text, "entities": found_in(text)}, chat, thread, reply_to)

    def edits(self, message_id: int, text: str, chat: int | None = None) -> None:
        """Edit the text of a message: `edited_message`, and `edited_channel_post` in a channel.

        https://core.telegram.org/bots/api#update
        """
        room = self._room(chat)
        message = room.messages[message_id]
        message |= {"text": text, "entities": found_in(text), "edit_date": int(self.telegram.now())}
        self.telegram.tell(room, "edited_message", message)

    def deletes(self, message_id: int, chat: int | None = None) -> None:
        """Delete a message. The bot gets no update: https://core.telegram.org/bots/api#update has none for it."""
        del self._room(chat).messages[message_id]
        self.telegram.changed()

    def presses(self, message_id: int, label: str, chat: int | None = None) -> str:
        """Press a button under a message; returns the id of the query. https://core.telegram.org/bots/api#callbackquery"""
        message = self._room(chat).messages[message_id]
        buttons = [button for row in message["reply_markup"]["inline_keyboard"] for button in row]
        data = next(button["callback_data"] for button in buttons if button["text"] == label)
        number = str(self.telegram.state.number())
        self.telegram.state.presses[number] = False
        query = {"id": number, "from": self.about, "message": message, "chat_instance": "1", "data": data}
        self.telegram.queue.add("callback_query", query)
        return number

    def presses_newest(self, label: str, chat: int | None = None) -> str | None:
        """Press this button beneath the newest message that has it; None while there is no such message.

        https://core.telegram.org/bots/api#inlinekeyboardbutton
        """
        offering = [number for number, message in self._room(chat).messages.items() if _offers(message, label)]
        return self.presses(offering[-1], label, chat) if offering else None

    def sends_photo(self, content: bytes, caption: str = "", chat: int | None = None, **more: Any) -> int:
        """Send a photo, which arrives in several sizes. https://core.telegram.org/bots/api#photosize"""
        sizes = [self._file(content[:10], width=90, height=90), self._file(content, width=800, height=800)]
        return self._send({"photo": sizes, **_caption(caption), **more}, chat)

    def sends_album(
        self, photos: Sequence[bytes], caption: str = "", chat: int | None = None, *, under: int = 0
    ) -> list[int]:
        """Send several photos as one: a message each, with one media_group_id; the caption is under one, by default the first.

        https://core.telegram.org/bots/api#message (`media_group_id`) and https://core.telegram.org/bots/api#sendmediagroup
        """
        group = str(self.telegram.state.number())
        text = [caption if place == under else "" for place in range(len(photos))]
        return [
            self.sends_photo(photo, each, chat, media_group_id=group) for photo, each in zip(photos, text, strict=True)
        ]

    def sends_document(self, content: bytes, name: str, mime: str, caption: str = "") -> int:
        """Send any file. https://core.telegram.org/bots/api#document"""
        return self._send({"document": self._file(content, file_name=name, mime_type=mime), **_caption(caption)})

    def sends_voice(self, content: bytes, duration: int = 1) -> int:
        """Send a voice message. https://core.telegram.org/bots/api#voice"""
        return self._send({"voice": self._file(content, duration=duration, mime_type="audio/ogg")})

    def sends_sticker(self, emoji: str, content: bytes = b"RIFF0000WEBP", *, animated: bool = False) -> int:
        """Send a sticker. https://core.telegram.org/bots/api#sticker"""
        about = {"type": "regular", "width": 512, "height": 512, "is_animated": animated, "is_video": False}
        return self._send({"sticker": self._file(content, **about, emoji=emoji, set_name="things")})

    def shares(self, chat: int | None = None, **what: Any) -> int:
        """Send what has neither text nor a file: `location={...}`, `contact={...}`, `poll={...}`, `dice={...}`.

        https://core.telegram.org/bots/api#location, https://core.telegram.org/bots/api#contact, https://core.telegram.org/bots/api#poll,
        https://core.telegram.org/bots/api#dice
        """
        return self._send(what, chat)

    def joins(self, chat: int) -> None:
        """Join a group: a service message, `new_chat_members` of https://core.telegram.org/bots/api#message"""
        room = self.telegram.state.rooms[chat]
        room.members.append(self.id)
        self.telegram.said(room, self.about, {"new_chat_members": [self.about]})

    def blocks(self) -> None:
        """Block the bot: what it sends is answered with 403.

        https://core.telegram.org/bots/api#making-requests; of blocking, https://core.telegram.org/bots/api#update (`my_chat_member`)
        """
        self._room(None).closed = "bot was blocked by the user"

    def _send(
        self, message: Object, chat: int | None = None, thread: int | None = None, reply_to: int | None = None
    ) -> int:
        room = self._room(chat)
        if thread is not None:
            # In a topic a message that is no reply replies to what made the topic: `message_thread_id`, `is_topic_message` and
            # `reply_to_message` of https://core.telegram.org/bots/api#message
            message |= {
                "message_thread_id": thread,
                "is_topic_message": True,
                "reply_to_message": room.messages[thread],
            }
        if reply_to is not None:
            message["reply_to_message"] = room.messages[reply_to]
            if room.chat["type"] == "supergroup":  # a reply joins the thread of its message, topics or not
                message["message_thread_id"] = room.messages[reply_to].get("message_thread_id", reply_to)
        number: int = self.telegram.said(room, self.about, message)["message_id"]
        return number

    def _room(self, chat: int | None) -> ChatState:
        return self.telegram.state.rooms[self.id if chat is None else chat]

    def _file(self, content: bytes, **about: Any) -> Object:
        return kept(self.telegram, content, **about)


def kept(telegram: Telegram, content: bytes, **about: Any) -> Object:
    """Store a file in Telegram. https://core.telegram.org/bots/api#file"""
    number = f"file-{telegram.state.number()}"
    telegram.state.files[number] = content
    return {"file_id": number, "file_unique_id": f"u-{number}", "file_size": len(content), **about}


def _offers(message: Object, label: str) -> bool:
    rows = message.get("reply_markup", {}).get("inline_keyboard", [])
    return any(button["text"] == label for row in rows for button in row)


def _caption(text: str) -> Object:
    return {"caption": text, "caption_entities": found_in(text)} if text else {}


def person(telegram: Telegram, name: str) -> Person:
    """The person of this name, with a chat of their own with the bot; always the same.

    https://core.telegram.org/bots/api#user and https://core.telegram.org/bots/api#chat (`private`)
    """
    state = telegram.state
    about = next((each for each in state.people.values() if each["first_name"] == name), None)
    if about is None:
        number = FIRST_PERSON + len(state.people)
        about = {
            "id": number,
            "is_bot": False,
            "first_name": name,
            "username": f"{name.lower()}_u",
            "language_code": "en",
        }
        state.people[number] = about
        chat = {"id": number, "type": "private", "first_name": name, "username": about["username"]}
        state.rooms[number] = ChatState(chat)
    return Person(telegram, about)


def group(telegram: Telegram, title: str, kind: str = "supergroup", *, forum: bool = False) -> int:
    """Create a group, supergroup or channel with the bot in it; returns its id. https://core.telegram.org/bots/api#chat"""
    state = telegram.state
    number = FIRST_GROUP - len(state.rooms)
    chat: Object = {"id": number, "type": kind, "title": title} | ({"is_forum": True} if forum else {})
    state.rooms[number] = ChatState(chat)
    return number


def topic(telegram: Telegram, chat: int, name: str) -> int:
    """Create a topic of a forum; its id is that of the message that made it.

    https://core.telegram.org/bots/api#forumtopiccreated and https://core.telegram.org/bots/api#createforumtopic
    """
    room = telegram.state.rooms[chat]
    made = telegram.put(room, {"from": telegram.bot, "forum_topic_created": {"name": name, "icon_color": 7322096}})
    number: int = made["message_id"]
    room.topics[number] = name
    made |= {"message_thread_id": number, "is_topic_message": True}
    return number


def upgrade(telegram: Telegram, chat: int) -> int:
    """Turn a group into a supergroup, with another id. https://core.telegram.org/bots/api#responseparameters"""
    old = telegram.state.rooms[chat]
    new = group(telegram, old.chat["title"])
    telegram.said(old, telegram.bot, {"migrate_to_chat_id": new})
    old.moved_to = new
    telegram.said(telegram.state.rooms[new], telegram.bot, {"migrate_from_chat_id": chat})
    return new
