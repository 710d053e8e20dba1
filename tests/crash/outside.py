"""What the outside saw of a life story, for the history checker."""

import asyncio
from pathlib import Path

from everturn.decide import words
from everturn.model import Message
from everturn.store.open import open_store
from everturn.store.operations.entries import list_entries
from everturn.store.operations.reading import transcript
from everturn.testing import FakePlatform
from tests.crash.lives import Life, answer_to
from tests.history import History, Said


def history_of(life: Life) -> History:
    """Everything that outlived the processes."""
    return asyncio.run(_history_of(life))


async def _history_of(life: Life) -> History:
    platform = FakePlatform(file=life.folder / "platform", surety=life.surety)
    texts = [each.text for each in platform.said()]
    said = [
        Said(each.source.chat_id or "", each.text, _wanted(each.text, texts[:place]))
        for place, each in enumerate(platform.said())
    ]
    chats = {each.chat for each in said}
    return History(
        said=said,
        screen={chat: platform.texts(chat) for chat in chats},
        effects=_lines(life.folder / "effects"),
        requests=_lines(life.folder / "requests"),
        transcripts=await _transcripts(life.url),
    )


def _wanted(text: str, before: list[str]) -> str | None:
    """What must be on the screen once for it; /retry asks for the last words again."""
    if text == "/retry":
        return answer_to([each for each in before if not each.startswith("/")][-1])
    if text == "/restart":
        return words.back()
    return None if text.startswith("/") or text == "wait for ever" else answer_to(text)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def transcript_of(life: Life) -> list[Message]:
    """The transcript of the chat in which everything was said, as anybody may ask for it."""
    return asyncio.run(_transcript_of(life.url))


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
