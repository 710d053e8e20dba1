"""Compaction as rows: a child with a summary and the newest rows, the key and the turn move together, the parent is closed."""

from collections.abc import AsyncIterator
from dataclasses import replace

import msgspec
import pytest

from everturn.errors import FenceLost
from everturn.model import ResumePending, ToolCall, Usage
from everturn.sessions.rows.compaction import (
    Compaction,
    MovedTurn,
    compact,
    compaction_failed,
    freeze,
    frozen,
    may_compact,
    want_compaction,
)
from everturn.sessions.rows.entries import calls_of_turn, transcript
from everturn.sessions.rules.transcript import back_off_s
from everturn.turns.rows.approvals import ApprovalTerms, May, begin_approved
from everturn.turns.rows.spending import usage_of_session, usage_of_turn
from everturn.turns.rows.turn_values import StartedTurn
from everturn.turns.rows.turns import step
from tests.contracts.store import StoreProcess, broken, living, response, wants_compaction

USED = Usage(requests=1, input_tokens=10, output_tokens=5, cached_tokens=2, cost=0.5)


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process


def move(process: StoreProcess, keep: int = 2, usage: Usage = Usage()) -> Compaction:  # noqa: B008  frozen
    return Compaction(session_id=process.sessions.next(), summary="so far", keep=keep, at=process.now, usage=usage)


async def rows_of(process: StoreProcess, session_id: str) -> list[tuple[int, str, str]]:
    rows = await process.store.read(transcript, session_id, 0, 1000)
    return [(row.seq, row.role, row.content) for row in rows]


async def talked(process: StoreProcess, *texts: str) -> StartedTurn:
    """Some answered turns, and one that has called its model."""
    for text in texts:
        await process.talk(text)
    return await process.called("now")


async def test_the_key_and_its_turn_move_to_a_child(process: StoreProcess) -> None:
    begun = await talked(process, "one", "two")
    await process.tool(begun)
    await process.store.run(freeze, begun.session_id, "prompt")
    parent = await rows_of(process, begun.session_id)
    moved = await process.twice(compact, begun, move(process, keep=4, usage=USED))
    child = moved.begun.session_id
    entry = await process.entry()
    assert (entry.session_id, entry.previous_session_id, entry.turn) == (child, begun.session_id, begun.turn)
    assert [row[1:] for row in await rows_of(process, child)] == [
        ("summary", "so far"), ("assistant", "done"), ("user", "now"), ("assistant", ""), ("tool", "result"),
    ]  # fmt: skip
    assert (moved.begun.first_seq, moved.last, await process.store.read(frozen, child)) == (3, 5, "prompt")
    assert await process.store.read(usage_of_turn, begun.turn) == USED
    assert await process.store.read(broken) == {}
    await process.finish(replace_seq(moved), 1)
    assert await rows_of(process, begun.session_id) == parent
    ended = await process.look("SELECT end_reason, parent FROM session ORDER BY id")
    assert ended == [("compaction", None), (None, begun.session_id)]
    assert await process.store.read(broken) == {}


def replace_seq(moved: MovedTurn) -> StartedTurn:
    """The turn as the attempt counts on: its next row follows the last."""
    return msgspec.structs.replace(moved.begun, seq=moved.last)


@pytest.mark.parametrize("keep", [0, 1, 2])
async def test_calls_and_results_stay_together_and_the_turns_text_comes_along(process: StoreProcess, keep: int) -> None:
    begun = await talked(process, "one")
    await process.tool(begun, "a")
    await process.tool(begun, "b", place=3)
    moved = await process.store.run(compact, begun, move(process, keep))
    kept = [("assistant", ""), ("tool", "result")] if keep else []
    rows = await rows_of(process, moved.begun.session_id)
    assert [row[1:] for row in rows] == [("summary", "so far"), ("user", "now"), *kept]
    assert (moved.begun.first_seq, moved.last) == (2, len(rows))


async def test_undone_rows_are_not_copied(process: StoreProcess) -> None:
    begun = await talked(process, "one", "two")
    await process.plant("UPDATE message SET hidden=1 WHERE session_id=$1 AND seq=3", begun.session_id)
    moved = await process.store.run(compact, begun, move(process, keep=3))
    contents = [row[2] for row in await rows_of(process, moved.begun.session_id)]
    assert contents == ["so far", "done", "done", "now"]


@pytest.mark.parametrize("command", ["/new", "/stop"])
async def test_a_command_during_a_compaction_wins(process: StoreProcess, command: str) -> None:
    begun = await talked(process, "one")
    await process.command(command)
    entry, stored = await process.entry(), await process.dump()
    with pytest.raises(FenceLost):
        await process.store.run(compact, begun, move(process))
    assert (await process.entry(), await process.dump()) == (entry, stored)


async def test_a_death_after_it_goes_on_in_the_child_with_its_count(process: StoreProcess) -> None:
    """The unclean ends are inherited; the turn goes on from its last committed step, in the child."""
    await process.called("now")
    await process.die()
    second = replace(process, instance=2)
    begun = await second.began()
    moved = await second.store.run(compact, begun, move(process))
    await second.tool(replace_seq(moved))
    await second.die()
    entry = await process.entry()
    again = await replace(process, instance=3).began()
    assert (entry.unclean_ends, isinstance(entry.state, ResumePending)) == (2, True)
    assert (again.session_id, again.attempt, again.first_seq) == (moved.begun.session_id, 3, 2)
    assert again.seq == moved.last + 2
    assert await process.store.read(broken) == {}


async def test_a_turn_that_ends_without_an_answer_leaves_the_key_on_the_child(process: StoreProcess) -> None:
    """The move is a commit of its own, before whatever ends the turn."""
    begun = await talked(process, "one")
    moved = await process.store.run(compact, begun, move(process))
    await process.command("/stop")
    await process.talk("next")
    entry = await process.entry()
    assert entry.session_id == moved.begun.session_id
    assert [row[2] for row in await rows_of(process, begun.session_id)] == ["one", "done", "now"]
    assert await process.store.read(broken) == {}


async def test_failures_back_off_and_are_counted_once(process: StoreProcess) -> None:
    begun = await process.called()
    for failures in (1, 2, 3):
        assert await process.store.read(may_compact, begun, process.now)
        await process.twice(compaction_failed, begun, process.ids.next(), "no answer", process.now)
        assert not await process.store.read(may_compact, begun, process.now + back_off_s(failures) - 1)
        process.clock.advance(back_off_s(failures))
    moved = await process.store.run(compact, begun, move(process))
    assert await process.look("SELECT compact_failures, compact_after FROM session ORDER BY id DESC LIMIT 1") == [
        (0, None)
    ]
    assert await process.store.read(may_compact, moved.begun, process.now)


@pytest.mark.parametrize(
    ("text", "busy", "may"),
    [
        ("/stop", None, False),
        ("/new", None, False),
        ("stop it", "interrupt", False),
        ("x", "rollback", False),
        ("x", "steer", True),
    ],
)
async def test_a_waiting_interrupt_is_honoured_before_a_compaction(
    process: StoreProcess, text: str, busy: str | None, *, may: bool
) -> None:
    begun = await process.called()
    await process.accept(text)
    await process.plant("UPDATE inbox SET busy=$1 WHERE state='queued'", busy)
    assert await process.store.read(may_compact, begun, process.now) is may


async def test_a_wish_is_kept_until_it_is_met(process: StoreProcess) -> None:
    """/compress sets a flag; the child has none."""
    begun = await process.called()
    await process.twice(want_compaction, begun.session_id)
    assert await wants_compaction(process, begun.session_id)
    moved = await process.store.run(compact, begun, move(process))
    assert not await wants_compaction(process, moved.begun.session_id)
    assert not await process.store.run(want_compaction, begun.session_id)


async def test_usage_is_that_of_the_whole_conversation(process: StoreProcess) -> None:
    """The counters of a child begin anew; the sum over the chain is what the user is shown."""
    begun = await process.called()
    await process.twice(step, begun, response(begun, 1, at=process.now), None, None, USED, prove_it=False)
    moved = await process.store.run(compact, begun, move(process, usage=USED))
    total = Usage(requests=2, input_tokens=20, output_tokens=10, cached_tokens=4, cost=1.0)
    assert await process.store.read(usage_of_session, begun.session_id) == USED
    assert await process.store.read(usage_of_session, moved.begun.session_id) == total
    assert await process.store.read(usage_of_turn, begun.turn) == total


async def test_an_approval_for_the_session_holds_in_the_child(process: StoreProcess) -> None:
    begun, call = await process.called(), ToolCall("c", "shell", ask="May I?")
    terms = ApprovalTerms(id=process.ids.next(), at=process.now, expires_s=60, delivery=process.delivery)
    await process.store.run(begin_approved, begun, call, terms)
    await process.command("/approve session")
    moved = await process.store.run(compact, await process.began(), move(process))
    other = ToolCall("d", "shell", ask="May I?")
    assert (await process.store.run(begin_approved, moved.begun, other, terms)).may is May.ALLOWED


async def test_a_turn_knows_its_calls_in_every_session_it_was_in(process: StoreProcess) -> None:
    earlier = await process.called("before")
    await process.tool(earlier, "of another turn")
    await process.finish(earlier, 3)
    begun = await talked(process, "one")
    await process.tool(begun, "a")
    first = await process.store.run(compact, begun, move(process, 0))
    await process.tool(replace_seq(first), "b")
    second = await process.store.run(compact, first.begun, move(process, 0))
    assert set(await process.store.read(calls_of_turn, second.begun.session_id, begun.turn)) == {"a", "b"}
