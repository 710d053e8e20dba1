"""The methods of the Bot API that the local Telegram supports. https://core.telegram.org/bots/api#available-methods"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from everturn.testing.telegram.people import kept, topic
from everturn.testing.telegram.state import BOT_ID, ApiError, ChatState, Hook, Object, bad, parsed, units
from everturn.testing.telegram.telegram import Telegram

TEXT_UNITS = 4096  # sendMessage: "1-4096 characters after entities parsing"
CAPTION_UNITS = 1024  # sendPhoto: "0-1024 characters after entities parsing"
CALLBACK_BYTES = 64  # InlineKeyboardButton.callback_data: "1-64 bytes"
DOWNLOAD_BYTES = 20_000_000  # getFile: "bots can download files of up to 20MB in size"
SECRET_UNITS = 256
CONNECTIONS = 40  # setWebhook: "defaults to 40"
DELETABLE_S = 48 * 3600
REACTIONS = frozenset("👍👎❤🔥🥰👏😁🤔🤯😱🤬😢🎉🤩🤮💩🙏👌🕊🤡🥱🥴😍🐳🌚🌭💯🤣⚡🍌🏆💔🤨😐🍓🍾💋🖕😈😴😭🤓👻👀🎃🙈😇😨🤝✍🤗🫡🎅🎄☃💅🤪🗿🆒💘🙉🦄😘💊🙊😎👾😡")  # fmt: skip  # ReactionTypeEmoji
NOT_MODIFIED = (
    "message is not modified: specified new message content and reply markup are exactly the same as a current content"
    " and reply markup of the message"
)


@dataclass(frozen=True)
class MethodParameters:
    """The parameters of a call: from a form everything is text, and what is not simple is JSON.

    https://core.telegram.org/bots/api#making-requests
    """

    values: dict[str, Any]

    def text(self, name: str, default: str = "") -> str:
        """A text parameter."""
        return str(self.values.get(name, default))

    def number(self, name: str, default: int = 0) -> int:
        """A number parameter."""
        try:
            return int(self.values.get(name, default))
        except (TypeError, ValueError):
            raise bad(f"parameter {name} must be a number") from None

    def flag(self, name: str) -> bool:
        """A boolean parameter."""
        return str(self.values.get(name, "")).lower() in {"true", "1"}

    def object(self, name: str) -> Any:
        """A JSON parameter; None when it is not given."""
        value = self.values.get(name)
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError:
            raise bad(f"can't parse {name} JSON object") from None


Method = Callable[[Telegram, MethodParameters], Any]
METHODS: dict[str, Method] = {}


def _method(function: Method) -> Method:
    first, *others = function.__name__.split("_")
    METHODS[(first + "".join(each.capitalize() for each in others)).lower()] = function
    return function


async def answer(telegram: Telegram, method: str, given: MethodParameters) -> Any:
    """Call a method; its name may be written in any case. Raises ApiError.

    https://core.telegram.org/bots/api#making-requests
    """
    found = METHODS.get(method.lower())
    if found is None:
        raise ApiError(404, "Not Found")
    result = found(telegram, given)
    return await result if isinstance(result, Awaitable) else result


# -- reading ---------------------------------------------------------------------------------------------------------------


@_method
def get_me(telegram: Telegram, _: MethodParameters) -> Object:
    """https://core.telegram.org/bots/api#getme"""
    return telegram.bot


@_method
async def get_updates(telegram: Telegram, given: MethodParameters) -> list[Object]:
    """https://core.telegram.org/bots/api#getupdates"""
    wanted = given.object("allowed_updates")
    return await telegram.queue.poll(
        given.number("offset"), given.number("limit", 100), float(given.text("timeout", "0")), wanted
    )


@_method
def set_webhook(telegram: Telegram, given: MethodParameters) -> bool:
    """https://core.telegram.org/bots/api#setwebhook

    The secret comes back in X-Telegram-Bot-Api-Secret-Token.
    """
    secret = given.text("secret_token")
    if not all(each.isascii() and (each.isalnum() or each in "_-") for each in secret) or len(secret) > SECRET_UNITS:
        raise bad("secret token contains unallowed characters")
    wanted = given.object("allowed_updates")
    if wanted is not None:
        telegram.state.allowed = list(wanted)
    if given.flag("drop_pending_updates"):
        telegram.state.waiting.clear()
    connections = given.number("max_connections", CONNECTIONS)
    telegram.state.hook = Hook(given.text("url"), secret, connections) if given.text("url") else None
    telegram.changed()
    return True


@_method
def delete_webhook(telegram: Telegram, given: MethodParameters) -> bool:
    """https://core.telegram.org/bots/api#deletewebhook"""
    if given.flag("drop_pending_updates"):
        telegram.state.waiting.clear()
    telegram.state.hook = None
    telegram.changed()
    return True


@_method
def get_webhook_info(telegram: Telegram, _: MethodParameters) -> Object:
    """https://core.telegram.org/bots/api#getwebhookinfo"""
    hook = telegram.state.hook
    about: Object = {"url": hook.url if hook else "", "has_custom_certificate": False}
    about["pending_update_count"] = len(telegram.state.waiting)
    if telegram.state.allowed is not None:
        about["allowed_updates"] = telegram.state.allowed
    if hook is not None:
        about["max_connections"] = hook.max_connections
    if hook is not None and hook.last_error:
        about |= {"last_error_date": hook.last_error_at, "last_error_message": hook.last_error}
    return about


@_method
def get_chat(telegram: Telegram, given: MethodParameters) -> Object:
    """https://core.telegram.org/bots/api#getchat"""
    room = telegram.state.room(given.values.get("chat_id"))
    return {**room.chat, "accent_color_id": 0, "max_reaction_count": 11, "accepted_gift_types": _GIFTS}


_GIFTS = {
    "unlimited_gifts": False, "limited_gifts": False, "unique_gifts": False, "premium_subscription": False,
    "gifts_from_channels": False,
}  # fmt: skip


@_method
def get_file(telegram: Telegram, given: MethodParameters) -> Object:
    """https://core.telegram.org/bots/api#getfile"""
    number = given.text("file_id")
    content = telegram.state.files.get(number)
    if content is None:
        raise bad("invalid file_id")
    if len(content) > DOWNLOAD_BYTES:
        raise bad("file is too big")
    return {"file_id": number, "file_unique_id": f"u-{number}", "file_size": len(content), "file_path": f"f/{number}"}


# -- writing ---------------------------------------------------------------------------------------------------------------


@_method
def send_message(telegram: Telegram, given: MethodParameters) -> Object:
    """https://core.telegram.org/bots/api#sendmessage"""
    text, entities = _text(given, "text", TEXT_UNITS, "message is too long")
    if not text.strip():
        raise bad("message text is empty")
    return _post(telegram, given, {"text": text, "entities": entities})


@_method
def edit_message_text(telegram: Telegram, given: MethodParameters) -> Object:
    """https://core.telegram.org/bots/api#editmessagetext"""
    room = telegram.state.room(given.values.get("chat_id"))
    message = room.messages.get(given.number("message_id"))
    if message is None:
        raise bad("message to edit not found")
    if message.get("from", {}).get("id") != BOT_ID:
        raise bad("message can't be edited")
    text, entities = _text(given, "text", TEXT_UNITS, "MESSAGE_TOO_LONG")
    if not text:
        raise bad("message text is empty")
    markup = _markup(given)
    if (text, entities, markup) == (message["text"], message["entities"], message.get("reply_markup")):
        raise bad(NOT_MODIFIED)
    message |= {"text": text, "entities": entities, "edit_date": int(telegram.now())}
    message.pop("reply_markup", None)
    message |= {"reply_markup": markup} if markup else {}
    telegram.changed()
    return message


@_method
def delete_message(telegram: Telegram, given: MethodParameters) -> bool:
    """https://core.telegram.org/bots/api#deletemessage

    "a message can only be deleted if it was sent less than 48 hours ago"; a bot may delete its own.
    """
    room = telegram.state.room(given.values.get("chat_id"))
    message = room.messages.get(given.number("message_id"))
    if message is None:
        raise bad("message to delete not found")
    if message.get("from", {}).get("id") != BOT_ID or telegram.now() - message["date"] >= DELETABLE_S:
        raise bad("message can't be deleted for everyone")
    del room.messages[message["message_id"]]
    telegram.changed()
    return True


@_method
def send_document(telegram: Telegram, given: MethodParameters) -> Object:
    """https://core.telegram.org/bots/api#senddocument"""
    return _send_file(telegram, given, "document")


@_method
def send_photo(telegram: Telegram, given: MethodParameters) -> Object:
    """https://core.telegram.org/bots/api#sendphoto"""
    return _send_file(telegram, given, "photo")


@_method
def send_voice(telegram: Telegram, given: MethodParameters) -> Object:
    """https://core.telegram.org/bots/api#sendvoice"""
    return _send_file(telegram, given, "voice")


def _send_file(telegram: Telegram, given: MethodParameters, kind: str) -> Object:
    upload = given.values.get(kind)
    if isinstance(upload, str) and upload.startswith("attach://"):
        upload = given.values.get(upload.removeprefix("attach://"))
    if not isinstance(upload, UploadedFile):
        raise bad("wrong remote file identifier specified: Wrong character in the string")
    caption, entities = _text(given, "caption", CAPTION_UNITS, "message caption is too long")
    about: dict[str, Object] = {
        "document": {"file_name": upload.name}, "voice": {"duration": 1}, "photo": {"width": 1, "height": 1}
    }  # fmt: skip
    file = kept(telegram, upload.content, **about[kind])
    return _post(
        telegram, given, {kind: [file] if kind == "photo" else file, "caption": caption, "caption_entities": entities}
    )


@dataclass(frozen=True)
class UploadedFile:
    """A file in a request. https://core.telegram.org/bots/api#sending-files"""

    name: str
    content: bytes


@_method
def send_chat_action(telegram: Telegram, given: MethodParameters) -> bool:
    """https://core.telegram.org/bots/api#sendchataction"""
    room = _open_room(telegram, given)
    room.typing += 1
    telegram.changed()
    return True


@_method
def set_message_reaction(telegram: Telegram, given: MethodParameters) -> bool:
    """https://core.telegram.org/bots/api#setmessagereaction

    A bot may use the emoji of https://core.telegram.org/bots/api#reactiontypeemoji, one for each message.
    """
    room = telegram.state.room(given.values.get("chat_id"))
    message = room.messages.get(given.number("message_id"))
    if message is None:
        raise bad("message to react not found")
    marks = [each["emoji"] for each in given.object("reaction") or []]
    if not set(marks) <= REACTIONS:
        raise bad("REACTION_INVALID")
    message["reactions"] = marks  # ours: not a field of the API, but what is on the screen
    telegram.changed()
    return True


@_method
def answer_callback_query(telegram: Telegram, given: MethodParameters) -> bool:
    """https://core.telegram.org/bots/api#answercallbackquery"""
    number = given.text("callback_query_id")
    if telegram.state.presses.get(number) is not False:
        raise bad("query is too old and response timeout expired or query ID is invalid")
    telegram.state.presses[number] = True
    telegram.changed()
    return True


@_method
def set_my_commands(telegram: Telegram, given: MethodParameters) -> bool:
    """https://core.telegram.org/bots/api#setmycommands

    At most 100, names of 1-32 lowercase letters, digits and underscores; a list for each scope.
    """
    commands = given.object("commands")
    for each in commands:
        name = each["command"]
        if not (name.islower() and name.replace("_", "").isalnum() and len(name) <= 32):
            raise bad("BOT_COMMAND_INVALID")
        if not 1 <= len(each["description"]) <= 256:
            raise bad("BOT_COMMAND_DESCRIPTION_INVALID")
    telegram.state.commands[_scope(telegram, given)] = commands
    telegram.changed()
    return True


def _scope(telegram: Telegram, given: MethodParameters) -> str:
    """https://core.telegram.org/bots/api#botcommandscope: as `type`, or `type chat_id`."""
    scope = given.object("scope") or {"type": "default"}
    if "chat_id" not in scope:
        return str(scope["type"])
    return f"{scope['type']} {telegram.state.room(scope['chat_id']).chat['id']}"


@_method
def get_my_commands(telegram: Telegram, given: MethodParameters) -> list[Object]:
    """https://core.telegram.org/bots/api#getmycommands"""
    return telegram.state.commands.get(_scope(telegram, given), [])


@_method
def create_forum_topic(telegram: Telegram, given: MethodParameters) -> Object:
    """https://core.telegram.org/bots/api#createforumtopic"""
    room = _open_room(telegram, given)
    if not room.chat.get("is_forum"):
        raise bad("the chat is not a forum")
    number = topic(telegram, room.chat["id"], given.text("name"))
    return {"message_thread_id": number, "name": given.text("name"), "icon_color": 7322096}


# -- what they share -------------------------------------------------------------------------------------------------------


def _open_room(telegram: Telegram, given: MethodParameters) -> ChatState:
    room = telegram.state.room(given.values.get("chat_id"))
    if room.closed:
        raise ApiError(403, f"Forbidden: {room.closed}")
    return room


def _post(telegram: Telegram, given: MethodParameters, message: Object) -> Object:
    room = _open_room(telegram, given)
    thread = given.number("message_thread_id")
    if thread and thread not in room.topics:
        raise bad("message thread not found")
    if thread:
        message |= {"message_thread_id": thread, "is_topic_message": True}
    reply = given.object("reply_parameters")
    if reply and reply["message_id"] in room.messages:
        message["reply_to_message"] = room.messages[reply["message_id"]]
    elif reply and not reply.get("allow_sending_without_reply"):
        raise bad("message to be replied not found")
    if markup := _markup(given):
        message["reply_markup"] = markup
    return telegram.put(room, {"from": telegram.bot, **message})


def _text(given: MethodParameters, name: str, longest: int, too_long: str) -> tuple[str, list[Object]]:
    text, entities = parsed(given.text(name), given.values.get("parse_mode"))
    text = text.strip()
    if units(text) > longest:
        raise bad(too_long)
    return text, given.object("entities") or entities


def _markup(given: MethodParameters) -> Object | None:
    markup: Object | None = given.object("reply_markup")
    for row in (markup or {}).get("inline_keyboard", []):
        for button in row:
            if not 1 <= len(button.get("callback_data", "x").encode()) <= CALLBACK_BYTES:
                raise bad("BUTTON_DATA_INVALID")
    return markup
