"""Our own client for servers that speak OpenAI's chat completions: one request, its stream joined as it arrives."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from everturn import __version__
from everturn.agent.llm.chat.deltas import DONE, EventLines, JoinedDeltas
from everturn.agent.llm.chat.requests import PROVIDER, ChatOptions, chat_body
from everturn.agent.llm.failures import CallFailed, refused_by, retry_after
from everturn.agent.llm.prices import Prices, TokenCounts
from everturn.agent.llm.replies import Heard, ModelAnswer, ModelInput, judged
from everturn.agent.rules import CallOutcome
from everturn.http_route import route_to
from everturn.http_stream import HttpResponse, HttpStreams, Posting
from everturn.model import Usage

OPENAI = "https://api.openai.com/v1"
MOST_ERROR = 65_536  # of an error's body
MOST_WHOLE = 16 * 1024 * 1024  # of an answer that is not streamed
_PRIVATE = (".local", ".internal", ".lan", ".home.arpa", ".localhost", ".svc")
_OPENAIS = re.compile(r"(?:ft:)?(?:gpt-(?!oss)|o\d|chatgpt-|codex-)")
# What the SDK of OpenAI reads from the environment, and sends to OpenAI.
_ACCOUNT = {"OPENAI_ORG_ID": "OpenAI-Organization", "OPENAI_PROJECT_ID": "OpenAI-Project"}


class ChatModel:
    """A model of a server that speaks OpenAI's API: OpenAI's own, or the one at the base URL of the settings."""

    provider = PROVIDER
    takes_encoded = True

    def __init__(
        self,
        model: str,
        base_url: str | None,
        key: str | None,
        max_tokens: int | None,
        streams: HttpStreams,
        env: Mapping[str, str],
    ) -> None:
        """Raises ValueError, which says what is wrong with the address, the key or the proxy."""
        self.base_url = base_url or env.get("OPENAI_BASE_URL", "").strip() or OPENAI
        self.key = key or env.get("OPENAI_API_KEY", "").strip()
        if not self.key:
            raise ValueError(
                "there is no key for it; set OPENAI_API_KEY, or name another variable in agent.api_key_env"
            )
        self._options = ChatOptions(model, max_tokens, own_server=base_url is not None)
        self._streams = streams
        self._posting = self._prepared(env)
        self._prices = Prices(PROVIDER, self.base_url, known=_may_have_price(self._posting.route.host, model))

    def start(self) -> None:
        """Load the prices in the background."""
        self._prices.start()

    def _prepared(self, env: Mapping[str, str]) -> Posting:
        url = urlsplit(self.base_url)
        query = f"?{url.query}" if url.query else ""
        headers = {
            "Authorization": f"Bearer {self.key}",
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            "User-Agent": f"everturn/{__version__}",
        }
        if not self._options.own_server:
            headers |= {header: env[name] for name, header in _ACCOUNT.items() if env.get(name)}
        return Posting.of(route_to(self.base_url, env), f"{url.path.rstrip('/')}/chat/completions{query}", headers)

    async def plan(self, input_tokens: int, output_tokens: int) -> Usage:
        """What a call with so many tokens would use."""
        return await self._prices.usage(self._options.model, TokenCounts(input_tokens, output_tokens))

    async def ask(self, asked: ModelInput, heard: Heard) -> ModelAnswer:
        """Ask once. Raises CallFailed, or StreamBroken."""
        response = await self._streams.post(self._posting, chat_body(asked, self._options))
        joined = JoinedDeltas()
        try:
            if response.status != 200:
                body = await response.rest(MOST_ERROR)
                raise refused_by(response.status, _decoded(body), retry_after(response.headers, time.time()))
            if b"json" in response.headers.get(b"content-type", b""):
                joined.add(await response.rest(MOST_WHOLE))
            else:
                await _join(response, joined, heard)
            response.finish()
        finally:
            response.close()
        return await self._answer(joined)

    async def close(self) -> None:
        """Close its connections."""
        await self._streams.close()

    async def _answer(self, joined: JoinedDeltas) -> ModelAnswer:
        parts = joined.parts()
        outcome = judged(parts, joined.finish, refused=joined.refused)
        if joined.usage is None:
            used = Usage(1)  # its price would be incomplete
        else:
            used = await self._prices.usage(joined.model or self._options.model, _counts(joined.usage))
        return ModelAnswer(parts, PROVIDER, outcome, used)


async def _join(response: HttpResponse, joined: JoinedDeltas, heard: Heard) -> None:
    """Join a stream to its end. What arrived together is reported once."""
    lines, done = EventLines(), False
    while not done and (data := await response.read()):
        before = joined.events
        try:
            for event in lines.feed(data):
                done = event.startswith(DONE)
                if done:
                    break
                joined.add(event)
        finally:
            if joined.events > before:  # also where an error follows at once: what has begun is paid for
                heard(joined.text)
    if not joined.events:
        raise CallFailed(CallOutcome.UNREADABLE, "the response is no stream of events")


def _decoded(body: bytes) -> object:
    """The body of an error: an object where it is one, else its text."""
    try:
        found: object = msgspec.json.decode(body)
    except msgspec.MsgspecError:
        return body.decode(errors="replace").strip()
    return found if isinstance(found, dict) else body.decode(errors="replace")


def _counts(usage: Mapping[str, Any]) -> TokenCounts:
    """The tokens that a server reports; what it leaves out is none."""
    details = usage.get("prompt_tokens_details")
    cached: Mapping[str, Any] = details if isinstance(details, dict) else {}
    return TokenCounts(
        _count(usage.get("prompt_tokens")),
        _count(usage.get("completion_tokens")),
        _count(cached.get("cached_tokens")),
        _count(cached.get("cache_write_tokens")),
    )


def _count(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and value > 0 else 0


def _may_have_price(host: str, model: str) -> bool:
    """Whether anybody may publish what this model costs: it is served from the internet, or has a name of OpenAI's, which a
    proxy of one's own passes on. The library of prices is large, and a model on this machine has none.
    """
    public = "." in host and ":" not in host and not host.replace(".", "").isdigit() and not host.endswith(_PRIVATE)
    return public or _OPENAIS.match(model) is not None
