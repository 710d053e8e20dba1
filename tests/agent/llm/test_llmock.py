"""The same against an independent server: `llmock` and its faults."""

from typing import Any

import pytest

from everturn.agent.llm.agent import LlmAgent
from everturn.agent.llm.settings import LlmSettings
from everturn.testing import FakePlatform, World
from tests.agent.llm.scenes import STALL_S, Impatient
from tests.scenes import told

TEXT = "The first part of it is here, and this is the end of it."


def agent_of(llmock: Any, model: str = "openai:gpt-4o", **settings: Any) -> LlmAgent:
    chosen = LlmSettings(
        model=model,
        base_url=llmock.base_url(model.partition(":")[0]),
        api_key="sk-llmock-0123456789",
        stall_s=STALL_S,
        **settings,
    )
    return LlmAgent(chosen, clock=Impatient(), chance=lambda: 0.0)


async def shown(url: str, agent: LlmAgent, part: str) -> str:
    """Ask once; what the user sees."""
    platform = FakePlatform()
    async with World(url, agent, [platform]):
        platform.say("one", "tell me")
        found = await told(platform, "one", part)
    await agent.close()
    return found


async def test_a_truncated_stream_is_not_an_answer(store_url: str, llmock: Any) -> None:
    """The libraries report it as a normal stop; here it is asked again."""
    llmock.truncate(after_chunks=2).reply(TEXT, times=None)
    assert await shown(store_url, agent_of(llmock), "end of it") == TEXT


async def test_a_stream_that_is_always_truncated_is_shown_as_far_as_it_goes(store_url: str, llmock: Any) -> None:
    llmock.truncate(after_chunks=2, times=None).reply(TEXT, times=None)
    found = await shown(store_url, agent_of(llmock, retries=1), "")
    assert TEXT not in found


async def test_limits_outages_and_broken_streams_pass(store_url: str, llmock: Any) -> None:
    llmock.rate_limit(retry_after=2).fail(503).disconnect(after_chunks=1).corrupt(after_chunks=1).reply(
        TEXT, times=None
    )
    assert await shown(store_url, agent_of(llmock), "end of it") == TEXT


@pytest.mark.prove  # another large library is loaded
async def test_anthropic_answers_and_its_truncated_streams_are_seen_too(store_url: str, llmock: Any) -> None:
    llmock.truncate(after_chunks=3).reply(TEXT, times=None)
    assert await shown(store_url, agent_of(llmock, "anthropic:claude-opus-4-8"), "end of it") == TEXT
