"""What a turn has streamed when it is stopped is committed with its end: an answer that was cut off, in the transcript."""

from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from everturn.commands.rows.commands import apply_command
from everturn.inbox.rows.inbox import accept
from everturn.model import Bubble, Message, ToolCall
from everturn.operator.rows.actions import Act, act_on_session
from everturn.outbox.rows.outbox import bubble_of, record_bubble
from everturn.outbox.rows.streaming import Opened, Opening, open_bubble
from everturn.outbox.rules.delivery import Delivery, UnknownAction
from everturn.turns.rows.turn_values import StartedTurn, Streamed
from everturn.turns.rows.turns import step
from tests.contracts.store import QUEUE, StoreProcess, broken, key_of, living

ROWS = "SELECT role, content, outcome FROM message ORDER BY session_id, seq"
STREAMS = Delivery(by_event=False, edits=True, streams=True)


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url, delivery=STREAMS) as process:
        yield process
        assert await process.store.read(broken) == {}


def streamed(begun: StartedTurn, text: str = "half an ans", shown: str = "") -> Streamed:
    return Streamed(turn=begun.turn, session_id=begun.session_id, after=begun.seq, text=text, shown=shown)


async def ended(process: StoreProcess, command: str, what: Streamed | None) -> None:
    """A command that ends the turn, applied twice."""
    arrival = process.arrival(command)
    await process.store.run(accept, arrival, QUEUE, None)
    terms = structs.replace(process.terms(), streamed=what)
    await process.twice(apply_command, arrival.id, process.sessions.next(), process.now, process.delivery, terms)


async def on_screen(process: StoreProcess, begun: StartedTurn, said: str) -> Bubble:
    """A streaming message with one part, and what its row knows of it."""
    opening = Opening(
        number=process.ids.next(), instance=process.instance, at=process.now, on_unknown=UnknownAction.REPEAT
    )
    found = await process.store.run(open_bubble, begun, opening)
    assert isinstance(found, Opened)
    bubble = structs.replace(found.bubble, sending=None, said=said)
    await process.store.run(record_bubble, begun.turn, opening.number, ("p1",), bubble)
    return bubble


async def looked(process: StoreProcess, begun: StartedTurn) -> None:
    """The agent says something and uses a tool."""
    response = Message(
        role="assistant", content="let me look", seq=begun.seq + 1, calls=(ToolCall("c1", "look"),), at=process.now
    )
    await process.store.run(step, begun, response, None, None, prove_it=False)


@pytest.mark.parametrize("command", ["/stop", "/new"])
async def test_what_was_streamed_is_committed_with_the_stop(process: StoreProcess, command: str) -> None:
    begun = await process.called()
    await ended(process, command, streamed(begun))
    assert await process.look(ROWS) == [("user", "hello", None), ("assistant", "half an ans", "stopped")]


async def test_an_operator_who_stops_a_turn_keeps_what_it_streamed(process: StoreProcess) -> None:
    begun = await process.called()
    act = Act(
        id="a",
        action="stop",
        target=key_of(),
        actor="me",
        at=process.now,
        number=process.ids.next(),
        streamed=streamed(begun),
    )
    await process.twice(act_on_session, act)
    assert await process.look(ROWS) == [("user", "hello", None), ("assistant", "half an ans", "stopped")]


async def test_a_message_that_interrupts_keeps_what_was_streamed(process: StoreProcess) -> None:
    begun = await process.called()
    arrival = structs.replace(process.arrival("no, the other", busy="interrupt"), streamed=streamed(begun))
    await process.store.run(accept, arrival, QUEUE, None)
    assert await process.look(ROWS) == [("user", "hello", None), ("assistant", "half an ans", "stopped")]


async def test_text_that_a_step_has_committed_meanwhile_is_not_written_again(process: StoreProcess) -> None:
    begun = await process.called()
    seen = streamed(begun, "let me lo")
    await looked(process, begun)
    await ended(process, "/stop", seen)
    contents = [(row[0], row[2]) for row in await process.look(ROWS)]
    assert contents == [("user", None), ("assistant", None), ("tool", "skipped")]


async def test_text_of_another_turn_is_not_written(process: StoreProcess) -> None:
    earlier = await process.talk()
    await process.called("again")
    await ended(process, "/stop", streamed(earlier))
    assert [row[0] for row in await process.look(ROWS)] == ["user", "assistant", "user"]


async def test_the_next_process_shows_and_knows_the_same(process: StoreProcess) -> None:
    """What this process knows of its streaming message is newer than the row, which says it from then on."""
    begun = await process.called()
    await on_screen(process, begun, "half")
    await ended(process, "/stop", streamed(begun, "half an ans", "half an ans"))
    ((bubble,),) = await process.look("SELECT bubble FROM outbox WHERE id=$1", begun.turn)
    found = bubble_of(bubble)
    assert found is not None
    assert found.said == "half an ans"


async def test_of_a_turn_that_runs_elsewhere_the_row_of_its_streaming_message_is_kept(process: StoreProcess) -> None:
    begun = await process.called()
    await looked(process, begun)
    await on_screen(process, begun, "let me look\n\nit is a wh")
    await ended(process, "/stop", None)
    assert (await process.look(ROWS))[-1] == ("assistant", "it is a wh", "stopped")


async def test_what_only_the_steps_said_is_not_kept_twice(process: StoreProcess) -> None:
    begun = await process.called()
    await on_screen(process, begun, "let me look")
    await looked(process, begun)
    await ended(process, "/stop", None)
    assert [row[0] for row in await process.look(ROWS)] == ["user", "assistant", "tool"]
