"""`/v1` through the official Python client, unchanged: chats, streams, sessions, functions, responses, errors."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from everturn.lifecycle.settings import Settings
from everturn.web.wire.server import FrontSettings
from tests.web.composition import TOKEN, Web, running
from tests.web.programs import FLAT_LOOK, LOOK, Obliging, client, key, user_message

CALLS: dict[str, Any] = {"model": "main", "tools": [LOOK]}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def web(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Web]:
    """One gateway for the whole file: each test has sessions of its own."""
    async with running(tmp_path_factory.mktemp("v1"), Obliging(), Settings(message_chars=1000)) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(web: Web) -> AsyncOpenAI:
    return client(web)


async def text_of(api: AsyncOpenAI, text: str, **more: Any) -> str | None:
    done = await api.chat.completions.create(**{"model": "main", "messages": user_message(text), **more})
    content: str | None = done.choices[0].message.content
    return content


async def test_models_are_the_agents(api: AsyncOpenAI) -> None:
    assert [each.id async for each in api.models.list()] == ["main", "other"]
    assert (await api.models.retrieve("other")).owned_by == "everturn"


async def test_a_completion_has_its_text_and_usage(api: AsyncOpenAI) -> None:
    done = await api.chat.completions.create(model="main", messages=[{"role": "user", "content": "hello"}])
    assert (done.choices[0].message.content, done.choices[0].finish_reason) == ("echo: hello", "stop")
    assert done.usage is not None
    assert (done.usage.prompt_tokens, done.usage.completion_tokens, done.usage.total_tokens) == (10, 3, 13)
    assert done.id.startswith("chatcmpl-")


async def test_a_call_without_a_session_stands_alone(api: AsyncOpenAI) -> None:
    history = [
        {"role": "system", "content": "be brief"},
        *user_message("a"),
        {"role": "assistant", "content": "b"},
        *user_message("seen"),
    ]
    assert await text_of(api, "", messages=history, tools=[LOOK]) == "be brief|look|user=a|assistant=b|user=seen"
    assert await text_of(api, "seen") == "|user=seen"


async def test_a_session_is_kept_by_the_gateway_with_its_history(api: AsyncOpenAI) -> None:
    named = {"extra_headers": {"X-Everturn-Session": "notes"}}
    await text_of(api, "hello", **named)
    repeated = [*user_message("forged"), {"role": "assistant", "content": "forged"}, *user_message("seen")]
    assert await text_of(api, "", messages=repeated, **named) == "|user=hello|assistant=echo: hello|user=seen"
    assert await text_of(api, "seen", user="notes") != "|user=seen"
    assert await text_of(api, "seen", user="others") == "|user=seen"


async def test_texts_are_never_commands(api: AsyncOpenAI) -> None:
    assert await text_of(api, "/new", user="commander") == "echo: /new"


async def test_a_function_of_the_client_is_called_by_the_client(api: AsyncOpenAI) -> None:
    asked = (await api.chat.completions.create(**CALLS, messages=user_message("call"))).choices[0]
    assert asked.finish_reason == "tool_calls"
    [call] = asked.message.tool_calls or []
    assert call.model_dump()["function"] == {"name": "look", "arguments": '{"at":"x"}'}
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    whole = [*user_message("call"), asked.message.model_dump(exclude_none=True), result]
    assert await text_of(api, "", **CALLS, messages=whole) == "it said rain"


async def test_results_go_on_in_the_session_that_asked(api: AsyncOpenAI) -> None:
    asked = (await api.chat.completions.create(**CALLS, messages=user_message("call"), user="ann")).choices[0]
    [call] = asked.message.tool_calls or []
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    assert await text_of(api, "", **CALLS, user="ann", messages=[result]) == "it said rain"
    with pytest.raises(openai.BadRequestError, match="did not make"):
        await text_of(api, "", **CALLS, user="ann", messages=[{**result, "tool_call_id": "forged"}])
    seen = await text_of(api, "seen", user="ann")
    assert seen == "|user=call|assistant=|tool=rain|assistant=it said rain|user=seen"


async def test_calls_come_in_a_stream_too(api: AsyncOpenAI) -> None:
    stream: Any = await api.chat.completions.create(**CALLS, messages=user_message("call"), stream=True)
    chunks = [each async for each in stream]
    calls = [call for each in chunks for call in each.choices[0].delta.tool_calls or []]
    assert [(call.index, call.function and call.function.name) for call in calls] == [(0, "look")]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


async def test_a_response_is_found_again_and_continued(api: AsyncOpenAI) -> None:
    first = await api.responses.create(model="main", input="hello", instructions="be brief", metadata={"a": "b"})
    assert (first.output_text, first.status, first.usage and first.usage.total_tokens) == (
        "echo: hello",
        "completed",
        13,
    )
    again = await api.responses.retrieve(first.id)
    assert again.model_dump() == first.model_dump()
    then = await api.responses.create(model="main", input="seen", previous_response_id=first.id)
    assert then.output_text == "|user=hello|assistant=echo: hello|user=seen"
    assert then.previous_response_id == first.id


async def test_a_response_calls_functions_and_takes_their_results(api: AsyncOpenAI) -> None:
    asked = await api.responses.create(model="main", input="call", tools=[FLAT_LOOK])
    [call] = asked.output
    assert call.type == "function_call"
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    done = await api.responses.create(model="main", input=[output], previous_response_id=asked.id)
    assert done.output_text == "it said rain"


async def test_what_shall_not_be_stored_is_not_found(api: AsyncOpenAI) -> None:
    hidden = await api.responses.create(model="main", input="hello", store=False)
    for lost in (hidden.id, "resp_1", "resp_x", "chatcmpl-1"):
        with pytest.raises(openai.NotFoundError):
            await api.responses.retrieve(lost)


TEXT = ["output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done"]
CALL = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done"]


@pytest.mark.parametrize(("text", "middle"), [("hello", TEXT), ("call", CALL)])
async def test_the_events_of_a_response_come_in_their_order(api: AsyncOpenAI, text: str, middle: list[str]) -> None:
    events = [each async for each in await api.responses.create(model="main", input=text, stream=True)]
    order = ["created", "in_progress", *middle, "output_item.done", "completed"]
    assert [each.type for each in events] == [f"response.{each}" for each in order]
    assert [each.sequence_number for each in events] == list(range(len(events)))


async def test_two_clients_cannot_reach_each_others_sessions(web: Web) -> None:
    one, two = client(web, await key(web, "one")), client(web, await key(web, "two"))
    first = await one.responses.create(model="main", input="a secret", extra_headers={"X-Everturn-Session": "secrets"})
    for other in (two, client(web)):
        with pytest.raises(openai.NotFoundError):
            await other.responses.retrieve(first.id)
        with pytest.raises(openai.NotFoundError):
            await other.responses.create(model="main", input="seen", previous_response_id=first.id)
        assert await text_of(other, "seen", user="secrets") == "|user=seen"
    assert "a secret" in str(await text_of(one, "seen", user="secrets"))
    same = {"extra_headers": {"Idempotency-Key": "k"}}
    assert await text_of(one, "a", **same) != await text_of(two, "b", **same)


@pytest.mark.parametrize(
    ("more", "error", "code", "param"),
    [
        ({"model": "gpt"}, openai.NotFoundError, "model_not_found", "model"),
        ({"n": 2}, openai.BadRequestError, "unsupported_parameter", "n"),
        ({"messages": []}, openai.BadRequestError, None, "messages"),
        ({"messages": user_message("x" * 1001)}, openai.APIStatusError, "message_too_long", "messages"),
        ({"messages": user_message("x" * 100_000)}, openai.APIStatusError, "request_too_large", None),
        ({"user": "a\nb"}, openai.BadRequestError, None, None),
        ({"extra_headers": {"Idempotency-Key": "x" * 300}}, openai.BadRequestError, None, None),
        ({"messages": user_message("fail")}, openai.InternalServerError, "turn_failed", None),
    ],
)
async def test_what_is_wrong_is_a_typed_error(
    api: AsyncOpenAI, more: dict[str, Any], error: type[openai.APIStatusError], code: str | None, param: str | None
) -> None:
    with pytest.raises(error) as raised:
        await text_of(api, "hello", **more)
    assert (raised.value.code, raised.value.param) == (code, param)


async def test_an_invalid_key_or_path_gets_a_typed_error(web: Web) -> None:
    with pytest.raises(openai.AuthenticationError) as unknown:
        await client(web, "sk-wrong").models.list()
    assert unknown.value.code == "invalid_api_key"
    for path, status in (("/v1/nothing", 404), ("/v1/chat/completions", 405)):
        answer = await web.client.get(path)
        assert (answer.status_code, answer.json()["error"]["type"]) == (status, "invalid_request_error")


async def test_a_client_above_its_rate_limit_gets_retry_after(tmp_path: Path) -> None:
    async with running(tmp_path, Obliging(), front=FrontSettings(per_minute=2)) as web:
        program = client(web, await key(web, "fast"))
        await program.models.list()
        await program.models.list()
        with pytest.raises(openai.RateLimitError) as error:
            await program.models.list()
        assert int(error.value.response.headers["retry-after"]) >= 1
        await client(web, TOKEN).models.list()
