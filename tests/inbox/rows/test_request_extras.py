"""Request extras, on both engines: their rows stand before the message's text, once, and are found again."""

from collections.abc import AsyncIterator
from dataclasses import replace as but

import pytest
from msgspec.structs import replace

from everturn.inbox.rows.attachments import extras_of_messages
from everturn.inbox.rows.inbox import AcceptOutcome, Arrival, accept
from everturn.lifecycle.rows import forget
from everturn.model import ClientTool, Message, RequestExtras, ToolCall, Usage
from everturn.sessions.rows.entries import transcript
from everturn.turns.rows.beginning import begin_next
from everturn.turns.rows.recovery import cut_off, suspend_session
from everturn.turns.rows.turn_values import StartedTurn
from everturn.turns.rows.turns import finish
from everturn.turns.rules.recovery import RecoveryVerdict
from everturn.web.v1.rows import RequestRow, request_by_id, request_by_name
from tests.contracts.store import BY_EVENT, QUEUE, StoreProcess, key_of, living

HISTORY = (Message(role="user", content="a"), Message(role="assistant", content="", calls=(ToolCall("c", "look"),)))
RESULT = Message(role="tool", content="rain", call_id="c")
BROUGHT = RequestExtras(
    rows=(*HISTORY, RESULT), instructions="be brief", tools=(ClientTool("look"),), about={"store": True}
)


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield but(process, delivery=BY_EVENT)


def asking(process: StoreProcess, text: str = "hello", extras: RequestExtras = BROUGHT, mark: str = "f") -> Arrival:
    return replace(process.arrival(text, ext="1"), extras=extras, fingerprint=mark)


async def rows(process: StoreProcess, session_id: str) -> list[tuple[str, str, bool]]:
    found = await process.store.read(transcript, session_id, 0, 100)
    return [(row.role, row.content, row.turn is None) for row in found]


async def seen(process: StoreProcess) -> RequestRow:
    found = await process.store.read(request_by_name, "1", "fake")
    assert found is not None
    assert found == await process.store.read(request_by_id, found.id, "fake")
    return found


BEFORE = [("user", "a", True), ("assistant", "", True), ("tool", "rain", True)]


@pytest.mark.parametrize("at_once", [True, False])
async def test_request_extras_stand_before_the_text_once(process: StoreProcess, at_once: bool) -> None:  # noqa: FBT001
    arrival = asking(process)
    accepted = await process.twice(accept, arrival, QUEUE, process.start() if at_once else None)
    process.clock.advance(1)
    begun: object = accepted.begun
    begun = begun or await process.twice(begin_next, arrival.key, process.start())
    assert isinstance(begun, StartedTurn)
    assert (begun.first_seq, begun.seq, begun.texts) == (4, 4, ("hello",))
    assert await rows(process, begun.session_id) == [*BEFORE, ("user", "hello", False)]
    assert await process.store.read(extras_of_messages, begun.inbox) == BROUGHT


async def test_results_alone_are_a_turn_without_text(process: StoreProcess) -> None:
    accepted = await process.store.run(accept, asking(process, ""), QUEUE, process.start())
    assert accepted.begun is not None
    assert (accepted.begun.first_seq, accepted.begun.seq, accepted.begun.texts) == (4, 3, ("",))
    assert await rows(process, accepted.begun.session_id) == BEFORE
    await process.store.run(
        cut_off, accepted.begun.turn, accepted.key, RecoveryVerdict.SPARE, process.cause(), BY_EVENT
    )
    again = await process.store.run(begin_next, accepted.key, process.start())
    assert (again.attempt, again.seq, again.texts) == (2, 3, ("",))  # type: ignore[union-attr]


async def test_the_same_id_with_another_fingerprint_is_a_conflict(process: StoreProcess) -> None:
    await process.store.run(accept, asking(process), QUEUE, None)
    same = await process.unchanged(accept, asking(process), QUEUE, None)
    other = await process.unchanged(accept, asking(process, mark="g"), QUEUE, None)
    assert (same.outcome, other.outcome) == (AcceptOutcome.DUPLICATE, AcceptOutcome.CONFLICT)


async def test_a_request_is_followed_from_its_message_to_its_answer(process: StoreProcess) -> None:
    await process.store.run(accept, asking(process), QUEUE, None)
    waiting = await seen(process)
    assert (waiting.seen.inbox, waiting.seen.turn, waiting.extras) == ("queued", None, BROUGHT)
    begun = await process.store.run(begin_next, waiting.key, process.start())
    assert isinstance(begun, StartedTurn)
    assert (await seen(process)).seen.turn == "running"
    process.clock.advance(1)
    answer = replace(process.answer(begun), calls=(ToolCall("d", "look", "{}"),))
    await process.twice(finish, begun, answer, BY_EVENT, 1, None, Usage(1, 10, 3))
    done = (await seen(process)).seen
    assert (done.inbox, done.turn, done.text, done.calls) == ("done", "answered", "done", answer.calls)
    assert (done.usage.input_tokens, done.usage.output_tokens) == (10, 3)


async def test_a_request_that_waits_in_a_suspended_session_says_so(process: StoreProcess) -> None:
    await process.begun("first")
    await process.store.run(accept, asking(process), QUEUE, None)
    await process.store.run(suspend_session, key_of(), process.now)
    assert (await seen(process)).seen.suspended


async def test_request_extras_are_forgotten_with_the_text_and_the_id_later(process: StoreProcess) -> None:
    begun = (await process.store.run(accept, asking(process), QUEUE, process.start())).begun
    await process.store.run(finish, begun, process.answer(begun), BY_EVENT, 1, None)  # type: ignore[arg-type]
    await process.store.run(forget, process.now + 8 * 86_400)
    assert (await seen(process)).extras == RequestExtras()
    assert (await process.store.run(accept, asking(process, mark="g"), QUEUE, None)).outcome is AcceptOutcome.CONFLICT
