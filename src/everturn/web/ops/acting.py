"""What an operator does on the operations page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everturn.clock import Clock
from everturn.model import Json
from everturn.operator.rows.actions import Acted, Impossible
from everturn.operator.rows.reading import PersonAct, PersonActed
from everturn.people.rules.admission import clean_code
from everturn.web.access import visitor_of
from everturn.web.control.people import NotApproved, named
from everturn.web.wire.bodies import json_response, small_body
from everturn.web.wire.requests import BadRequest, whole_number

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


# People and access requests of chat platforms, for the operations page. As for `everturn pair`, only the owner or a
# key with the scope `admin` may use it. Codes go in, never out.


CODE_CHARS = 64


class PeopleOperator(Protocol):
    """Manages people (people/pairing.py)."""

    async def all(self) -> tuple[list[Json], list[Json]]:
        """Return the open access requests, and the approved and revoked people."""
        ...

    def listed(self) -> list[Json]:
        """Return the settings of each platform: who is allowed, and what strangers get as reply."""
        ...

    async def act(self, wanted: PersonAct) -> PersonActed | Impossible:
        """Approve or revoke a person, once for each id; returns after the commit."""
        ...


class PeopleAct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /ops/api/people/act`: approve with a code (of a platform, or of any) or a request's number; allow or
    revoke a person, "platform:user".
    """

    action: Literal["approve", "allow", "revoke"]
    id: str
    code: str | None = None
    request: str | None = None
    platform: str | None = None
    person: str | None = None
    owner: bool = False


_read = msgspec.json.Decoder(PeopleAct).decode


class PeopleEndpoints:
    """The endpoints of people and access requests."""

    def __init__(self, people: PeopleOperator, clock: Clock) -> None:
        self._people = people
        self._clock = clock

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/ops/api/people", self.all, methods=["GET"]),
            Route("/ops/api/people/act", self.act, methods=["POST"]),
        ]

    async def all(self, _: Request) -> Response:
        """`GET /ops/api/people`: access requests, approved and revoked people, and settings."""
        requests, people = await self._people.all()
        return json_response(
            {"now": self._clock.now(), "requests": requests, "people": people, "settings": self._people.listed()}
        )

    async def act(self, request: Request) -> Response:
        """`POST /ops/api/people/act`: 200 and what was done, or 409 and why not."""
        visitor = visitor_of(request.scope)
        try:
            wanted = _wanted(_read(await small_body(request)), visitor.name if visitor else "owner", self._clock.now())
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(f"the body is not a valid action: {error}") from None
        except NotApproved as error:
            raise BadRequest(str(error)) from None
        done = await self._people.act(wanted)
        if isinstance(done, Impossible):
            return json_response({"error": done.why}, 409)
        return json_response({"done": True, "said": done.said})


def _wanted(body: PeopleAct, actor: str, at: float) -> PersonAct:
    by = [name for name in ("code", "request", "person") if getattr(body, name) is not None]
    if len(by) != 1 or (by == ["person"]) is (body.action == "approve"):
        raise BadRequest("approve needs a code or a request; allow and revoke need a person")
    return PersonAct(
        id=checked_text("id", body.id, ID_CHARS),
        action=body.action,
        actor=actor,
        at=at,
        notice=0,
        code=None if body.code is None else clean_code(body.code[:CODE_CHARS]),
        request=None if body.request is None else whole_number("request", body.request),
        platform=None if body.platform is None else checked_text("platform", body.platform, CODE_CHARS),
        person=None if body.person is None else named(body.person),
        owner=body.owner,
    )
