"""Where platforms bring what was said: `POST /hooks/PLATFORM/ACCOUNT`. A 2xx is answered after the commit, never before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everturn.errors import PlatformError, StoreUnavailable
from everturn.model import Inbound
from everturn.platform.interface import CanBeBrought
from everturn.web.bodies import RETRY, json_response, raw_body

MOST_BODY = 1 << 20


class Hooks:
    """The door for platforms. Who does not show the secret learns nothing, not even which platforms there are."""

    def __init__(self, platforms: Iterable[object], take: Callable[[Inbound], Awaitable[None]]) -> None:
        self._platforms = {(each.name, each.account): each for each in platforms if isinstance(each, CanBeBrought)}
        self._take = take

    async def heard(self, request: Request) -> Response:
        """POST /hooks/PLATFORM/ACCOUNT."""
        platform = self._platforms.get((request.path_params["platform"], request.path_params["account"]))
        if platform is None or not platform.admits(dict(request.headers.raw)):
            raise HTTPException(404)
        body = await raw_body(request, MOST_BODY)
        try:
            heard = await platform.hear(body)
        except PlatformError as error:
            return json_response({"error": str(error)}, 503, RETRY)
        for inbound in heard:
            try:
                await self._take(inbound)
            except StoreUnavailable as error:  # it is brought again: nobody waits here in the meantime
                return json_response({"error": str(error)}, 503, RETRY)
            await platform.took(inbound)
        return json_response({})

    def routes(self) -> list[Route]:
        """Where it is."""
        return [Route("/hooks/{platform}/{account}", self.heard, methods=["POST"])]
