"""The description of every endpoint: the one place the OpenAPI document is made from."""

from __future__ import annotations

from collections.abc import Mapping

from everturn.decide.access import GRANTABLE
from everturn.platform.posted import CHAT_CHARS, ID_CHARS, Post
from everturn.web.channels import AliasRequest, UnaliasRequest
from everturn.web.control import MOST_SESSIONS, StopRequest
from everturn.web.conversations import MOST_LISTED
from everturn.web.keys import NAME_CHARS, NewKey
from everturn.web.messages import Receipt
from everturn.web.openapi import shapes
from everturn.web.openapi.describing import STREAM, Answer, Body, Error, Operation, Parameter, Schema, Served
from everturn.web.openapi.table_ops import OPERATIONS
from everturn.web.openapi.table_v1 import V1
from everturn.web.pairing import AllowRequest, ApproveRequest, RevokeRequest
from everturn.web.queries import LARGEST
from everturn.web.transcripts import MOST_MESSAGES, Page
from everturn.web.visits import Code

NO_CONTROLS = "^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]+$"
WORDS = "^[^\u0000]*[^\\s\u0000][^\u0000]*$"
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": CHAT_CHARS, "pattern": NO_CONTROLS}
CHAT = Parameter("chat", "The chat's name; it is created by its first message.", NAME, "path")
AFTER = Parameter("after", "Only what comes after this place.", {"type": "integer", "minimum": 0, "maximum": LARGEST})
LAST = Parameter(
    "Last-Event-ID", "Go on after this event.", {"type": "integer", "minimum": 0, "maximum": LARGEST}, "header"
)
ADDED = Parameter("added", "1: deltas say only what was added to the text.", {"type": "string", "enum": ["0", "1"]})
BYTES: Schema = {"type": "string", "format": "binary"}
TEXT: Schema = {"type": "string"}


def limit(most: int) -> Parameter:
    """How many at once."""
    return Parameter("limit", f"At most so many, up to {most}.", {"type": "integer", "minimum": 0, "maximum": most})


def message(message_chars: int) -> Body:
    """A message to a chat."""
    words = {"minLength": 1, "maxLength": message_chars, "pattern": WORDS}
    return Body(Post, {"id": {"minLength": 1, "maxLength": ID_CHARS, "pattern": NO_CONTROLS}, "text": words})


def _posting(tag: str, message_chars: int) -> Operation:
    return Operation(
        summary="Say something. Answered when it is committed: from then on it survives everything.",
        tag=tag,
        parameters=(CHAT,),
        body=message(message_chars),
        answers={
            202: Answer("Accepted.", Receipt),
            200: Answer("The same message was accepted before.", Receipt),
            409: Answer("The id was used in this chat before, with other words.", Error),
        },
    )


def _watching(tag: str) -> Operation:
    return Operation(
        summary="The events of a chat, as they happen; ids count up by one and are kept across restarts.",
        tag=tag,
        parameters=(CHAT, AFTER, ADDED, LAST),
        answers={200: Answer("Server-sent events.", media=STREAM, schema=TEXT)},
    )


def chats(message_chars: int) -> Mapping[Served, Operation]:
    """The platform api."""
    session = Parameter("session", "Another session of the same chat.", TEXT)
    return {
        ("POST", "/api/chats/{chat}/messages"): _posting("chats", message_chars),
        ("GET", "/api/chats/{chat}/events"): _watching("chats"),
        ("GET", "/api/chats/{chat}/transcript"): Operation(
            summary="What was said in the current session.", tag="chats",
            parameters=(CHAT, session, AFTER, limit(MOST_MESSAGES)), answers={200: Answer("A part of it.", Page)},
        ),
    }  # fmt: skip


def page(message_chars: int) -> Mapping[Served, Operation]:
    """The page's own endpoints, for the owner only."""
    one = "/web/conversations/{chat}"
    session = Parameter("session", "The session to go on from.", {**TEXT, "pattern": "^[^\u0000]*$"})
    before = Parameter("before", "Rows before this one.", AFTER.schema)
    search = Parameter("search", "Those that hold these words.", {**TEXT, "maxLength": 200, "pattern": "^[^\u0000]*$"})
    number = Parameter("id", "The file.", {**TEXT, "pattern": "^[A-Za-z0-9_-]{22}$"}, "path")
    name = Parameter("name", "Its name.", {**TEXT, "minLength": 1}, "path")
    kept = {201: Answer("It is kept.", shapes.FileKept)}
    return {
        ("GET", "/web/me"): _look("The version, the commands and the limits.", "page", shapes.Me),
        ("GET", "/web/conversations"): _look("The conversations.", "page", shapes.Listing, search, limit(MOST_LISTED)),
        ("GET", one): _look("One conversation.", "page", shapes.Conversation, CHAT),
        ("GET", one + "/earlier"): _look("What was said before.", "page", shapes.Earlier, CHAT, before, session),
        ("GET", one + "/rows"): _look("What was added to its transcript.", "page", shapes.Rows, CHAT, AFTER),
        ("POST", one + "/messages"): _posting("page", message_chars),
        ("GET", one + "/events"): _watching("page"),
        ("POST", "/files"): Operation(
            summary="Keep a file; the body is the file.", tag="page", answers=kept,
            parameters=(Parameter("name", "Its name.", TEXT),), body=Body(None, media="application/octet-stream"),
        ),
        ("GET", "/files/{id}/{name}"): Operation(
            summary="A file: an image to be shown, anything else to be saved.", tag="page", parameters=(number, name),
            answers={200: Answer("The file.", media="*/*", schema=BYTES)},
        ),
    }  # fmt: skip


def _look(summary: str, tag: str, shape: type, *parameters: Parameter, everybody: bool = False) -> Operation:
    answers = {200: Answer(shape.__doc__ or "", shape)}
    return Operation(summary=summary, tag=tag, parameters=parameters, answers=answers, everybody=everybody)


_ENTER = Operation(
    summary="A code of a login link for a cookie, once.", tag="access", body=Body(Code), everybody=True,
    answers={204: Answer("This browser is in."), 403: Answer("The code is not good (any more).", Error)},
)  # fmt: skip
_MESSAGE_ID = Parameter("id", "The id its sender gave.", {**TEXT, "minLength": 1}, "path")
_ASCII = "^[!-~]([ -~]*[!-~])?$"  # other letters are taken, too: no pattern can say "printable"
_KEY_NAME = {"minLength": 1, "maxLength": NAME_CHARS, "pattern": _ASCII}
_PERSON = {"pattern": "^[a-z][a-z0-9_]*:[!-~]+$"}
_ALIAS = {"pattern": "^[A-Za-z0-9]{1,64}$"}  # and more
_ADDRESS = {"pattern": "^[a-z]{1,20}:[A-Za-z0-9-]{1,100}$"}  # and more
_SCOPES = {"minItems": 1, "items": {"type": "string", "enum": list(GRANTABLE)}}
_METRICS = {200: Answer("Prometheus' text format; OpenMetrics on request.", media="text/plain", schema=TEXT)}
CONTROL: Mapping[Served, Operation] = {
    ("GET", "/health"): _look("Whether the process lives.", "health", shapes.Alive, everybody=True),
    ("GET", "/ready"): Operation(
        summary="Whether messages are accepted and answered.", tag="health", everybody=True,
        answers={200: Answer("They are.", shapes.Ready), 503: Answer("They are not, and why.", shapes.Ready)},
    ),
    ("GET", "/metrics"): Operation(summary="Figures for Prometheus.", tag="health", answers=_METRICS),
    ("GET", "/openapi.json"): Operation(
        summary="This document.", tag="health", answers={200: Answer("OpenAPI 3.1.", schema={"type": "object"})}
    ),
    ("GET", "/control/status"): _look("How the gateway is, and how much is open.", "control", shapes.Status),
    ("GET", "/control/sessions"): _look(
        "The sessions in force.", "control", shapes.Sessions,
        Parameter("after", "The `next` of the page before.", {**TEXT, "pattern": "^[^\u0000]*$"}), limit(MOST_SESSIONS),
    ),
    ("GET", "/control/explain/{id}"): _look("The life of a message.", "control", shapes.Lives, _MESSAGE_ID),
    ("POST", "/control/stop"): Operation(
        summary="Begin a planned end.", tag="control", body=Body(StopRequest), answers={202: Answer("It has begun.", shapes.Stopping)}
    ),
    ("GET", "/control/channels"): _look("The chats that are known, and the aliases.", "control", shapes.Directory),
    ("POST", "/control/channels/alias"): Operation(
        summary="Give a chat a name.", tag="control", body=Body(AliasRequest, {"name": _ALIAS, "address": _ADDRESS}),
        answers={200: Answer("It has it.", shapes.Aliased)},
    ),
    ("POST", "/control/channels/unalias"): Operation(
        summary="Take a name away.", tag="control", body=Body(UnaliasRequest),
        answers={200: Answer("It is gone.", shapes.Unaliased), 404: Answer("There is no such name.", Error)},
    ),
    ("GET", "/control/keys"): _look("Access keys.", "access", shapes.KeyList),
    ("POST", "/control/keys"): Operation(
        summary="Make a key.", tag="access", body=Body(NewKey, {"name": _KEY_NAME, "scopes": _SCOPES}),
        answers={201: Answer("The key, shown this once.", shapes.KeyMade),
                 409: Answer("There is a key of this name.", Error)},
    ),
    ("DELETE", "/control/keys/{name}"): _look(
        "End a key, at once.", "access", shapes.Revoked, Parameter("name", "The key's name.", {**TEXT, "minLength": 1}, "path"),
        Parameter("made", "Also end the keys that were made with it, and with those.", {"type": "string", "enum": ["0", "1"]}),
    ),
    ("GET", "/control/pair"): _look("Who asks to speak on chat platforms, and who may.", "access", shapes.People),
    ("POST", "/control/pair/approve"): Operation(
        summary="Let in who was given this code, or asked under this number.", tag="access",
        body=Body(ApproveRequest), answers={
            200: Answer("They may speak.", shapes.LetIn), 404: Answer("The code or the request is not good.", Error),
            429: Answer("Too many wrong codes; come back later.", Error),
        },
    ),
    ("POST", "/control/pair/allow"): Operation(
        summary="Let somebody in who did not ask.", tag="access", body=Body(AllowRequest, {"person": _PERSON}),
        answers={200: Answer("They may speak.", shapes.LetIn)},
    ),
    ("POST", "/control/pair/revoke"): Operation(
        summary="Turn somebody out, at once.", tag="access", body=Body(RevokeRequest, {"person": _PERSON}),
        answers={200: Answer("They may not speak.", shapes.TurnedOut)},
    ),
    ("POST", "/control/login"): _look("Make a login link.", "access", shapes.LoginMade),
    ("POST", "/control/logout"): _look("Put every browser out.", "access", shapes.Ended),
    ("POST", "/login"): _ENTER,
    ("POST", "/logout"): Operation(
        summary="Put this browser out.", tag="access", answers={204: Answer("It is out.")}
    ),
}  # fmt: skip


def described(message_chars: int) -> Mapping[Served, Operation]:
    """Every endpoint that is described."""
    return {**chats(message_chars), **page(message_chars), **CONTROL, **OPERATIONS, **V1}
