"""A model is asked while it is being stored that it is: nothing of its answer is used before."""

import asyncio
from contextlib import suppress

import pytest

from everturn.agent.llm.calls import CallWatch, call_model
from everturn.agent.llm.replies import Heard, ModelAnswer, ModelInput
from everturn.agent.rules import CallOutcome
from everturn.clock import SystemClock
from everturn.errors import FenceLost
from everturn.model import Usage
from everturn.testing.clock import WAIT_S, within

ASKED = ModelInput((), (), "s")
ANSWER = ModelAnswer([{"part_kind": "text", "content": "hello"}], "openai", CallOutcome.ANSWERED, Usage(1))


class Saying:
    """A model that says something at once, and answers when it may."""

    provider = "openai"
    takes_encoded = True

    def __init__(self) -> None:
        self.said = asyncio.Event()
        self.may_end = asyncio.Event()
        self.ended_early = False

    def start(self) -> None:
        """It needs nothing."""

    async def plan(self, input_tokens: int, output_tokens: int) -> Usage:
        return Usage(1, input_tokens, output_tokens)

    async def ask(self, _asked: ModelInput, heard: Heard) -> ModelAnswer:
        self._heard = heard
        self.heard("hel")
        self.said.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.ended_early = True
            raise
        return ANSWER

    def heard(self, text: str) -> None:
        """Say something."""
        self._heard(lambda: text)

    async def close(self) -> None:
        """It has no connections."""


def watching(shown: list[str]) -> CallWatch:
    return CallWatch(SystemClock(), 60.0, shown.append, lambda: None)


async def test_what_came_before_the_call_was_stored_is_shown_as_soon_as_it_is() -> None:
    model, shown = Saying(), list[str]()
    calling = asyncio.get_running_loop().create_future()
    call = asyncio.ensure_future(call_model(model, ASKED, watching(shown), calling))
    async with within(WAIT_S, lambda: "the model said nothing"):
        await model.said.wait()
        assert shown == []
        calling.set_result(None)
        model.may_end.set()
        assert await call is ANSWER
    assert shown == ["hel"]


async def test_an_answer_waits_until_its_call_is_stored() -> None:
    model, shown = Saying(), list[str]()
    calling = asyncio.get_running_loop().create_future()
    model.may_end.set()
    call = asyncio.ensure_future(call_model(model, ASKED, watching(shown), calling))
    async with within(WAIT_S, lambda: "the model said nothing"):
        await model.said.wait()
    assert not call.done()
    calling.set_result(None)
    assert await call is ANSWER


async def test_a_call_that_cannot_be_stored_is_ended() -> None:
    model, shown = Saying(), list[str]()
    calling = asyncio.get_running_loop().create_future()
    call = asyncio.ensure_future(call_model(model, ASKED, watching(shown), calling))
    async with within(WAIT_S, lambda: "the model said nothing"):
        await model.said.wait()
    calling.set_exception(FenceLost("the turn is not ours any more"))
    with pytest.raises(FenceLost):
        await call
    assert (model.ended_early, shown) == (True, [])


async def test_what_comes_while_it_is_learnt_that_a_call_is_not_stored_is_not_shown() -> None:
    model, shown = Saying(), list[str]()
    calling = asyncio.get_running_loop().create_future()
    call = asyncio.ensure_future(call_model(model, ASKED, watching(shown), calling))
    model_says = asyncio.ensure_future(model.said.wait())
    await asyncio.wait({model_says, call}, return_when=asyncio.FIRST_COMPLETED)
    calling.set_exception(FenceLost("the turn is not ours any more"))
    model.heard("hello")  # before the call learns of it
    with pytest.raises(FenceLost):
        await call
    assert shown == []


async def test_who_cancels_a_call_ends_it() -> None:
    model = Saying()
    calling = asyncio.get_running_loop().create_future()
    call = asyncio.ensure_future(call_model(model, ASKED, watching([]), calling))
    async with within(WAIT_S, lambda: "the model said nothing"):
        await model.said.wait()
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call
    assert model.ended_early
