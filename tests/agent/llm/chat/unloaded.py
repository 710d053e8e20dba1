"""A call of a model as the gateway makes it, in a process that loads nothing else."""

import asyncio

from everturn.agent.llm.calls import CallWatch, call_model
from everturn.agent.llm.providers import AgentModels
from everturn.agent.llm.rendering import UserSaid
from everturn.agent.llm.replies import ModelInput
from everturn.agent.llm.settings import LlmSettings
from everturn.clock import SystemClock


async def ask_once(base_url: str) -> None:
    """Plan a call and make it."""
    models = AgentModels(LlmSettings(model="openai:scripted", base_url=base_url))
    watch = CallWatch(SystemClock(), 60.0, lambda _: None, lambda: None)
    async with models.using("openai:scripted", "s") as model:
        model.start()
        await model.plan(10, 10)
        calling = asyncio.get_running_loop().create_future()
        calling.set_result(None)
        answer = await call_model(model, ModelInput([UserSaid("hi")], (), "s"), watch, calling)
    assert answer.text
    await models.close()
