"""What a turn has streamed when it is stopped is committed with its end: an answer that was cut off, in the transcript."""

from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from everturn.decide.delivery import Doubtful
from everturn.model import Bubble, Message, ToolCall
from everturn.store.operations.acting import Act, act_on_session
from everturn.store.operations.commands import apply_command
from everturn.store.operations.inbox import accept
from everturn.store.operations.outbox import bubble_of, record_bubble
from everturn.store.operations.previews import Opened, Opening, open_bubble
from everturn.store.operations.telling import Delivery
from everturn.store.operations.turn_values import Begun, Streamed
from everturn.store.operations.turns import step
from tests.contracts.store import QUEUE, Life, broken, key_of, living

ROWS = "SELECT role, content, outcome FROM message ORDER BY session_id, seq"
STREAMS = Delivery(by_event=False, edits=True, streams=True)


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url, delivery=STREAMS) as life:
        yield life
        assert await life.store.read(broken) == {}


def streamed(begun: Begun, text: str = "half an ans", shown: str = "") -> Streamed:
    return Streamed(turn=begun.turn, session_id=begun.session_id, after=begun.seq, text=text, shown=shown)


async def ended(life: Life, command: str, what: Streamed | None) -> None:
    """A command that ends the turn, applied twice."""
    arrival = life.arrival(command)
    await life.store.run(accept, arrival, QUEUE, None)
    terms = structs.replace(life.terms(), streamed=what)
    await life.twice(apply_command, arrival.id, life.sessions.next(), life.now, life.delivery, terms)


async def on_screen(life: Life, begun: Begun, said: str) -> Bubble:
    """A streaming message with one part, and what its row knows of it."""
    opening = Opening(number=life.ids.next(), instance=life.instance, at=life.now, doubtful=Doubtful.REPEAT)
    found = await life.store.run(open_bubble, begun, opening)
    assert isinstance(found, Opened)
    bubble = structs.replace(found.bubble, sending=None, said=said)
    await life.store.run(record_bubble, begun.turn, opening.number, ("p1",), bubble)
    return bubble


async def looked(life: Life, begun: Begun) -> None:
    """The agent says something and uses a tool."""
    response = Message(
        role="assistant", content="let me look", seq=begun.seq + 1, calls=(ToolCall("c1", "look"),), at=life.now
    )
    await life.store.run(step, begun, response, None, None, prove_it=False)


@pytest.mark.parametrize("command", ["/stop", "/new"])
async def test_what_was_streamed_is_committed_with_the_stop(life: Life, command: str) -> None:
    begun = await life.called()
    await ended(life, command, streamed(begun))
    assert await life.look(ROWS) == [("user", "hello", None), ("assistant", "half an ans", "stopped")]


async def test_an_operator_who_stops_a_turn_keeps_what_it_streamed(life: Life) -> None:
    begun = await life.called()
    act = Act(
        id="a", action="stop", target=key_of(), who="me", at=life.now, number=life.ids.next(), streamed=streamed(begun)
    )
    await life.twice(act_on_session, act)
    assert await life.look(ROWS) == [("user", "hello", None), ("assistant", "half an ans", "stopped")]


async def test_a_message_that_interrupts_keeps_what_was_streamed(life: Life) -> None:
    begun = await life.called()
    arrival = structs.replace(life.arrival("no, the other", busy="interrupt"), streamed=streamed(begun))
    await life.store.run(accept, arrival, QUEUE, None)
    assert await life.look(ROWS) == [("user", "hello", None), ("assistant", "half an ans", "stopped")]


async def test_text_that_a_step_has_committed_meanwhile_is_not_written_again(life: Life) -> None:
    begun = await life.called()
    seen = streamed(begun, "let me lo")
    await looked(life, begun)
    await ended(life, "/stop", seen)
    contents = [(row[0], row[2]) for row in await life.look(ROWS)]
    assert contents == [("user", None), ("assistant", None), ("tool", "skipped")]


async def test_text_of_another_turn_is_not_written(life: Life) -> None:
    earlier = await life.talk()
    await life.called("again")
    await ended(life, "/stop", streamed(earlier))
    assert [row[0] for row in await life.look(ROWS)] == ["user", "assistant", "user"]


async def test_the_next_process_shows_and_knows_the_same(life: Life) -> None:
    """What this process knows of its streaming message is newer than the row, which says it from then on."""
    begun = await life.called()
    await on_screen(life, begun, "half")
    await ended(life, "/stop", streamed(begun, "half an ans", "half an ans"))
    ((bubble,),) = await life.look("SELECT bubble FROM outbox WHERE id=$1", begun.turn)
    found = bubble_of(bubble)
    assert found is not None
    assert found.said == "half an ans"


async def test_of_a_turn_that_runs_elsewhere_the_row_of_its_streaming_message_is_kept(life: Life) -> None:
    begun = await life.called()
    await looked(life, begun)
    await on_screen(life, begun, "let me look\n\nit is a wh")
    await ended(life, "/stop", None)
    assert (await life.look(ROWS))[-1] == ("assistant", "it is a wh", "stopped")


async def test_what_only_the_steps_said_is_not_kept_twice(life: Life) -> None:
    begun = await life.called()
    await on_screen(life, begun, "let me look")
    await looked(life, begun)
    await ended(life, "/stop", None)
    assert [row[0] for row in await life.look(ROWS)] == ["user", "assistant", "tool"]
