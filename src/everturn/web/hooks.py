"""The webhook endpoint for platforms: `POST /hooks/PLATFORM/ACCOUNT`. It answers 2xx after the commit, never before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everturn.errors import PlatformError, StoreUnavailable
from everturn.model import Inbound
from everturn.platform.interface import TakesWebhooks
from everturn.web.wire.bodies import RETRY, json_response, raw_body

MOST_BODY = 1 << 20


class Hooks:
    """The webhook endpoint. A request without the secret gets 404, whether or not the platform exists."""

    def __init__(self, platforms: Iterable[object], take: Callable[[Inbound], Awaitable[None]]) -> None:
        self._platforms = {(each.name, each.account): each for each in platforms if isinstance(each, TakesWebhooks)}
        self._take = take

    async def post(self, request: Request) -> Response:
        """POST /hooks/PLATFORM/ACCOUNT."""
        platform = self._platforms.get((request.path_params["platform"], request.path_params["account"]))
        if platform is None or not platform.admits(dict(request.headers.raw)):
            raise HTTPException(404)
        body = await raw_body(request, MOST_BODY)
        try:
            heard = await platform.read_webhook(body)
        except PlatformError as error:
            return json_response({"error": str(error)}, 503, RETRY)
        for inbound in heard:
            try:
                await self._take(inbound)
            except StoreUnavailable as error:  # the platform delivers it again
                return json_response({"error": str(error)}, 503, RETRY)
            await platform.acknowledge(inbound)
        return json_response({})

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("/hooks/{platform}/{account}", self.post, methods=["POST"])]
