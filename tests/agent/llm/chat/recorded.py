"""Streams as servers send them, and both clients that read them: ours, and pydantic-ai with OpenAI's SDK.

`llama_cpp_*` were recorded from the local model's server; the others are written as each server's documentation describes its stream.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider

from everturn.agent.llm.chat.client import ChatModel
from everturn.agent.llm.failures import failure_of
from everturn.agent.llm.library import LibraryModel
from everturn.agent.llm.rendering import UserSaid
from everturn.agent.llm.replies import ModelAnswer, ModelClient, ModelInput
from everturn.agent.rules import CallOutcome
from everturn.http_stream import HttpStreams
from tests.raw_server import CHUNKED, END, RawServer, always, chunk
from tests.waiting import WAIT_S, within

FOLDER = Path(__file__).parent / "recordings"
STREAMS = {file.stem: file.read_bytes() for file in sorted(FOLDER.glob("*.sse"))}
HELLO = ModelInput([UserSaid("hello")], (), "s1")


def ours(server: RawServer, model: str = "gpt-4o", **how: Any) -> ChatModel:
    """Our client of this server, as of a server of one's own."""
    return ChatModel(model, f"{server.url}/v1", "sk-test-0123456789", how.get("max_tokens"), HttpStreams(), {})


def theirs(server: RawServer, model: str = "gpt-4o", *, own_server: bool = True, **settings: Any) -> LibraryModel:
    """What asked such a server before."""
    client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="sk-test-0123456789", max_retries=0)
    plain = OpenAIModelProfile(
        openai_supports_strict_tool_definition=False, openai_chat_supports_max_completion_tokens=False
    )
    made = OpenAIChatModel(model, provider=OpenAIProvider(openai_client=client), profile=plain if own_server else None)
    return LibraryModel(made, {"max_retries": 0, **settings})  # type: ignore[typeddict-item]


@asynccontextmanager
async def streaming(stream: bytes) -> AsyncIterator[RawServer]:
    """A server that answers every request with this stream."""
    async with RawServer(always(CHUNKED + (chunk(stream) if stream else b"") + END)) as server:
        yield server


async def asked(model: ModelClient) -> tuple[ModelAnswer | None, CallOutcome, list[str]]:
    """Ask once: the answer, the outcome, and the text as it grew."""
    seen: list[str] = []
    try:
        async with within(WAIT_S, lambda: seen):
            answer = await model.ask(HELLO, lambda text: seen.append(text()))
    except Exception as error:  # noqa: BLE001  which one it is, is what is asked
        return None, failure_of(error, ()).kind, seen
    finally:
        await model.close()
    return answer, answer.outcome, seen
