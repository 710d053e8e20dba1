"""What an agent reads before its first request, and the rows behind a position, as rows."""

from collections.abc import AsyncIterator

import pytest

from everturn.model import NO_EXTRAS, HistoryPosition, TranscriptPart, TurnOpening
from everturn.sessions.rows.compaction import freeze, frozen, want_compaction
from everturn.sessions.rows.entries import history_after, transcript
from everturn.turns.rows.opening import read_opening
from everturn.turns.rows.turn_values import StartedTurn
from tests.contracts.store import StoreProcess, living


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process


async def begun(process: StoreProcess, *texts: str) -> StartedTurn:
    """Some answered turns, and one that has called its model."""
    for text in texts:
        await process.talk(text)
    return await process.called("now")


async def opened(process: StoreProcess, turn: StartedTurn, known: HistoryPosition | None = None) -> TurnOpening:
    here = known if known is not None else HistoryPosition(turn.session_id)
    return await process.store.read(read_opening, here, turn.inbox)


async def behind(process: StoreProcess, known: HistoryPosition) -> TranscriptPart:
    return await process.store.read(history_after, known)


async def test_the_opening_says_what_single_reads_say(process: StoreProcess) -> None:
    turn = await begun(process, "one", "two")
    await process.store.run(freeze, turn.session_id, "prompt")
    await process.store.run(want_compaction, turn.session_id)
    opening = await opened(process, turn)
    assert opening.frozen == await process.store.read(frozen, turn.session_id) == "prompt"
    assert opening.history.compaction_wanted
    assert opening.extras == NO_EXTRAS
    assert opening.history.rows == await process.store.read(transcript, turn.session_id, 0, 100)
    assert opening.history.whole
    assert opening.history.position == HistoryPosition(turn.session_id, turn.seq, 0)


async def test_a_session_without_a_prompt_has_none(process: StoreProcess) -> None:
    opening = await opened(process, await begun(process))
    assert opening.frozen is None
    assert not opening.history.compaction_wanted


async def test_only_newer_rows_are_read(process: StoreProcess) -> None:
    turn = await begun(process, "one")
    known = (await opened(process, turn)).history.position
    assert await behind(process, known) == TranscriptPart(rows=[], position=known, whole=False)
    await process.tool(turn)
    newer = await behind(process, known)
    assert [row.role for row in newer.rows] == ["assistant", "tool"]
    assert not newer.whole
    assert newer.position.seq == newer.rows[-1].seq
    assert (await opened(process, turn, known)).history == newer


async def test_all_is_read_again_when_rows_were_hidden(process: StoreProcess) -> None:
    turn = await begun(process, "one")
    known = (await opened(process, turn)).history.position
    await process.finish(turn, 1)
    await process.command("/undo")
    again = await behind(process, known)
    assert again.whole
    assert [row.content for row in again.rows] == ["one", "done"]
    assert again.position.revision > known.revision
    assert (await behind(process, again.position)).rows == []


async def test_a_session_that_is_not_there_has_no_rows(process: StoreProcess) -> None:
    gone = HistoryPosition("no such session", 7, 3)
    assert await behind(process, gone) == TranscriptPart(
        rows=[], position=HistoryPosition("no such session"), whole=True
    )
