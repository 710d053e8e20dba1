"""Descriptions of all endpoints, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping

from everturn.people.rules.access import GRANTABLE
from everturn.platform.posted import CHAT_CHARS, ID_CHARS, Post
from everturn.web.chat.conversations import MOST_LISTED
from everturn.web.chat.messages import Receipt
from everturn.web.chat.transcripts import MOST_MESSAGES, TranscriptPage
from everturn.web.control.channels import AliasRequest, UnaliasRequest
from everturn.web.control.endpoints import MOST_SESSIONS, StopRequest
from everturn.web.control.keys import NAME_CHARS, NewKey
from everturn.web.control.pairing import AllowRequest, ApproveRequest, RevokeRequest
from everturn.web.control.visits import Code
from everturn.web.openapi import shapes
from everturn.web.openapi.describing import STREAM, Body, Error, Operation, Parameter, ResponseDoc, Schema, Served
from everturn.web.openapi.table_ops import OPERATIONS
from everturn.web.openapi.table_v1 import V1
from everturn.web.wire.queries import LARGEST

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
