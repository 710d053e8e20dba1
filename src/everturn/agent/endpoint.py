"""The agent of `kind = "http"`: an endpoint that speaks the wire protocol, one POST for each request."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

import httpx2

from everturn.agent.interface import Answer, TurnContext
from everturn.agent.wire import AgentGone, ProtocolViolation, WireAgent, WireSettings
from everturn.clock import Clock
from everturn.errors import Unanswerable
from everturn.http_client import HttpClient

CONNECT_S = 10.0
MOST_CONNECTIONS = 1_000
LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
CONTENT_TYPE = "application/x-ndjson"


class EndpointAgent:
    """Runs turns through an HTTP endpoint. Its address and key never appear in a text for users."""

    def __init__(self, url: str, key: str | None, clock: Clock, settings: WireSettings) -> None:
        headers = {"Content-Type": CONTENT_TYPE, "Accept": CONTENT_TYPE}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self._url = url
        self._settings = settings
        # How long the agent may be silent is counted by the gateway's clock, not here.
        self._client = HttpClient(
            headers=headers,
            timeout=httpx2.Timeout(None, connect=CONNECT_S, pool=None),
            limits=httpx2.Limits(max_connections=MOST_CONNECTIONS, max_keepalive_connections=20),
        )
        self._wire = WireAgent(self._connect, clock, settings)

    async def run(self, turn: TurnContext) -> Answer:
        """Answer one turn."""
        return await self._wire.run(turn)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _connect(self) -> _Endpoint:
        return _Endpoint(self._client, self._url, self._settings.line_bytes)


class _Endpoint:
    """The endpoint for one attempt. It has nothing to drop or leave: each request has its own connection."""

    def __init__(self, client: HttpClient, url: str, line_bytes: int) -> None:
        self._client = client
        self._url = url
        self._line_bytes = line_bytes

    async def ask(self, request: bytes) -> AsyncGenerator[bytes, None]:
        """POST the request and yield the reply line by line."""
        try:
            async with self._client.stream("POST", self._url, content=request) as response:
                _check(response)
                async for line in _lines(response.aiter_bytes(), self._line_bytes):
                    yield line
        except httpx2.ConnectError:
            raise AgentGone("the agent's endpoint cannot be reached") from None
        except httpx2.TransportError as error:
            raise AgentGone(f"the connection to the agent's endpoint was lost ({type(error).__name__})") from None

    def drop(self) -> None:
        """Do nothing: there is no state."""

    def leave(self) -> None:
        """Do nothing: there is no state."""


def _check(response: httpx2.Response) -> None:
    if response.status_code == httpx2.codes.OK:
        return
    why = f"the agent's endpoint answered with status {response.status_code}"
    if response.status_code in LATER:
        delay = response.headers.get("Retry-After", "")
        raise AgentGone(why, float(delay) if delay.isdigit() else None)
    if response.status_code in {401, 403}:
        why += "; check the key in the variable that api_key_env names"
    raise Unanswerable(why, "agent_refused")


async def _lines(chunks: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
        if len(rest) > most:
            raise ProtocolViolation("a line of its reply is too long")
    if rest:
        yield rest
