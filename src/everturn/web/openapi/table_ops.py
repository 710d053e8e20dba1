"""The description of what an operator sees and does, and of where platforms bring what was said."""

from __future__ import annotations

from collections.abc import Mapping

from everturn.web.openapi import shapes_ops
from everturn.web.openapi.describing import STREAM, Answer, Body, Error, Operation, Parameter, Schema, Served
from everturn.web.ops.acting import ID_CHARS, MessageAct, ReplyAct, SessionAct
from everturn.web.ops.looking import MOST_LISTED, SESSION_STATES, WORDS
from everturn.web.ops.people import PeopleAct
from everturn.web.queries import LARGEST

TAG = "operations"
TEXT: Schema = {"type": "string"}
NO_NUL: Schema = {"type": "string", "pattern": "^[^\u0000]*$"}
LIMIT = Parameter("limit", "At most so many.", {"type": "integer", "minimum": 0, "maximum": MOST_LISTED})
AFTER = Parameter("after", "The `next` of the page before.", {"type": "integer", "minimum": 0, "maximum": LARGEST})
NAME: Schema = {"minLength": 1, "pattern": "^[ -~]+$"}  # other printable letters are taken, too
KEY: Schema = {**NAME, "maxLength": 2_000}
NUMBER: Schema = {"pattern": "^[0-9]{1,18}$"}
# A place in the list of sessions: a time and a number.
AFTER_SESSION = Parameter(
    "after", "The `next` of the page before.", {**TEXT, "pattern": r"^[0-9]{1,10}\.[0-9]{1,6}:[0-9]{1,18}$"}
)


def _one_of(name: str, text: str, *choices: str) -> Parameter:
    return Parameter(name, text, {"type": "string", "enum": list(choices)})


def _look(summary: str, shape: type, *parameters: Parameter) -> Operation:
    return Operation(summary=summary, tag=TAG, parameters=parameters, answers={200: Answer(shape.__doc__ or "", shape)})


def _act(what: str, body: type, target: str) -> Operation:
    limits = {"id": {**NAME, "maxLength": ID_CHARS}, target: KEY if target == "key" else NUMBER}
    return Operation(
        summary=f"Do something to {what}, once for each id.",
        tag=TAG,
        body=Body(body, limits),
        answers={200: Answer("It is done.", shapes_ops.Done), 409: Answer("It is not possible, and why.", Error)},
    )


# Routes that stand for several paths.
SEVERAL: Mapping[str, tuple[str, ...]] = {
    "/ops/api/{what}/act": tuple(f"/ops/api/{what}/act" for what in ("sessions", "inbox", "outbox"))
}
OPERATIONS: Mapping[Served, Operation] = {
    ("GET", "/ops/api/overview"): _look("Everything at one look.", shapes_ops.Overview),
    ("GET", "/ops/api/turns"): _look(
        "Turns that are open, or ended lately.", shapes_ops.Turns, _one_of("state", "Which.", "open", "recent"), AFTER, LIMIT
    ),
    ("GET", "/ops/api/sessions"): _look(
        "Sessions by state.", shapes_ops.Sessions, _one_of("state", "Which.", *SESSION_STATES),
        Parameter("q", "Those that hold these words.", {**NO_NUL, "maxLength": WORDS}), AFTER_SESSION, LIMIT,
    ),
    ("GET", "/ops/api/inbox"): _look(
        "Messages that wait, or are dead.", shapes_ops.Inbox, _one_of("state", "Which.", "waiting", "dead"), AFTER, LIMIT
    ),
    ("GET", "/ops/api/outbox"): _look(
        "Replies that are owed, doubtful or dead.", shapes_ops.Outbox,
        _one_of("state", "Which.", "owed", "doubtful", "dead"), AFTER, LIMIT,
    ),
    ("GET", "/ops/api/explain"): _look(
        "The life of a message, and its picture.", shapes_ops.Explained,
        Parameter("message", "The message's id.", {**NO_NUL, "minLength": 1}, required=True),
    ),
    ("GET", "/ops/api/figures"): _look("Figures over time.", shapes_ops.Figures, _one_of("hours", "How far back.", "24", "168", "720")),
    ("GET", "/ops/api/events"): Operation(
        summary="Hints that something has moved.", tag=TAG, answers={200: Answer("Server-sent events.", media=STREAM, schema=TEXT)}
    ),
    ("GET", "/ops/api/people"): _look("Who asks to speak on chat platforms, and who may.", shapes_ops.People),
    ("POST", "/ops/api/people/act"): Operation(
        summary="Let somebody in or turn them out, once for each id.", tag=TAG,
        body=Body(PeopleAct, {"id": {**NAME, "maxLength": ID_CHARS}}), answers={
            200: Answer("It is done.", shapes_ops.Done), 409: Answer("It is not possible, and why.", Error),
        },
    ),
    ("POST", "/ops/api/sessions/act"): _act("a session", SessionAct, "key"),
    ("POST", "/ops/api/inbox/act"): _act("a message that is dead", MessageAct, "inbox"),
    ("POST", "/ops/api/outbox/act"): _act("a reply", ReplyAct, "reply"),
    ("POST", "/hooks/{platform}/{account}"): Operation(
        summary="Where a platform brings what was said; it shows its own secret.", tag="platforms", everybody=True,
        parameters=(Parameter("platform", "Its name.", TEXT, "path"), Parameter("account", "Ours there.", TEXT, "path")),
        body=Body(None), answers={200: Answer("Committed.", schema={"type": "object"})},
    ),
}  # fmt: skip
