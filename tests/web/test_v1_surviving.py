"""`/v1` when requests take long or fail: repeats with an Idempotency-Key, streams, lost clients, stopping gateways."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from everturn.inbox.rows.inbox import Accepted
from everturn.model import Inbound
from tests.web.composition import Soon, Web, running
from tests.web.programs import Obliging, client, key, user_message

KEYED: dict[str, Any] = {"extra_headers": {"Idempotency-Key": "k1"}}
WAIT: dict[str, Any] = {"model": "main", "messages": user_message("wait"), **KEYED}


@pytest.fixture
def agent() -> Obliging:
    return Obliging()


@pytest.fixture
async def web(tmp_path: Path, agent: Obliging) -> AsyncIterator[Web]:
    async with running(tmp_path, agent, heartbeat_s=0.2) as started:
        yield started


async def whole(api: AsyncOpenAI, **more: Any) -> str:
    return await all_of(await api.chat.completions.create(**{**WAIT, "stream": True, **more}))


async def all_of(stream: Any) -> str:
    return "".join([each.choices[0].delta.content or "" async for each in stream])


async def once(api: AsyncOpenAI, **more: Any) -> tuple[str, str | None]:
    done = await api.chat.completions.create(**{**WAIT, **more})
    return done.id, done.choices[0].message.content


async def test_text_is_streamed_as_it_is_made(web: Web, agent: Obliging) -> None:
    stream = await client(web).chat.completions.create(**{**WAIT, "stream": True})
    heard = ""
    async for chunk in stream:
        heard += chunk.choices[0].delta.content or ""
        if heard == "one two ":
            agent.go.set()
    assert heard == "one two three"


async def test_a_repeat_joins_the_turn_that_runs_and_gets_all_of_it(web: Web, agent: Obliging) -> None:
    api = client(web)
    first = asyncio.create_task(once(api))
    await agent.began.wait()
    others = [asyncio.create_task(whole(api)), asyncio.create_task(whole(client(web)))]
    again = asyncio.create_task(once(api))
    agent.go.set()
    assert await asyncio.gather(*others) == ["one two three"] * 2
    assert await first == await again == await once(api)
    assert await whole(api) == "one two three"
    assert agent.turns == 1


async def test_the_same_key_with_another_request_is_a_conflict(web: Web) -> None:
    await once(client(web), messages=user_message("hello"))
    for other in (
        {"messages": user_message("bye")},
        {"messages": user_message("hello"), "user": "ann"},
        {"messages": user_message("hello"), "model": "other"},
    ):
        with pytest.raises(openai.ConflictError) as error:
            await once(client(web, retries=5), **other)
        assert error.value.code == "idempotency_key_reused"


async def test_without_a_key_each_call_is_its_own(web: Web, agent: Obliging) -> None:
    api = client(web)
    both = [await once(api, messages=user_message("hello"), extra_headers={}) for _ in range(2)]
    assert both[0][0] != both[1][0]
    assert agent.turns == 2


async def test_a_client_that_goes_does_not_stop_the_turn(web: Web, agent: Obliging) -> None:
    leaving = asyncio.create_task(once(client(web)))
    await agent.began.wait()
    leaving.cancel()
    await asyncio.wait({leaving})
    agent.go.set()
    assert (await once(client(web)))[1] == "one two three"
    assert agent.turns == 1


async def test_a_waiting_stream_gets_heartbeats(web: Web, agent: Obliging) -> None:
    async with web.client.stream(
        "POST", "/v1/chat/completions", json={"model": "main", "messages": user_message("wait"), "stream": True}
    ) as answer:
        lines = answer.aiter_lines()
        while await anext(lines) != ": still here":
            pass
        agent.go.set()
        assert [line async for line in lines if line][-1] == "data: [DONE]"


async def test_requests_of_one_session_are_answered_one_by_one(web: Web, agent: Obliging) -> None:
    first = asyncio.create_task(once(client(web), user="ann"))
    await agent.began.wait()
    second = asyncio.create_task(once(client(web), user="ann", messages=user_message("hello"), extra_headers={}))
    agent.go.set()
    assert [(await first)[1], (await second)[1]] == ["one two three", "echo: hello"]


async def test_an_approval_request_is_an_error_also_for_a_repeat(web: Web) -> None:
    for asked in (user_message("ask"), user_message("ask")):
        with pytest.raises(openai.ConflictError) as error:
            await once(client(web), messages=asked, user="ann")
        assert (error.value.code, "run make?" in str(error.value)) == ("approval_required", True)
    with pytest.raises(openai.ConflictError):
        await once(client(web), messages=user_message("next"), user="ann", extra_headers={})


async def test_a_stream_says_why_it_ends(web: Web, agent: Obliging) -> None:
    api = client(web)
    chat: Any = await api.chat.completions.create(**{**WAIT, "messages": user_message("break"), "stream": True})
    responses = await api.responses.create(model="main", input="break", stream=True)
    agent.go.set()
    with pytest.raises(openai.APIError) as error:
        [each async for each in chat]
    assert error.value.code == "turn_failed"
    events = [each async for each in responses]
    assert events[-1].type == "response.failed"
    assert "no model today" in str(events[-1])


async def test_a_revoked_key_gets_no_answer(web: Web, agent: Obliging) -> None:
    api = client(web, await key(web, "bot"))
    waiting = asyncio.create_task(once(api))
    await agent.began.wait()
    await web.client.delete("/control/keys/bot")
    with pytest.raises(openai.AuthenticationError):
        await waiting
    agent.go.set()


async def test_a_stopping_gateway_ends_the_response_and_the_next_process_answers(
    tmp_path: Path, agent: Obliging
) -> None:
    async with running(tmp_path, agent) as web:
        waiting = asyncio.create_task(once(client(web)))
        await agent.began.wait()
        streaming: Any = await client(web).chat.completions.create(**{**WAIT, "stream": True})
        await web.serving.close()
        for ended, error in ((waiting, openai.APIStatusError), (all_of(streaming), openai.APIError)):
            with pytest.raises(error) as raised:
                await ended
            assert getattr(raised.value, "code", None) == "restarting"
        await web.world.abandon()
    agent.go.set()
    async with running(tmp_path, agent) as web:
        assert (await once(client(web)))[1] == "one two three"
        assert await whole(client(web)) == "one two three"


async def test_a_request_that_is_committed_during_shutdown_gets_503(tmp_path: Path) -> None:
    came, go = Soon(), asyncio.Event()
    ending: Web

    async def accept(inbound: Inbound) -> Accepted:
        came.set()
        await go.wait()
        return await ending.world.gateway.intake.accept(inbound)

    async with running(tmp_path, Obliging(), accept=accept) as ending:
        waiting = asyncio.create_task(once(client(ending), messages=user_message("hello")))
        await came.wait()
        ending.serving.app.close()
        go.set()
        with pytest.raises(openai.APIStatusError) as raised:
            await waiting
    assert raised.value.code == "restarting"
