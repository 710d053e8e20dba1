"""Collects what the outside saw of a scenario, for the history checker."""

import asyncio
from pathlib import Path

from everturn.model import Message
from everturn.sessions.rows.entries import list_entries, transcript
from everturn.sessions.rules import notices
from everturn.store.open import open_store
from everturn.testing import FakePlatform
from tests.crash.gateway_process import CrashProcess, answer_to
from tests.history import History, Said


def history_of(process: CrashProcess) -> History:
    """Everything that outlived the processes."""
    return asyncio.run(_history_of(process))


async def _history_of(process: CrashProcess) -> History:
    platform = FakePlatform(file=process.folder / "platform", surety=process.surety)
    texts = [each.text for each in platform.said()]
    said = [
        Said(each.source.chat_id or "", each.text, _wanted(each.text, texts[:place]))
        for place, each in enumerate(platform.said())
    ]
    chats = {each.chat for each in said}
    return History(
        said=said,
        screen={chat: platform.texts(chat) for chat in chats},
        effects=_lines(process.folder / "effects"),
        requests=_lines(process.folder / "requests"),
        transcripts=await _transcripts(process.url),
    )


def _wanted(text: str, before: list[str]) -> str | None:
    """What must be on the screen once for it; /retry answers the last message again."""
    if text == "/retry":
        return answer_to([each for each in before if not each.startswith("/")][-1])
    if text == "/restart":
        return notices.back()
    return None if text.startswith("/") or text == "wait for ever" else answer_to(text)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def transcript_of(process: CrashProcess) -> list[Message]:
    """The transcript of the chat in which everything was said, as anybody may ask for it."""
    return asyncio.run(_transcript_of(process.url))


async def _transcript_of(url: str) -> list[Message]:
    store = await open_store(url)
    try:
        (entry,) = await store.read(list_entries, "", 100)
        return await store.read(transcript, str(entry["session_id"]), 0, 1000)
    finally:
        await store.close()


async def _transcripts(url: str) -> dict[str, list[str]]:
    store = await open_store(url)
    try:
        entries = await store.read(list_entries, "", 100)
        return {
            str(each["key"]): [row.content for row in await store.read(transcript, str(each["session_id"]), 0, 1000)]
            for each in entries
        }
    finally:
        await store.close()
