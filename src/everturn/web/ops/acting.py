"""The operator's actions over HTTP. A client gives each action an id: a repeat with it gets the same response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everturn.model import Json
from everturn.operator.rows.actions import Acted, Impossible
from everturn.web.access import visitor_of
from everturn.web.wire.answers import BadRequest
from everturn.web.wire.bodies import json_response, small_body
from everturn.web.wire.queries import whole_number

ID_CHARS = 200
Wanted = tuple[str, str, str, str]  # kind of target, action, target, and the action's id


class OperatorActions(Protocol):
    """Carries out actions (operator/actions.py)."""

    async def act(self, what: str, action: str, target: str, action_id: str, actor: str) -> Acted | Impossible:
        """Act once for each id; returns after the commit."""
        ...

    def platforms(self) -> dict[tuple[str, str], Json]:
        """Return the platforms of this process, and their state."""
        ...


class SessionAct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /ops/api/sessions/act`."""

    key: str
    action: Literal["resume", "suspend", "reset", "stop"]
    id: str

    def wanted(self) -> Wanted:
        """As the operator is asked."""
        return "session", self.action, checked_text("key", self.key, 2_000), self.id


class MessageAct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /ops/api/inbox/act`."""

    inbox: str
    action: Literal["run", "drop"]
    id: str

    def wanted(self) -> Wanted:
        """As the operator is asked."""
        return "message", self.action, str(whole_number("inbox", self.inbox)), self.id


class ReplyAct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /ops/api/outbox/act`."""

    reply: str
    action: Literal["send", "drop", "mark_sent"]
    id: str

    def wanted(self) -> Wanted:
        """As the operator is asked."""
        return "reply", self.action, str(whole_number("reply", self.reply)), self.id


AnyAct = SessionAct | MessageAct | ReplyAct
BODIES: dict[str, Callable[[bytes], AnyAct]] = {
    "sessions": msgspec.json.Decoder(SessionAct).decode,
    "inbox": msgspec.json.Decoder(MessageAct).decode,
    "outbox": msgspec.json.Decoder(ReplyAct).decode,
}


class ActionEndpoints:
    """The endpoints of actions; for a key with the scope `ops`, and the owner."""

    def __init__(self, operator: OperatorActions) -> None:
        self._operator = operator

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("/ops/api/{what}/act", self.act, methods=["POST"])]

    async def act(self, request: Request) -> Response:
        """`POST /ops/api/{sessions|inbox|outbox}/act`: 200 and what was done, or 409 and why not."""
        read = BODIES.get(request.path_params["what"])
        if read is None:
            return json_response({"error": "no such endpoint; use sessions, inbox or outbox"}, 404)
        try:
            what, action, target, action_id = read(await small_body(request)).wanted()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(f"the body is not a valid action: {error}") from None
        visitor = visitor_of(request.scope)
        actor = visitor.name if visitor else "owner"
        done = await self._operator.act(what, action, target, checked_text("id", action_id, ID_CHARS), actor)
        if isinstance(done, Impossible):
            return json_response({"error": done.why}, 409)
        return json_response({"done": True, "said": done.said})


def checked_text(name: str, text: str, longest: int) -> str:
    """Return the text if it is short and printable; else raise BadRequest."""
    if not 0 < len(text) <= longest or not text.isprintable():
        raise BadRequest(f"{name} must have 1 to {longest} printable characters")
    return text
