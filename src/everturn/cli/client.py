"""Asking the running gateway over its HTTP side, one request at a time."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from everturn.errors import EverturnError
from everturn.home import Holder, Home, reachable

PATIENCE_S = 10.0


class Unreachable(EverturnError):
    """The gateway does not answer, or says that it cannot now."""


def base_url(who: Holder) -> str:
    """Where a gateway is reached from this machine, also when it listens on every address."""
    return reachable(who.url)


def ask(home: Home, who: Holder, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """One request to the gateway's control side; raises Unreachable, or EverturnError with what the gateway said."""
    status, answer = _request(who, method, path, {"Authorization": f"Bearer {home.api_token()}"}, body)
    if status == http.HTTPStatus.UNAUTHORIZED:
        raise EverturnError(f"the gateway at {who.url} does not accept the token in {home.token_file}")
    if status >= http.HTTPStatus.BAD_REQUEST:
        kind = Unreachable if status == http.HTTPStatus.SERVICE_UNAVAILABLE else EverturnError
        raise kind(f"the gateway at {who.url} answered {status}: {error_text(answer)}")
    return answer


def answers(who: Holder, path: str = "/health") -> bool:
    """Whether the gateway says yes to this question."""
    try:
        return _request(who, "GET", path, {}, None)[0] == http.HTTPStatus.OK
    except Unreachable:
        return False


def error_text(answer: object) -> str:
    """What an error answer says, in words."""
    if isinstance(answer, dict):
        return str(answer.get("error") or answer.get("detail") or answer)
    return str(answer)


def _request(
    who: Holder, method: str, path: str, headers: dict[str, str], body: dict[str, Any] | None
) -> tuple[int, dict[str, Any]]:
    parts = urlsplit(base_url(who))
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {**headers, "Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, _decoded(response.read())
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"the gateway ({who}) does not answer: {error}") from error
    finally:
        connection.close()


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(data)
    except ValueError:
        return {"error": data.decode(errors="replace")[:200]}
    return answer if isinstance(answer, dict) else {"answer": answer}
