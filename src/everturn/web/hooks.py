"""Where platforms bring what was said: `POST /hooks/PLATFORM/ACCOUNT`. A 2xx is answered after the commit, never before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol, runtime_checkable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everturn.errors import PlatformError
from everturn.model import Inbound
from everturn.web.bodies import RETRY, json_response, small_body

MOST_BODY = 1 << 20


@runtime_checkable
class Hooked(Protocol):
    """A platform that may come to us."""

    name: str
    account: str

    def admits(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request with these headers comes from it, found out in constant time."""
        ...

    async def hear(self, body: bytes) -> Inbound | None:
        """What was said, if anything was said to us."""
        ...

    async def took(self, inbound: Inbound) -> None:
        """It is committed."""
        ...


class Hooks:
    """The door for platforms. Who does not show the secret learns nothing, not even which platforms there are."""

    def __init__(self, platforms: Iterable[object], take: Callable[[Inbound], Awaitable[None]]) -> None:
        self._platforms = {(each.name, each.account): each for each in platforms if isinstance(each, Hooked)}
        self._take = take

    async def heard(self, request: Request) -> Response:
        """POST /hooks/PLATFORM/ACCOUNT."""
        platform = self._platforms.get((request.path_params["platform"], request.path_params["account"]))
        if platform is None or not platform.admits(dict(request.headers.raw)):
            raise HTTPException(404)
        body = await small_body(request, MOST_BODY)
        try:
            inbound = await platform.hear(body)
        except PlatformError as error:
            return json_response({"error": str(error)}, 503, RETRY)
        if inbound is not None:
            await self._take(inbound)
            await platform.took(inbound)
        return json_response({})

    def routes(self) -> list[Route]:
        """Where it is."""
        return [Route("/hooks/{platform}/{account}", self.heard, methods=["POST"])]
