"""Compaction as rows: a child with a summary and the newest rows, the key and the turn move together, the parent is closed."""

from collections.abc import AsyncIterator
from dataclasses import replace

import msgspec
import pytest

from everturn.decide.compaction import back_off_s
from everturn.errors import FenceLost
from everturn.model import ResumePending, ToolCall, Usage
from everturn.store.operations.approvals import Asking, May, ask_first
from everturn.store.operations.compaction import (
    Compaction,
    Moved,
    compact,
    compaction_failed,
    compaction_wanted,
    may_compact,
    want_compaction,
)
from everturn.store.operations.freezing import freeze, frozen
from everturn.store.operations.reading import transcript
from everturn.store.operations.spending import usage_of_session, usage_of_turn
from everturn.store.operations.transcripts import calls_of_turn
from everturn.store.operations.turn_values import Begun
from everturn.store.operations.turns import step
from tests.contracts.store import Life, broken, living, response

USED = Usage(requests=1, input_tokens=10, output_tokens=5, cached_tokens=2, cost=0.5)


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as life:
        yield life


def move(life: Life, keep: int = 2, usage: Usage = Usage()) -> Compaction:  # noqa: B008  frozen
    return Compaction(session_id=life.sessions.next(), summary="so far", keep=keep, at=life.now, usage=usage)


async def rows_of(life: Life, session_id: str) -> list[tuple[int, str, str]]:
    rows = await life.store.read(transcript, session_id, 0, 1000)
    return [(row.seq, row.role, row.content) for row in rows]


async def talked(life: Life, *texts: str) -> Begun:
    """Some answered turns, and one that has called its model."""
    for text in texts:
        await life.talk(text)
    return await life.called("now")


async def test_the_key_and_its_turn_move_to_a_child(life: Life) -> None:
    begun = await talked(life, "one", "two")
    await life.tool(begun)
    await life.store.run(freeze, begun.session_id, "prompt")
    parent = await rows_of(life, begun.session_id)
    moved = await life.twice(compact, begun, move(life, keep=4, usage=USED))
    child = moved.begun.session_id
    entry = await life.entry()
    assert (entry.session_id, entry.previous_session_id, entry.turn) == (child, begun.session_id, begun.turn)
    assert [row[1:] for row in await rows_of(life, child)] == [
        ("summary", "so far"), ("assistant", "done"), ("user", "now"), ("assistant", ""), ("tool", "result"),
    ]  # fmt: skip
    assert (moved.begun.first_seq, moved.last, await life.store.read(frozen, child)) == (3, 5, "prompt")
    assert await life.store.read(usage_of_turn, begun.turn) == USED
    assert await life.store.read(broken) == {}
    await life.finish(replace_seq(moved), 1)
    assert await rows_of(life, begun.session_id) == parent
    ended = await life.look("SELECT end_reason, parent FROM session ORDER BY id")
    assert ended == [("compaction", None), (None, begun.session_id)]
    assert await life.store.read(broken) == {}


def replace_seq(moved: Moved) -> Begun:
    """The turn as the attempt counts on: its next row follows the last."""
    return msgspec.structs.replace(moved.begun, seq=moved.last)


@pytest.mark.parametrize("keep", [0, 1, 2])
async def test_calls_and_results_stay_together_and_the_turns_words_come_along(life: Life, keep: int) -> None:
    begun = await talked(life, "one")
    await life.tool(begun, "a")
    await life.tool(begun, "b", place=3)
    moved = await life.store.run(compact, begun, move(life, keep))
    kept = [("assistant", ""), ("tool", "result")] if keep else []
    rows = await rows_of(life, moved.begun.session_id)
    assert [row[1:] for row in rows] == [("summary", "so far"), ("user", "now"), *kept]
    assert (moved.begun.first_seq, moved.last) == (2, len(rows))


async def test_undone_rows_are_not_copied(life: Life) -> None:
    begun = await talked(life, "one", "two")
    await life.plant("UPDATE message SET hidden=1 WHERE session_id=$1 AND seq=3", begun.session_id)
    moved = await life.store.run(compact, begun, move(life, keep=3))
    contents = [row[2] for row in await rows_of(life, moved.begun.session_id)]
    assert contents == ["so far", "done", "done", "now"]


@pytest.mark.parametrize("command", ["/new", "/stop"])
async def test_a_command_during_a_compaction_wins(life: Life, command: str) -> None:
    begun = await talked(life, "one")
    await life.command(command)
    entry, stored = await life.entry(), await life.dump()
    with pytest.raises(FenceLost):
        await life.store.run(compact, begun, move(life))
    assert (await life.entry(), await life.dump()) == (entry, stored)


async def test_a_death_after_it_goes_on_in_the_child_with_its_count(life: Life) -> None:
    """The unclean ends are inherited; the turn goes on from its last committed step, in the child."""
    await life.called("now")
    await life.die()
    second = replace(life, instance=2)
    begun = await second.began()
    moved = await second.store.run(compact, begun, move(life))
    await second.tool(replace_seq(moved))
    await second.die()
    entry = await life.entry()
    again = await replace(life, instance=3).began()
    assert (entry.unclean_ends, isinstance(entry.state, ResumePending)) == (2, True)
    assert (again.session_id, again.attempt, again.first_seq) == (moved.begun.session_id, 3, 2)
    assert again.seq == moved.last + 2
    assert await life.store.read(broken) == {}


async def test_a_turn_that_ends_without_an_answer_leaves_the_key_on_the_child(life: Life) -> None:
    """The move is a commit of its own, before whatever ends the turn."""
    begun = await talked(life, "one")
    moved = await life.store.run(compact, begun, move(life))
    await life.command("/stop")
    await life.talk("next")
    entry = await life.entry()
    assert entry.session_id == moved.begun.session_id
    assert [row[2] for row in await rows_of(life, begun.session_id)] == ["one", "done", "now"]
    assert await life.store.read(broken) == {}


async def test_failures_back_off_and_are_counted_once(life: Life) -> None:
    begun = await life.called()
    for failures in (1, 2, 3):
        assert await life.store.read(may_compact, begun, life.now)
        await life.twice(compaction_failed, begun, life.ids.next(), "no answer", life.now)
        assert not await life.store.read(may_compact, begun, life.now + back_off_s(failures) - 1)
        life.clock.advance(back_off_s(failures))
    moved = await life.store.run(compact, begun, move(life))
    assert await life.look("SELECT compact_failures, compact_after FROM session ORDER BY id DESC LIMIT 1") == [
        (0, None)
    ]
    assert await life.store.read(may_compact, moved.begun, life.now)


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
    life: Life, text: str, busy: str | None, *, may: bool
) -> None:
    begun = await life.called()
    await life.accept(text)
    await life.plant("UPDATE inbox SET busy=$1 WHERE state='waiting'", busy)
    assert await life.store.read(may_compact, begun, life.now) is may


async def test_a_wish_is_kept_until_it_is_met(life: Life) -> None:
    """/compress sets a flag; the child has none."""
    begun = await life.called()
    await life.twice(want_compaction, begun.session_id)
    assert await life.store.read(compaction_wanted, begun.session_id)
    moved = await life.store.run(compact, begun, move(life))
    assert not await life.store.read(compaction_wanted, moved.begun.session_id)
    assert not await life.store.run(want_compaction, begun.session_id)


async def test_usage_is_that_of_the_whole_conversation(life: Life) -> None:
    """The counters of a child begin anew; the sum over the chain is what the user is shown."""
    begun = await life.called()
    await life.twice(step, begun, response(begun, 1, at=life.now), None, None, USED, prove_it=False)
    moved = await life.store.run(compact, begun, move(life, usage=USED))
    total = Usage(requests=2, input_tokens=20, output_tokens=10, cached_tokens=4, cost=1.0)
    assert await life.store.read(usage_of_session, begun.session_id) == USED
    assert await life.store.read(usage_of_session, moved.begun.session_id) == total
    assert await life.store.read(usage_of_turn, begun.turn) == total


async def test_a_yes_for_the_session_holds_in_the_child(life: Life) -> None:
    begun, call = await life.called(), ToolCall("c", "shell", ask="May I?")
    question = Asking(id=life.ids.next(), at=life.now, expires_s=60, delivery=life.delivery)
    await life.store.run(ask_first, begun, call, question)
    await life.command("/approve session")
    moved = await life.store.run(compact, await life.began(), move(life))
    other = ToolCall("d", "shell", ask="May I?")
    assert (await life.store.run(ask_first, moved.begun, other, question)).may is May.ALLOWED


async def test_a_turn_knows_its_calls_in_every_session_it_was_in(life: Life) -> None:
    earlier = await life.called("before")
    await life.tool(earlier, "of another turn")
    await life.finish(earlier, 3)
    begun = await talked(life, "one")
    await life.tool(begun, "a")
    first = await life.store.run(compact, begun, move(life, 0))
    await life.tool(replace_seq(first), "b")
    second = await life.store.run(compact, first.begun, move(life, 0))
    assert set(await life.store.read(calls_of_turn, second.begun.session_id, begun.turn)) == {"a", "b"}
