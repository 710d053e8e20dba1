"""`GET /openapi.json`: the OpenAPI document of this gateway, from its routes and what is written here about each endpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response as HttpResponse
from starlette.routing import BaseRoute, Route

from everturn.people.rules.rights import GRANTABLE, OPEN_PAGES, is_page
from everturn.platform.posted import CHAT_CHARS, ID_CHARS, Post
from everturn.web import openapi_shapes as shapes
from everturn.web.control import MOST_SESSIONS, StopRequest
from everturn.web.conversations import MOST_LISTED, MOST_MESSAGES, TranscriptPage
from everturn.web.keys import NAME_CHARS, Code, NewKey
from everturn.web.messages import Receipt
from everturn.web.openapi_document import (
    STREAM,
    Body,
    Error,
    Operation,
    Parameter,
    ResponseDoc,
    Schema,
    Served,
    document,
    plain,
)
from everturn.web.ops import ID_CHARS as ACTION_ID_CHARS
from everturn.web.ops import MOST_LISTED as MOST_ON_A_PAGE
from everturn.web.ops import QUERY_CHARS, SESSION_STATES, MessageAct, PeopleAct, ReplyAct, SessionAct
from everturn.web.people import AliasRequest, AllowRequest, ApproveRequest, RevokeRequest, UnaliasRequest
from everturn.web.wire.requests import LARGEST, NO_STORE, encode

NO_CONTROLS = "^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]+$"
NOT_BLANK = "^[^\u0000]*[^\\s\u0000][^\u0000]*$"
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": CHAT_CHARS, "pattern": NO_CONTROLS}
CHAT = Parameter("chat", "The chat's name; it is created by its first message.", NAME, "path")
AFTER = Parameter("after", "Only what comes after this id.", {"type": "integer", "minimum": 0, "maximum": LARGEST})
LAST = Parameter(
    "Last-Event-ID", "Continue after this event.", {"type": "integer", "minimum": 0, "maximum": LARGEST}, "header"
)
ADDED = Parameter("added", "1: deltas have only what was added to the text.", {"type": "string", "enum": ["0", "1"]})
BYTES: Schema = {"type": "string", "format": "binary"}
TEXT: Schema = {"type": "string"}
_ENTER = Operation(
    summary="Exchange the code of a login link for a cookie, once.", tag="access", body=Body(Code), everybody=True,
    answers={204: ResponseDoc("This browser is logged in."), 403: ResponseDoc("The code is wrong, used or expired.", Error)},
)  # fmt: skip
_MESSAGE_ID = Parameter("id", "The id that its sender gave.", {**TEXT, "minLength": 1}, "path")
_ASCII = "^[!-~]([ -~]*[!-~])?$"  # other letters are accepted, too: no pattern can say "printable"
_KEY_NAME = {"minLength": 1, "maxLength": NAME_CHARS, "pattern": _ASCII}
_PERSON = {"pattern": "^[a-z][a-z0-9_]*:[!-~]+$"}
_ALIAS = {"pattern": "^[A-Za-z0-9]{1,64}$"}  # and more
_ADDRESS = {"pattern": "^[a-z]{1,20}:[A-Za-z0-9-]{1,100}$"}  # and more
_SCOPES = {"minItems": 1, "items": {"type": "string", "enum": list(GRANTABLE)}}
_METRICS = {200: ResponseDoc("Prometheus' text format; OpenMetrics on request.", media="text/plain", schema=TEXT)}
OPS_TAG = "operations"
NO_NUL: Schema = {"type": "string", "pattern": "^[^\u0000]*$"}
LIMIT = Parameter("limit", "Maximum number of items.", {"type": "integer", "minimum": 0, "maximum": MOST_ON_A_PAGE})
NEXT_PAGE = Parameter(
    "after", "The `next` of the previous page.", {"type": "integer", "minimum": 0, "maximum": LARGEST}
)
PRINTABLE: Schema = {"minLength": 1, "pattern": "^[ -~]+$"}  # other printable letters are accepted, too
KEY: Schema = {**PRINTABLE, "maxLength": 2_000}
NUMBER: Schema = {"pattern": "^[0-9]{1,18}$"}
# A place in the list of sessions: a time and a number.
AFTER_SESSION = Parameter(
    "after", "The `next` of the previous page.", {**TEXT, "pattern": r"^[0-9]{1,10}\.[0-9]{1,6}:[0-9]{1,18}$"}
)
# Routes that match several paths.
SEVERAL: Mapping[str, tuple[str, ...]] = {
    "/ops/api/{what}/act": tuple(f"/ops/api/{what}/act" for what in ("sessions", "inbox", "outbox"))
}
V1_TAG = "openai"
HEADER: Schema = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"}
SESSION = Parameter("X-Everturn-Session", "The gateway keeps the conversation under this name.", HEADER, "header")
REPEAT = Parameter("Idempotency-Key", "A repeated request with the same key gets the same answer.", HEADER, "header")
_NAME = Parameter("model", "The agent.", {"type": "string", "minLength": 1}, "path")
_ID = Parameter("response_id", "The response.", {"type": "string", "minLength": 1}, "path")
PATH = "/openapi.json"


def limit(most: int) -> Parameter:
    """The parameter `limit`."""
    return Parameter("limit", f"Number of items, up to {most}.", {"type": "integer", "minimum": 0, "maximum": most})


def message(message_chars: int) -> Body:
    """The body of a message to a chat."""
    text = {"minLength": 1, "maxLength": message_chars, "pattern": NOT_BLANK}
    return Body(Post, {"id": {"minLength": 1, "maxLength": ID_CHARS, "pattern": NO_CONTROLS}, "text": text})


def _posting(tag: str, message_chars: int) -> Operation:
    return Operation(
        summary="Send a message. The response comes after its commit: from then on a crash does not lose it.",
        tag=tag,
        parameters=(CHAT,),
        body=message(message_chars),
        answers={
            202: ResponseDoc("Accepted.", Receipt),
            200: ResponseDoc("The same message was accepted before.", Receipt),
            409: ResponseDoc("The id was used in this chat before, with another text.", Error),
        },
    )


def _watching(tag: str) -> Operation:
    return Operation(
        summary="Stream the events of a chat; ids count up by one and survive restarts.",
        tag=tag,
        parameters=(CHAT, AFTER, ADDED, LAST),
        answers={200: ResponseDoc("Server-sent events.", media=STREAM, schema=TEXT)},
    )


def chats(message_chars: int) -> Mapping[Served, Operation]:
    """Descriptions of the platform api."""
    session = Parameter("session", "Another session of the same chat.", TEXT)
    return {
        ("POST", "/api/chats/{chat}/messages"): _posting("chats", message_chars),
        ("GET", "/api/chats/{chat}/events"): _watching("chats"),
        ("GET", "/api/chats/{chat}/transcript"): Operation(
            summary="The transcript of the current session.", tag="chats",
            parameters=(CHAT, session, AFTER, limit(MOST_MESSAGES)), answers={200: ResponseDoc("A part of the transcript.", TranscriptPage)},
        ),
    }  # fmt: skip


def page(message_chars: int) -> Mapping[Served, Operation]:
    """Descriptions of the page's own endpoints, for the owner only."""
    one = "/web/conversations/{chat}"
    session = Parameter("session", "The session to continue from.", {**TEXT, "pattern": "^[^\u0000]*$"})
    before = Parameter("before", "Rows before this one.", AFTER.schema)
    search = Parameter("search", "Text that they contain.", {**TEXT, "maxLength": 200, "pattern": "^[^\u0000]*$"})
    number = Parameter("id", "The file.", {**TEXT, "pattern": "^[A-Za-z0-9_-]{22}$"}, "path")
    name = Parameter("name", "Its name.", {**TEXT, "minLength": 1}, "path")
    kept = {201: ResponseDoc("The file is stored.", shapes.FileKept)}
    return {
        ("GET", "/web/me"): _look("The version, the commands and the limits.", "page", shapes.Me),
        ("GET", "/web/conversations"): _look("The conversations.", "page", shapes.ConversationList, search, limit(MOST_LISTED)),
        ("GET", one): _look("One conversation.", "page", shapes.ConversationResponse, CHAT),
        ("GET", one + "/earlier"): _look("Earlier rows of the transcript.", "page", shapes.EarlierResponse, CHAT, before, session),
        ("GET", one + "/rows"): _look("Rows added to the transcript.", "page", shapes.Rows, CHAT, AFTER),
        ("POST", one + "/messages"): _posting("page", message_chars),
        ("GET", one + "/events"): _watching("page"),
        ("POST", "/files"): Operation(
            summary="Upload a file; the body is the file.", tag="page", answers=kept,
            parameters=(Parameter("name", "Its name.", TEXT),), body=Body(None, media="application/octet-stream"),
        ),
        ("GET", "/files/{id}/{name}"): Operation(
            summary="Download a file: an image inline, anything else as attachment.", tag="page", parameters=(number, name),
            answers={200: ResponseDoc("The file.", media="*/*", schema=BYTES)},
        ),
    }  # fmt: skip


def _look(summary: str, tag: str, shape: type, *parameters: Parameter, everybody: bool = False) -> Operation:
    answers = {200: ResponseDoc(shape.__doc__ or "", shape)}
    return Operation(summary=summary, tag=tag, parameters=parameters, answers=answers, everybody=everybody)


CONTROL: Mapping[Served, Operation] = {
    ("GET", "/health"): _look("Whether the process is alive.", "health", shapes.Alive, everybody=True),
    ("GET", "/ready"): Operation(
        summary="Whether messages are accepted and answered.", tag="health", everybody=True,
        answers={200: ResponseDoc("They are.", shapes.Ready), 503: ResponseDoc("They are not, and why.", shapes.Ready)},
    ),
    ("GET", "/metrics"): Operation(summary="Metrics for Prometheus.", tag="health", answers=_METRICS),
    ("GET", "/openapi.json"): Operation(
        summary="This document.", tag="health", answers={200: ResponseDoc("OpenAPI 3.1.", schema={"type": "object"})}
    ),
    ("GET", "/control/status"): _look("The state of the gateway, and counts of open work.", "control", shapes.Status),
    ("GET", "/control/sessions"): _look(
        "The current sessions.", "control", shapes.SessionList,
        Parameter("after", "The `next` of the previous page.", {**TEXT, "pattern": "^[^\u0000]*$"}), limit(MOST_SESSIONS),
    ),
    ("GET", "/control/explain/{id}"): _look("The timeline of a message.", "control", shapes.TimelineList, _MESSAGE_ID),
    ("POST", "/control/stop"): Operation(
        summary="Stop or restart the gateway.", tag="control", body=Body(StopRequest), answers={202: ResponseDoc("The stop has begun.", shapes.Stopping)}
    ),
    ("GET", "/control/channels"): _look("The chat directory, and the aliases.", "control", shapes.DirectoryResponse),
    ("POST", "/control/channels/alias"): Operation(
        summary="Give a chat an alias.", tag="control", body=Body(AliasRequest, {"name": _ALIAS, "address": _ADDRESS}),
        answers={200: ResponseDoc("The alias is set.", shapes.Aliased)},
    ),
    ("POST", "/control/channels/unalias"): Operation(
        summary="Remove an alias.", tag="control", body=Body(UnaliasRequest),
        answers={200: ResponseDoc("The alias is removed.", shapes.Unaliased), 404: ResponseDoc("No such alias.", Error)},
    ),
    ("GET", "/control/keys"): _look("Access keys.", "access", shapes.KeyList),
    ("POST", "/control/keys"): Operation(
        summary="Make a key.", tag="access", body=Body(NewKey, {"name": _KEY_NAME, "scopes": _SCOPES}),
        answers={201: ResponseDoc("The new key; its secret is shown only once.", shapes.KeyMade),
                 409: ResponseDoc("A key with this name exists.", Error)},
    ),
    ("DELETE", "/control/keys/{name}"): _look(
        "Revoke a key at once.", "access", shapes.Revoked, Parameter("name", "The key's name.", {**TEXT, "minLength": 1}, "path"),
        Parameter("made", "1: also revoke the keys that were made with it, and with those.", {"type": "string", "enum": ["0", "1"]}),
    ),
    ("GET", "/control/pair"): _look("Access requests and people of chat platforms.", "access", shapes.PeopleResponse),
    ("POST", "/control/pair/approve"): Operation(
        summary="Approve a person by pairing code, or by the number of the access request.", tag="access",
        body=Body(ApproveRequest), answers={
            200: ResponseDoc("Approved.", shapes.PersonApproved), 404: ResponseDoc("The code or the request is not valid.", Error),
            429: ResponseDoc("Too many wrong codes; try again later.", Error),
        },
    ),
    ("POST", "/control/pair/allow"): Operation(
        summary="Approve a person without an access request.", tag="access", body=Body(AllowRequest, {"person": _PERSON}),
        answers={200: ResponseDoc("Approved.", shapes.PersonApproved)},
    ),
    ("POST", "/control/pair/revoke"): Operation(
        summary="Revoke a person's access at once.", tag="access", body=Body(RevokeRequest, {"person": _PERSON}),
        answers={200: ResponseDoc("Revoked.", shapes.RevokedResponse)},
    ),
    ("POST", "/control/login"): _look("Make a login link.", "access", shapes.LoginMade),
    ("POST", "/control/logout"): _look("Log every browser out.", "access", shapes.Ended),
    ("POST", "/login"): _ENTER,
    ("POST", "/logout"): Operation(
        summary="Log this browser out.", tag="access", answers={204: ResponseDoc("Logged out.")}
    ),
}  # fmt: skip


def described(message_chars: int) -> Mapping[Served, Operation]:
    """Return the descriptions of all endpoints."""
    return {**chats(message_chars), **page(message_chars), **CONTROL, **OPERATIONS, **V1}


def _one_of(name: str, text: str, *choices: str) -> Parameter:
    return Parameter(name, text, {"type": "string", "enum": list(choices)})


def _show(summary: str, shape: type, *parameters: Parameter) -> Operation:
    return Operation(
        summary=summary, tag=OPS_TAG, parameters=parameters, answers={200: ResponseDoc(shape.__doc__ or "", shape)}
    )


def _act(what: str, body: type, target: str) -> Operation:
    limits = {"id": {**PRINTABLE, "maxLength": ACTION_ID_CHARS}, target: KEY if target == "key" else NUMBER}
    return Operation(
        summary=f"Act on {what}, once for each id.",
        tag=OPS_TAG,
        body=Body(body, limits),
        answers={
            200: ResponseDoc("Done.", shapes.ActionResult),
            409: ResponseDoc("Not possible, and why.", Error),
        },
    )


OPERATIONS: Mapping[Served, Operation] = {
    ("GET", "/ops/api/overview"): _show("State of the gateway, counts, instances, platforms and recoveries.", shapes.Overview),
    ("GET", "/ops/api/turns"): _show(
        "Open turns, or recently ended ones.", shapes.TurnPage, _one_of("state", "Which.", "open", "recent"), NEXT_PAGE, LIMIT
    ),
    ("GET", "/ops/api/sessions"): _show(
        "Sessions by state.", shapes.SessionPage, _one_of("state", "Which.", *SESSION_STATES),
        Parameter("q", "Text that they contain.", {**NO_NUL, "maxLength": QUERY_CHARS}), AFTER_SESSION, LIMIT,
    ),
    ("GET", "/ops/api/inbox"): _show(
        "Queued messages, or dead letters.", shapes.Inbox, _one_of("state", "Which.", "queued", "dead"), NEXT_PAGE, LIMIT
    ),
    ("GET", "/ops/api/outbox"): _show(
        "Pending replies, replies of unknown delivery, or dead letters.", shapes.OutboxPage,
        _one_of("state", "Which.", "pending", "unknown", "dead"), NEXT_PAGE, LIMIT,
    ),
    ("GET", "/ops/api/explain"): _show(
        "Timelines of the messages with an id.", shapes.Explained,
        Parameter("message", "The message's id.", {**NO_NUL, "minLength": 1}, required=True),
    ),
    ("GET", "/ops/api/trends"): _show("Metrics over time.", shapes.Trends, _one_of("hours", "How far back.", "24", "168", "720")),
    ("GET", "/ops/api/events"): Operation(
        summary="Stream hints that something changed.", tag=OPS_TAG, answers={200: ResponseDoc("Server-sent events.", media=STREAM, schema=TEXT)}
    ),
    ("GET", "/ops/api/people"): _show("Access requests and people of chat platforms.", shapes.AccessOverview),
    ("POST", "/ops/api/people/act"): Operation(
        summary="Approve or revoke a person, once for each id.", tag=OPS_TAG,
        body=Body(PeopleAct, {"id": {**PRINTABLE, "maxLength": ACTION_ID_CHARS}}), answers={
            200: ResponseDoc("Done.", shapes.ActionResult), 409: ResponseDoc("Not possible, and why.", Error),
        },
    ),
    ("POST", "/ops/api/sessions/act"): _act("a session", SessionAct, "key"),
    ("POST", "/ops/api/inbox/act"): _act("a dead message", MessageAct, "inbox"),
    ("POST", "/ops/api/outbox/act"): _act("a reply", ReplyAct, "reply"),
    ("POST", "/hooks/{platform}/{account}"): Operation(
        summary="Webhook of a platform; the platform sends its own secret.", tag="platforms", everybody=True,
        parameters=(Parameter("platform", "The platform.", TEXT, "path"), Parameter("account", "The gateway's account.", TEXT, "path")),
        body=Body(None), answers={200: ResponseDoc("Committed.", schema={"type": "object"})},
    ),
}  # fmt: skip


class ErrorDetail(msgspec.Struct, frozen=True):
    """What is wrong, and where."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """An error in the OpenAI format."""

    error: ErrorDetail


class Model(msgspec.Struct, frozen=True):
    """An agent of this gateway."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(msgspec.Struct, frozen=True):
    """The agents of this gateway."""

    object: Literal["list"]
    data: list[Model]


class RequestBase(msgspec.Struct, frozen=True):
    """Fields of every request; the rest is as in the OpenAI API."""

    model: str
    stream: bool = False


class CompletionRequest(RequestBase, frozen=True, kw_only=True):
    """A request for a completion."""

    messages: list[dict[str, Any]]


class Input(RequestBase, frozen=True, kw_only=True):
    """A request for a response."""

    input: str | list[dict[str, Any]]


class Completion(msgspec.Struct, frozen=True):
    """A completion."""

    id: str
    object: Literal["chat.completion"]
    choices: list[dict[str, Any]]


class Response(msgspec.Struct, frozen=True):
    """A response."""

    id: str
    object: Literal["response"]
    status: str
    output: list[dict[str, Any]]


def _ask(summary: str, body: type, answer: type) -> Operation:
    return Operation(
        summary=summary, tag=V1_TAG, parameters=(SESSION, REPEAT), body=Body(body), errors=ErrorBody,
        answers={200: ResponseDoc("The answer; with `stream` as server-sent events.", answer)},
    )  # fmt: skip


def _v1_look(summary: str, shape: type, *parameters: Parameter) -> Operation:
    answers = {200: ResponseDoc(shape.__doc__ or "", shape)}
    return Operation(summary=summary, tag=V1_TAG, parameters=parameters, answers=answers, errors=ErrorBody)


V1: Mapping[Served, Operation] = {
    ("POST", "/v1/chat/completions"): _ask("Talk to an agent.", CompletionRequest, Completion),
    ("POST", "/v1/responses"): _ask("Talk to an agent.", Input, Response),
    ("GET", "/v1/responses/{response_id}"): _v1_look("A stored response.", Response, _ID),
    ("GET", "/v1/models"): _v1_look("The agents.", ModelList),
    ("GET", "/v1/models/{model}"): _v1_look("One agent.", Model, _NAME),
}


class OpenApi:
    """Serves the document; made once, at the first request, because the routes do not change."""

    def __init__(self, routes: Iterable[BaseRoute], message_chars: int, *, programs: bool = False) -> None:
        self._routes = [each for each in routes if isinstance(each, Route)]
        self._chars = message_chars
        self._programs = programs  # whether the OpenAI API is served
        self._made: bytes | None = None

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route(PATH, self.show, methods=["GET"])]

    async def show(self, _: Request) -> HttpResponse:
        """`GET /openapi.json`."""
        self._made = self._made or encode(self.document())
        return HttpResponse(self._made, 200, NO_STORE, "application/json")

    def served(self) -> list[Served]:
        """Return all endpoints: those of the chats and of the OpenAI API, which have no routes, and all routes but the page's files."""
        found = [*chats(self._chars), *(V1 if self._programs else ()), ("GET", PATH)]
        for each in self._routes:
            paths = SEVERAL.get(each.path, (plain(each.path),))
            for method in sorted(each.methods or ()):
                found += [(method, path) for path in paths if not _is_file(method, path)]
        return found

    def document(self) -> Schema:
        """Return the document."""
        return document(self.served(), described(self._chars))


def _is_file(method: str, path: str) -> bool:
    """Whether this is a file of the page, which programs do not need; or a HEAD, which comes with GET."""
    return method == "HEAD" or (
        method == "GET" and (path in OPEN_PAGES or is_page(path) or path.startswith("/assets/"))
    )
