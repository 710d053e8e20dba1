"""Descriptions of the operator's endpoints and of the webhook endpoint."""

from __future__ import annotations

from collections.abc import Mapping

from everturn.web.openapi import shapes_ops
from everturn.web.openapi.describing import STREAM, Body, Error, Operation, Parameter, ResponseDoc, Schema, Served
from everturn.web.ops.acting import ID_CHARS, MessageAct, ReplyAct, SessionAct
from everturn.web.ops.looking import MOST_LISTED, QUERY_CHARS, SESSION_STATES
from everturn.web.ops.people import PeopleAct
from everturn.web.wire.queries import LARGEST

TAG = "operations"
TEXT: Schema = {"type": "string"}
NO_NUL: Schema = {"type": "string", "pattern": "^[^\u0000]*$"}
LIMIT = Parameter("limit", "Maximum number of items.", {"type": "integer", "minimum": 0, "maximum": MOST_LISTED})
AFTER = Parameter("after", "The `next` of the previous page.", {"type": "integer", "minimum": 0, "maximum": LARGEST})
NAME: Schema = {"minLength": 1, "pattern": "^[ -~]+$"}  # other printable letters are accepted, too
KEY: Schema = {**NAME, "maxLength": 2_000}
NUMBER: Schema = {"pattern": "^[0-9]{1,18}$"}
# A place in the list of sessions: a time and a number.
AFTER_SESSION = Parameter(
    "after", "The `next` of the previous page.", {**TEXT, "pattern": r"^[0-9]{1,10}\.[0-9]{1,6}:[0-9]{1,18}$"}
)


def _one_of(name: str, text: str, *choices: str) -> Parameter:
    return Parameter(name, text, {"type": "string", "enum": list(choices)})


def _look(summary: str, shape: type, *parameters: Parameter) -> Operation:
    return Operation(
        summary=summary, tag=TAG, parameters=parameters, answers={200: ResponseDoc(shape.__doc__ or "", shape)}
    )


def _act(what: str, body: type, target: str) -> Operation:
    limits = {"id": {**NAME, "maxLength": ID_CHARS}, target: KEY if target == "key" else NUMBER}
    return Operation(
        summary=f"Act on {what}, once for each id.",
        tag=TAG,
        body=Body(body, limits),
        answers={
            200: ResponseDoc("Done.", shapes_ops.ActionResult),
            409: ResponseDoc("Not possible, and why.", Error),
        },
    )


# Routes that match several paths.
SEVERAL: Mapping[str, tuple[str, ...]] = {
    "/ops/api/{what}/act": tuple(f"/ops/api/{what}/act" for what in ("sessions", "inbox", "outbox"))
}
OPERATIONS: Mapping[Served, Operation] = {
    ("GET", "/ops/api/overview"): _look("State of the gateway, counts, instances, platforms and recoveries.", shapes_ops.Overview),
    ("GET", "/ops/api/turns"): _look(
        "Open turns, or recently ended ones.", shapes_ops.TurnPage, _one_of("state", "Which.", "open", "recent"), AFTER, LIMIT
    ),
    ("GET", "/ops/api/sessions"): _look(
        "Sessions by state.", shapes_ops.SessionPage, _one_of("state", "Which.", *SESSION_STATES),
        Parameter("q", "Text that they contain.", {**NO_NUL, "maxLength": QUERY_CHARS}), AFTER_SESSION, LIMIT,
    ),
    ("GET", "/ops/api/inbox"): _look(
        "Queued messages, or dead letters.", shapes_ops.Inbox, _one_of("state", "Which.", "queued", "dead"), AFTER, LIMIT
    ),
    ("GET", "/ops/api/outbox"): _look(
        "Pending replies, replies of unknown delivery, or dead letters.", shapes_ops.OutboxPage,
        _one_of("state", "Which.", "pending", "unknown", "dead"), AFTER, LIMIT,
    ),
    ("GET", "/ops/api/explain"): _look(
        "Timelines of the messages with an id.", shapes_ops.Explained,
        Parameter("message", "The message's id.", {**NO_NUL, "minLength": 1}, required=True),
    ),
    ("GET", "/ops/api/trends"): _look("Metrics over time.", shapes_ops.Trends, _one_of("hours", "How far back.", "24", "168", "720")),
    ("GET", "/ops/api/events"): Operation(
        summary="Stream hints that something changed.", tag=TAG, answers={200: ResponseDoc("Server-sent events.", media=STREAM, schema=TEXT)}
    ),
    ("GET", "/ops/api/people"): _look("Access requests and people of chat platforms.", shapes_ops.AccessOverview),
    ("POST", "/ops/api/people/act"): Operation(
        summary="Approve or revoke a person, once for each id.", tag=TAG,
        body=Body(PeopleAct, {"id": {**NAME, "maxLength": ID_CHARS}}), answers={
            200: ResponseDoc("Done.", shapes_ops.ActionResult), 409: ResponseDoc("Not possible, and why.", Error),
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
