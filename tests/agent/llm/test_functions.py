"""Functions of an API client, with a language model: offered beside the agent's tools, called by the client."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from everturn.agent.llm.agent import LlmAgent
from everturn.agent.llm.settings import LlmSettings
from everturn.testing.model import ModelReply, ModelRequest, ModelServer, ModelToolCall, ScriptedModel
from tests.agent.llm.scenes import KEY, Lines
from tests.web.composition import running
from tests.web.programs import LOOK, client, user_message


@asynccontextmanager
async def talking(where: Path, model: ScriptedModel) -> AsyncIterator[tuple[AsyncOpenAI, Lines]]:
    lines = Lines()
    async with ModelServer(model) as server:
        settings = LlmSettings(model="openai:scripted", base_url=server.base_url, api_key=KEY, instructions="You help.")
        agent = LlmAgent(settings, [lines])
        async with running(where, agent) as web:
            yield client(web), lines
        await agent.close()


def both(asked: ModelRequest) -> ModelReply:
    """Calls a tool of ours and a function of the client together, then the function alone."""
    if "rain" in asked.results:
        return ModelReply("it rains")
    theirs = ModelToolCall("look", "{}")
    return ModelReply("", (theirs,) if asked.results else (ModelToolCall("write", '{"line": "x"}'), theirs))


async def ask(api: AsyncOpenAI, messages: list[Any], **more: Any) -> Any:
    return (await api.chat.completions.create(model="main", messages=messages, tools=[LOOK], **more)).choices[0]


async def test_the_model_calls_a_function_and_reads_its_result(tmp_path: Path) -> None:
    model = ScriptedModel(key=KEY)
    async with talking(tmp_path, model) as (api, _):
        messages: list[Any] = [{"role": "system", "content": "Be brief."}, *user_message('use look {"at": "x"}')]
        asked = await ask(api, messages)
        [call] = asked.message.tool_calls
        assert (asked.finish_reason, json.loads(call.function.arguments)) == ("tool_calls", {"at": "x"})
        result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
        done = await ask(api, [*messages, asked.message.model_dump(exclude_none=True), result])
    assert done.message.content == "the tool said: rain"
    first, second = (seen.asked for seen in model.seen)
    assert first.tools == ["write", "look"]
    assert first.messages[0]["content"].startswith("You help.")
    assert first.messages[0]["content"].endswith("Be brief.")
    assert [each["role"] for each in second.messages] == ["system", "user", "assistant", "tool"]


async def test_the_agents_own_tools_run_first_in_a_session_too(tmp_path: Path) -> None:
    model = ScriptedModel(script=both, key=KEY)
    async with talking(tmp_path, model) as (api, lines):
        asked = await ask(api, user_message("go"), user="ann")
        [call] = asked.message.tool_calls
        assert (call.function.name, lines.written) == ("look", ["x"])
        done = await ask(api, [{"role": "tool", "tool_call_id": call.id, "content": "rain"}], user="ann")
    assert done.message.content == "it rains"
    assert lines.written == ["x"]
    roles = [each["role"] for each in model.seen[-1].asked.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool"]
