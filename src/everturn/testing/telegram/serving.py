"""Serves the local Telegram on a port of this machine: the Bot API (https://core.telegram.org/bots/api#making-requests), webhooks
(https://core.telegram.org/bots/api#setwebhook), faults on the wire, and control by other processes.
"""

from __future__ import annotations

import asyncio
import email.parser
import email.policy
from dataclasses import asdict
from email.message import EmailMessage
from functools import partial
from typing import Any, Self
from urllib.parse import parse_qsl

import httpx2
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from everturn.testing.clock import WAIT_S
from everturn.testing.serving import Listening, broken_off
from everturn.testing.telegram import people
from everturn.testing.telegram.methods import MethodParameters, UploadedFile, answer
from everturn.testing.telegram.state import TOKEN, ApiError, Hook, PendingUpdate, either
from everturn.testing.telegram.telegram import BotFault, Telegram

SECRET = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105  the name of the header
RETRY_S = 0.2
UNAUTHORIZED = ApiError(401, "Unauthorized")
NOT_FOUND = ApiError(404, "Not Found")


async def deliver(telegram: Telegram, closing: asyncio.Event, retry_s: float = RETRY_S) -> None:
    """POST every update to the webhook while there is one, as many at once as it allows."""
    posting: dict[int, asyncio.Task[None]] = {}
    async with httpx2.AsyncClient(timeout=WAIT_S, verify=False) as client:
        while not closing.is_set():
            changed, hook = telegram.queue.changed, telegram.state.hook
            for each in _window(telegram, hook) if hook else ():
                if id(each) not in posting:
                    task = asyncio.create_task(_deliver_one(telegram, client, each, retry_s))
                    posting[id(each)] = task
                    task.add_done_callback(partial(_ended, telegram, posting, id(each)))
            await either(changed, closing)
        for task in posting.values():
            task.cancel()
        await asyncio.gather(*posting.values(), return_exceptions=True)


def _ended(telegram: Telegram, posting: dict[int, asyncio.Task[None]], number: int, _: object) -> None:
    posting.pop(number, None)
    telegram.queue.notify()


def _window(telegram: Telegram, hook: Hook) -> list[PendingUpdate]:
    """The updates to post now: `max_connections` of setWebhook at once, between which there is no order."""
    telegram.queue.forget_old()
    found = [*telegram.state.again, *telegram.state.waiting][: hook.max_connections]
    return found[::-1] if telegram.queue.reorder else found


async def _deliver_one(telegram: Telegram, client: httpx2.AsyncClient, waiting: PendingUpdate, retry_s: float) -> None:
    hook = telegram.state.hook
    if hook is not None and await _posted(client, telegram, hook, waiting):
        _taken(telegram, waiting)
    else:
        await asyncio.sleep(retry_s)


def _taken(telegram: Telegram, waiting: PendingUpdate) -> None:
    state = telegram.state
    if any(each is waiting for each in state.again):
        state.again = [each for each in state.again if each is not waiting]
    else:
        state.waiting = [each for each in state.waiting if each is not waiting]
        state.confirmed.append(waiting)
    telegram.changed()


async def _posted(client: httpx2.AsyncClient, telegram: Telegram, hook: Hook, waiting: PendingUpdate) -> bool:
    headers = {SECRET: hook.secret} if hook.secret else {}
    try:
        response = await client.post(telegram.webhook_url(hook.url), json=waiting.update, headers=headers)
    except httpx2.HTTPError as error:
        hook.last_error, hook.last_error_at = type(error).__name__, int(telegram.now())
        return False
    if not response.is_success:
        hook.last_error = f"Wrong response from the webhook: {response.status_code} {response.reason_phrase}"
        hook.last_error_at = int(telegram.now())
    return response.is_success


class Api:
    """The Bot API of one Telegram. https://core.telegram.org/bots/api#making-requests"""

    def __init__(self, telegram: Telegram) -> None:
        self._telegram = telegram

    async def call(self, request: Request) -> Response:
        """GET or POST /bot<token>/METHOD. https://core.telegram.org/bots/api#making-requests"""
        method = request.path_params["method"]
        if problem := self._denied(request.path_params["token"]):
            return refusal(problem)
        given = await parameters(request)
        fault = self._telegram.called(method, {name: _loggable(value) for name, value in given.values.items()})
        if fault is None:
            return await self._answered(method, given)
        done = await self._answered(method, given) if fault.accepted else None
        return await self._misbehave(fault, done, method, given)

    async def file(self, request: Request) -> Response:
        """GET /file/bot<token>/<file_path>. https://core.telegram.org/bots/api#getfile"""
        content = self._telegram.state.files.get(request.path_params["name"])
        problem = self._denied(request.path_params["token"])
        fault = self._telegram.called("file", {"name": request.path_params["name"]})
        if problem or content is None:
            return refusal(problem or NOT_FOUND)
        if fault is not None:
            return await self._misbehave(fault, Response(content), "file", MethodParameters({}))
        return Response(content, media_type="application/octet-stream")

    def _denied(self, token: str) -> ApiError | None:
        """The error for a wrong token: unauthorized if it is revoked or unknown, not found if it is not a token.

        https://core.telegram.org/bots/api#authorizing-your-bot says what a token looks like. Which code is sent stands nowhere (an
        `error_code` may change, says https://core.telegram.org/bots/api#making-requests): python-telegram-bot's source has noted these.
        """
        if token == TOKEN and not self._telegram.state.revoked:
            return None
        return UNAUTHORIZED if ":" in token else NOT_FOUND

    async def _answered(self, method: str, given: MethodParameters) -> Response:
        try:
            result = await answer(self._telegram, method, given)
        except ApiError as error:
            return refusal(error)
        return JSONResponse({"ok": True, "result": result})

    async def _misbehave(
        self, fault: BotFault, done: Response | None, method: str, given: MethodParameters
    ) -> Response:
        match fault.kind:
            case "flood":
                text = f"Too Many Requests: retry after {fault.retry_after}"
                return refusal(ApiError(429, text, retry_after=fault.retry_after))
            case "server":
                return refusal(ApiError(502, "Bad Gateway"))
            case "error":
                return refusal(ApiError(fault.code, fault.description))
            case "slow":
                await asyncio.sleep(fault.seconds)
                return done or await self._answered(method, given)
        return broken_off()


def refusal(error: ApiError) -> Response:
    """An error response: https://core.telegram.org/bots/api#responseparameters tells more of some."""
    body: dict[str, Any] = {"ok": False, "error_code": error.code, "description": error.description}
    if error.parameters:
        body["parameters"] = error.parameters
    return JSONResponse(body, error.code)


async def parameters(request: Request) -> MethodParameters:
    """Read the parameters from the query, a form with or without files, or JSON: all four are allowed, with GET and POST.

    https://core.telegram.org/bots/api#making-requests
    """
    given: dict[str, Any] = dict(request.query_params)
    kind = request.headers.get("content-type", "")
    body = await request.body()
    if kind.startswith("application/json") and body:
        given |= msgspec.json.decode(body)
    elif kind.startswith("application/x-www-form-urlencoded"):
        given |= dict(parse_qsl(body.decode(), keep_blank_values=True))
    elif kind.startswith("multipart/form-data"):
        given |= _parts(kind, body)
    return MethodParameters(given)


def _parts(kind: str, body: bytes) -> dict[str, Any]:
    whole = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(
        f"Content-Type: {kind}\r\n\r\n".encode() + body
    )
    found: dict[str, Any] = {}
    for part in whole.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True) if isinstance(part, EmailMessage) else b""
        raw = content if isinstance(content, bytes) else b""
        file = part.get_filename()
        found[str(name)] = raw.decode() if file is None else UploadedFile(file, raw)
    return found


def _loggable(value: object) -> object:
    return f"{len(value.content)} bytes" if isinstance(value, UploadedFile) else value


class Orders:
    """The control API for other processes: people act, faults are ordered, screens are read."""

    def __init__(self, telegram: Telegram) -> None:
        self._telegram = telegram

    async def act(self, request: Request) -> Response:
        """POST /control/people: {"who": "Ann", "does": "says", "with": {...}}."""
        order = await request.json()
        somebody = people.person(self._telegram, order["who"])
        result = getattr(somebody, order["does"])(**order.get("with", {})) if "does" in order else None
        return JSONResponse({"id": somebody.id, "result": result})

    async def fail(self, request: Request) -> Response:
        """POST /control/faults: a list of faults."""
        self._telegram.faults += [BotFault(**each) for each in await request.json()]
        return JSONResponse({"faults": len(self._telegram.faults)})

    async def clear_faults(self, _: Request) -> Response:
        """DELETE /control/faults: remove those that were not met."""
        self._telegram.faults.clear()
        return JSONResponse({"faults": 0})

    async def screen(self, request: Request) -> Response:
        """GET /control/screens/<chat>: the bot's messages there."""
        return JSONResponse(self._telegram.texts(request.path_params["chat"]))

    async def calls(self, _: Request) -> Response:
        """GET /control/calls: every request of the bot."""
        return JSONResponse([asdict(each) for each in self._telegram.calls])

    def routes(self) -> list[Route]:
        """The routes of the control API."""
        return [
            Route("/control/people", self.act, methods=["POST"]),
            Route("/control/faults", self.fail, methods=["POST"]),
            Route("/control/faults", self.clear_faults, methods=["DELETE"]),
            Route("/control/screens/{chat:int}", self.screen),
            Route("/control/calls", self.calls),
        ]


class TelegramServer:
    """The local Telegram, listening: `async with TelegramServer() as server`. It may be closed and opened again."""

    def __init__(self, telegram: Telegram | None = None, port: int = 0) -> None:
        self.telegram = telegram or Telegram()
        self._listening = Listening(port)
        self._delivering: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._listening.port

    @property
    def url(self) -> str:
        """The URL that a client uses instead of https://api.telegram.org."""
        return self._listening.url

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Listen, on the same port as before."""
        api, orders = Api(self.telegram), Orders(self.telegram)
        routes = [
            *orders.routes(),
            Route("/bot{token}/{method}", api.call, methods=["GET", "POST"]),
            Route("/file/bot{token}/f/{name}", api.file),
        ]
        self._closing = asyncio.Event()
        await self._listening.open(Starlette(routes=routes))
        self._delivering = asyncio.create_task(deliver(self.telegram, self._closing))

    async def close(self) -> None:
        """Stop listening and break all connections, as when a network is gone."""
        self._closing.set()
        await self._listening.close()
        if self._delivering is not None:
            await self._delivering

    async def ended(self) -> None:
        """Wait until it is closed."""
        await self._listening.ended()
