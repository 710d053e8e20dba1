"""Run as a program: aiogram, which knows nothing of us, talks to the local Telegram at the address that it is given.

Each line of its input is what it shall do and with which number; each line of its output is what it found.
"""

import asyncio
import json
import sys

from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import TelegramBadRequest, TelegramRetryAfter, TelegramServerError
from aiogram.types import BotCommand, BufferedInputFile, InlineKeyboardButton, InlineKeyboardMarkup, ReactionTypeEmoji


async def name_of(call: object) -> str:
    """What a call is refused with."""
    try:
        await call  # type: ignore[misc]  # any awaitable
    except (TelegramBadRequest, TelegramRetryAfter, TelegramServerError) as error:
        return type(error).__name__
    return "done"


async def talk(bot: Bot, chat: int) -> dict[str, object]:
    """Everything an adapter needs, once."""
    me = await bot.get_me()
    first = await bot.get_updates(timeout=0)
    again = await bot.get_updates(timeout=0)
    after = await bot.get_updates(offset=first[-1].update_id + 1, timeout=0)
    keyboard = InlineKeyboardMarkup(inline_keyboard=[[InlineKeyboardButton(text="Yes", callback_data="/approve 1")]])
    sent = await bot.send_message(chat, "<b>hi</b> &amp; bye", parse_mode="HTML", reply_markup=keyboard)
    edited = await bot.edit_message_text("other", chat_id=chat, message_id=sent.message_id)
    document = await bot.send_document(chat, BufferedInputFile(b"content", "a.txt"), caption="a file")
    assert document.document is not None
    file = await bot.get_file(document.document.file_id)
    assert file.file_path is not None
    content = await bot.download_file(file.file_path)
    return {
        "me": me.username,
        "ids": [[each.update_id for each in batch] for batch in (first, again, after)],
        "said": [each.message.text for each in first if each.message],
        "sent": sent.text,
        "edited": getattr(edited, "text", None),
        "file": content.read().decode() if content else None,
        "reaction": await bot.set_message_reaction(chat, sent.message_id, reaction=[ReactionTypeEmoji(emoji="👀")]),
        "commands": await bot.set_my_commands([BotCommand(command="new", description="start afresh")]),
        "typing": await bot.send_chat_action(chat, "typing"),
        "hook": (await bot.get_webhook_info()).url,
        "chat": (await bot.get_chat(chat)).first_name,
        "long": await name_of(bot.send_message(chat, "x" * 4097)),
        "tags": await name_of(bot.send_message(chat, "<b>", parse_mode="HTML")),
        "flood": await name_of(bot.pin_chat_message(chat, 1)),
        "server": await name_of(bot.unpin_all_chat_messages(chat)),
    }


async def listen(bot: Bot, seen: int) -> dict[str, object]:
    """What people did, as this library reads it; the press is answered."""
    updates = await bot.get_updates(offset=seen + 1, timeout=0)
    presses = [each.callback_query for each in updates if each.callback_query]
    messages = [each.message for each in updates if each.message]
    posts = [each.channel_post for each in updates if each.channel_post]
    return {
        "kinds": [each.event_type for each in updates],
        "presses": [[each.from_user.first_name, each.data] for each in presses],
        "answered": [await bot.answer_callback_query(each.id) for each in presses],
        "again": [await name_of(bot.answer_callback_query(each.id)) for each in presses],
        "edited": [each.edited_message.text for each in updates if each.edited_message],
        "posts": [[each.from_user is None, each.sender_chat.title if each.sender_chat else ""] for each in posts],
        "reposts": [each.edited_channel_post.text for each in updates if each.edited_channel_post],
        "contents": [each.content_type for each in messages],
        "albums": len({each.media_group_id for each in messages if each.media_group_id}),
        "voices": [each.voice.duration for each in messages if each.voice],
        "stickers": [each.sticker.emoji for each in messages if each.sticker],
        "places": [each.location.latitude for each in messages if each.location],
    }


async def tidy(bot: Bot, chat: int) -> dict[str, object]:
    """What is taken away is gone, once."""
    sent = await bot.send_message(chat, "not for long")
    gone = await bot.delete_message(chat, sent.message_id)
    return {"deleted": gone, "deleted_again": await name_of(bot.delete_message(chat, sent.message_id))}


async def main(url: str, token: str) -> None:
    session = AiohttpSession(api=TelegramAPIServer.from_base(url))
    async with Bot(token, session=session) as bot:
        while line := (await asyncio.to_thread(sys.stdin.readline)).split():
            told = await {"talk": talk, "tidy": tidy, "listen": listen}[line[0]](bot, int(line[1]))
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
