"""What a program's message brings, on both engines: its rows stand before its words, once, and it is found again."""

from collections.abc import AsyncIterator
from dataclasses import replace as but

import pytest
from msgspec.structs import replace

from everturn.decide.recovery import Verdict
from everturn.model import Brought, ClientTool, Message, ToolCall, Usage
from everturn.store.operations.beginning import begin_next
from everturn.store.operations.bringing import brought_by
from everturn.store.operations.inbox import Arrival, Outcome, accept
from everturn.store.operations.reading import transcript
from everturn.store.operations.recovery import cut_off, suspend_session
from everturn.store.operations.requests import Request, request_by_id, request_by_name
from everturn.store.operations.turn_values import Begun
from everturn.store.operations.turns import finish
from everturn.store.operations.upkeep import forget
from tests.contracts.store import BY_EVENT, QUEUE, Life, key_of, living

HISTORY = (Message(role="user", content="a"), Message(role="assistant", content="", calls=(ToolCall("c", "look"),)))
RESULT = Message(role="tool", content="rain", call_id="c")
BROUGHT = Brought(rows=(*HISTORY, RESULT), instructions="be brief", tools=(ClientTool("look"),), about={"store": True})


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as life:
        yield but(life, delivery=BY_EVENT)


def asking(life: Life, text: str = "hello", brought: Brought = BROUGHT, mark: str = "f") -> Arrival:
    return replace(life.arrival(text, ext="1"), brought=brought, fingerprint=mark)


async def rows(life: Life, session_id: str) -> list[tuple[str, str, bool]]:
    found = await life.store.read(transcript, session_id, 0, 100)
    return [(row.role, row.content, row.turn is None) for row in found]


async def seen(life: Life) -> Request:
    found = await life.store.read(request_by_name, "1", "fake")
    assert found is not None
    assert found == await life.store.read(request_by_id, found.id, "fake")
    return found


BEFORE = [("user", "a", True), ("assistant", "", True), ("tool", "rain", True)]


@pytest.mark.parametrize("at_once", [True, False])
async def test_what_is_brought_stands_before_the_words_once(life: Life, at_once: bool) -> None:  # noqa: FBT001
    arrival = asking(life)
    accepted = await life.twice(accept, arrival, QUEUE, life.start() if at_once else None)
    life.clock.advance(1)
    begun: object = accepted.begun
    begun = begun or await life.twice(begin_next, arrival.key, life.start())
    assert isinstance(begun, Begun)
    assert (begun.first_seq, begun.seq, begun.words) == (4, 4, ("hello",))
    assert await rows(life, begun.session_id) == [*BEFORE, ("user", "hello", False)]
    assert await life.store.read(brought_by, begun.inbox) == BROUGHT


async def test_results_alone_are_a_turn_without_words(life: Life) -> None:
    accepted = await life.store.run(accept, asking(life, ""), QUEUE, life.start())
    assert accepted.begun is not None
    assert (accepted.begun.first_seq, accepted.begun.seq, accepted.begun.words) == (4, 3, ("",))
    assert await rows(life, accepted.begun.session_id) == BEFORE
    await life.store.run(cut_off, accepted.begun.turn, accepted.key, Verdict.SPARE, life.cause(), BY_EVENT)
    again = await life.store.run(begin_next, accepted.key, life.start())
    assert (again.attempt, again.seq, again.words) == (2, 3, ("",))  # type: ignore[union-attr]


async def test_the_same_id_with_another_fingerprint_is_a_conflict(life: Life) -> None:
    await life.store.run(accept, asking(life), QUEUE, None)
    same = await life.unchanged(accept, asking(life), QUEUE, None)
    other = await life.unchanged(accept, asking(life, mark="g"), QUEUE, None)
    assert (same.outcome, other.outcome) == (Outcome.DUPLICATE, Outcome.CONFLICT)


async def test_a_request_is_followed_from_its_message_to_its_answer(life: Life) -> None:
    await life.store.run(accept, asking(life), QUEUE, None)
    waiting = await seen(life)
    assert (waiting.seen.inbox, waiting.seen.turn, waiting.brought) == ("waiting", None, BROUGHT)
    begun = await life.store.run(begin_next, waiting.key, life.start())
    assert isinstance(begun, Begun)
    assert (await seen(life)).seen.turn == "running"
    life.clock.advance(1)
    answer = replace(life.answer(begun), calls=(ToolCall("d", "look", "{}"),))
    await life.twice(finish, begun, answer, BY_EVENT, 1, None, Usage(1, 10, 3))
    done = (await seen(life)).seen
    assert (done.inbox, done.turn, done.text, done.calls) == ("done", "answered", "done", answer.calls)
    assert (done.usage.input_tokens, done.usage.output_tokens) == (10, 3)


async def test_a_request_that_waits_in_a_suspended_session_says_so(life: Life) -> None:
    await life.begun("first")
    await life.store.run(accept, asking(life), QUEUE, None)
    await life.store.run(suspend_session, key_of(), life.now)
    assert (await seen(life)).seen.suspended


async def test_what_was_brought_is_forgotten_with_the_words_and_the_id_later(life: Life) -> None:
    begun = (await life.store.run(accept, asking(life), QUEUE, life.start())).begun
    await life.store.run(finish, begun, life.answer(begun), BY_EVENT, 1, None)  # type: ignore[arg-type]
    await life.store.run(forget, life.now + 8 * 86_400)
    assert (await seen(life)).brought == Brought()
    assert (await life.store.run(accept, asking(life, mark="g"), QUEUE, None)).outcome is Outcome.CONFLICT
