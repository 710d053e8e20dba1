"""The timeline of one message as lines of text in order of time, made from the values that `explain` reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from everturn.turns.rules.approvals import INDENT

Json = dict[str, Any]

ENDS = {
    "done": "the message is done",
    "withdrawn": "the message was withdrawn",
    "expired": "the message expired",
    "dead": "the message failed: dead letter",
}
OPEN = {"queued": "the message is queued", "claimed": "the message is being answered"}
STEPS = {
    "summary": "summary of the earlier conversation stored",
    "user": "the user's message stored",
    "assistant": "model response stored",
    "tool": "tool result stored",
}
WHYS = {
    "restart_timeout": "cut off by a restart after its drain timeout (restart_timeout)",
    "shutdown_timeout": "cut off by a stop after its drain timeout (shutdown_timeout)",
    "restart_interrupted": "the gateway ended without warning (restart_interrupted)",
    "the gateway ended": "the gateway ended while it was running",
    "cancelled": "it was cancelled",
    "waits for an approval": "awaiting approval",
    "cut": "answered, but the answer is not complete",
    "failed": "it failed",
    "suspended": "the session was suspended after repeated interruptions",
    "/new": "the user reset the conversation (/new)",
    "/stop": "the user stopped it (/stop)",
    "/resume": "the user went to another conversation (/resume)",
    "operator": "an operator ended it",
    "revoked": "its author may no longer speak here (revoked)",
    "deleted": "its author deleted it",
    "too_old": "it was too old when it came (backlog_age_s)",
    "backlog": "it came while the gateway was disconnected, and only the newest is answered, or nobody said that it should be",
    "/skip": "its author did not want it answered (/skip)",
    "too_long": "it is longer than the limit",
    "awaiting_approval": "it is queued until an approval request is answered",
    "queue_full": "too many messages were queued",
    "unstorable": "it could not be stored as it came",
}
ACTIONS = {
    "send": "the reply was sent again", "drop": "dropped", "mark_sent": "the reply was marked as delivered",
    "run": "the message was run again", "resume": "the conversation was resumed", "stop": "the turn was stopped",
    "suspend": "the conversation was suspended", "reset": "the conversation was reset",
}  # fmt: skip
TRIES = {"later": "failed", "dead": "failed: dead letter", "unknown": "delivery unknown"}
RUN_AGAIN = "@again-"
SILENCE = "silence"  # a reply that was not sent
LOST = "lost"  # a model call that was cut off before its response was stored
FAILED = frozenset({"failed", "suspended"})
CUT_OFF = frozenset({"the gateway ended", "restart_timeout", "shutdown_timeout", "failed", "suspended"})
STILL_OPEN = frozenset({"running", "awaiting_approval", "interrupted"})


class TimelineEntry(NamedTuple):
    """Something that happened. `rank` orders what one commit did at one moment."""

    at: float
    rank: int
    text: str
    kind: str = "turn"  # in, turn, step, tool, out or trouble: how it is drawn
    took_s: float | None = None  # how long it lasted, where it ended something that began
    detail: str | None = None  # the text of an error or an approval request


def timeline(message: Json) -> list[tuple[float | None, str]]:
    """Everything that happened to a message, oldest first; what is still open has no time and comes last."""
    happened: list[tuple[float | None, str]] = [
        (line.at, text) for line in _happened(message) for text in _with_call(line)
    ]
    return happened + [(None, text) for text, _ in _still_open(message)]


def _with_call(line: TimelineEntry) -> list[str]:
    """An approval request and the call that it showed; the text of an error has its details already."""
    return [line.text, f"{INDENT}{line.detail}"] if line.kind == "tool" and line.detail else [line.text]


def timeline_json(message: Json) -> list[Json]:
    """The timeline as JSON, with the kind and duration of each line."""
    lines: list[Json] = [
        {"at": line.at, "what": line.text, "detail": line.detail, "kind": line.kind, "took_s": line.took_s}
        for line in _happened(message)
    ]
    return lines + [
        {"at": None, "what": text, "detail": None, "kind": kind, "took_s": None} for text, kind in _still_open(message)
    ]


def _happened(message: Json) -> list[TimelineEntry]:
    turn = message.get("turn")
    lines = [
        _received(message),
        *(_turn(turn, message.get("suspended_why")) if turn else ()),
        *_replies(message["replies"]),
    ]
    lines += [*_actions(message.get("actions", ())), *_ended(message)]
    return sorted(lines, key=lambda line: line[:3])


def _received(message: Json) -> TimelineEntry:
    if RUN_AGAIN in message["id"]:
        return TimelineEntry(message["received_at"], 0, "message queued again by an operator", "in")
    what = "command" if message["kind"] == "command" else "message"
    return TimelineEntry(message["received_at"], 0, f"{what} received from {message['platform']} and stored", "in")


def _actions(actions: Iterable[Json]) -> Iterator[TimelineEntry]:
    for each in actions:
        by = "the owner" if each["actor"] == "owner" else each["actor"]
        yield TimelineEntry(each["at"], 6, f"{ACTIONS.get(each['action'], each['action'])} by {by}", "in")


def _turn(turn: Json, suspended_why: str | None) -> Iterator[TimelineEntry]:
    begun: float = turn["started_at"]
    yield TimelineEntry(begun, 1, f"turn {turn['id']} began in session {turn['session_id']}")
    for attempt in turn["attempts"]:
        yield from _attempt(attempt, _last_sign(turn, attempt["attempt"]))
    for step in turn["steps"]:
        text = f"step {step['seq']}: {STEPS.get(step['role'], step['role'])} (attempt {step['attempt']})"
        yield TimelineEntry(max(step["at"], begun), 5 if step["role"] == "tool" else 3, text, "step")
    for effect in turn["effects"]:
        yield from _effect(effect)
    for failure in turn.get("failures", ()):
        yield _failure(failure, turn["attempts"][-1]["attempt"])
    for approval in turn.get("approvals", ()):
        yield from _approval(approval)
    if turn["ended_at"] is not None:
        if turn.get("usage", {}).get("requests"):
            yield TimelineEntry(turn["ended_at"], 8, _used(turn["usage"], turn.get("failures", ())))
        kind = "trouble" if turn["state"] in FAILED else "turn"
        text = f"turn ended: {_why(turn['why'] or turn['state'], suspended_why)}"
        yield TimelineEntry(turn["ended_at"], 9, text, kind, turn["ended_at"] - begun)


def _failure(failure: Json, last_attempt: int) -> TimelineEntry:
    then = f"; tried again after {failure['wait_s']:g} s" if failure["wait_s"] else ""
    if failure["kind"] == LOST and last_attempt > failure["attempt"]:
        then = "; repeated"
    text = f"{_failed(failure['kind'])}: {failure['why']}{then} (attempt {failure['attempt']})"
    return TimelineEntry(failure["at"], 3, text, "trouble", detail=failure["why"])


def _failed(kind: str) -> str:
    return {"compaction": "compaction failed", LOST: "model call lost"}.get(kind, f"model call failed ({kind})")


def _approval(approval: Json) -> Iterator[TimelineEntry]:
    text = f"approval request {approval['id']} sent: may {approval['tool']} be used?"
    yield TimelineEntry(approval["asked_at"], 4, text, "tool", detail=approval.get("request"))
    if approval["answered_at"] is not None:
        by = f" by {approval['answered_by']}" if approval["answered_by"] else ""
        text = f"approval request {approval['id']} {approval['state']}{by}"
        yield TimelineEntry(approval["answered_at"], 1, text, "tool", approval["answered_at"] - approval["asked_at"])


def _used(usage: Json, failures: Iterable[Json]) -> str:
    cost = f", costs {usage['cost']:.4f}" if usage.get("cost") is not None else ""
    cached = f" ({usage['cached_tokens']} cached)" if usage.get("cached_tokens") else ""
    lost = sum(each["kind"] == LOST for each in failures)
    of_these = f" ({lost} lost)" if lost else ""
    return (
        f"used in total: {_count(usage['requests'], 'model request')}{of_these}, {usage['input_tokens']} tokens in{cached},"
        f" {usage['output_tokens']} out{cost}"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _last_sign(turn: Json, number: int) -> float:
    """When an attempt is last known to have done something: an unclean end is dated by a heartbeat, which may be older."""
    steps, effects = ([each for each in turn[name] if each["attempt"] == number] for name in ("steps", "effects"))
    signs = [each["at"] for each in steps] + [each["begun_at"] for each in effects]
    later = [each["started_at"] for each in turn["attempts"] if each["attempt"] > number]
    return float(min([max(signs, default=0.0), *later]))


def _attempt(attempt: Json, last_sign: float) -> Iterator[TimelineEntry]:
    number, note = attempt["attempt"], attempt["note"]
    given = f"with the note {note}" if note else "without a note"
    yield TimelineEntry(attempt["started_at"], 2, f"attempt {number} began {given} (instance {attempt['instance']})")
    if attempt["ended_at"] is not None:
        kind = "trouble" if attempt["why"] in CUT_OFF else "turn"
        text = f"attempt {number} ended: {_why(attempt['why'])}"
        ended_at = max(attempt["ended_at"], attempt["started_at"], last_sign)
        yield TimelineEntry(ended_at, 8, text, kind, ended_at - attempt["started_at"])


def _effect(effect: Json) -> Iterator[TimelineEntry]:
    name = f"effect {effect['name']} {effect['call_id']}"
    yield TimelineEntry(
        effect["begun_at"], 4, f"{name} ({effect['class']}) begun (attempt {effect['attempt']})", "tool"
    )
    if effect["done_at"] is not None:
        yield TimelineEntry(effect["done_at"], 4, f"{name} done", "tool", effect["done_at"] - effect["begun_at"])


def _replies(replies: list[Json]) -> Iterator[TimelineEntry]:
    for reply in replies:
        name = _name(reply)
        yield TimelineEntry(reply["created_at"], 6, f"{name} written", "out")
        yield from _tries(reply)
        if reply["ended_at"] is not None:
            kind, took_s = _out(reply), reply["ended_at"] - reply["created_at"]
            yield TimelineEntry(reply["ended_at"], 7, f"{name} {_delivery(reply)}", kind, took_s, reply["error"])


def _name(reply: Json) -> str:
    return "reply" if reply["kind"] == SILENCE else str(reply["kind"])


def _tries(reply: Json) -> Iterator[TimelineEntry]:
    """The failed attempts to deliver a reply; the last one of a dead letter is part of its end."""
    tries = reply.get("tries", [])
    for number, each in enumerate(tries, 1):
        if number < len(tries) or reply["state"] != "dead" or each["kind"] != "dead":
            text = f"{reply['kind']}: attempt {number} {TRIES.get(each['kind'], 'failed')}: {each['why']}"
            yield TimelineEntry(each["at"], 7, text, "trouble", detail=each["why"])


def _made(reply: Json) -> int:
    """The number of all attempts to deliver a reply: those since it was last sent again, or all that are known."""
    return max(int(reply["attempts"]), len(reply.get("tries", ())) + (reply["state"] in {"sent", "sending"}))


def _out(reply: Json) -> str:
    return "trouble" if reply["error"] or reply["state"] in {"dead", "unknown"} else "out"


def _delivery(reply: Json) -> str:
    error = f": {reply['error']}" if reply["error"] else ""
    tries = f" at attempt {_made(reply)}" if reply["attempts"] else ""
    marked = ", marked as a possible repetition" if reply["marked"] else ""
    match reply["state"]:
        case "sent" if reply["kind"] == SILENCE:
            return "not sent: the agent said that it has nothing to say (display.silence)"
        case "sent":
            return f"delivered{tries}{_parts(reply['parts'])}{marked}"
        case "dead":
            again = " again" if sum(each["kind"] == "dead" for each in reply.get("tries", ())) > 1 else ""
            return f"failed{again}: dead letter after {_count(_made(reply), 'attempt')}{error}"
        case "unknown":
            return f"delivery is unknown{tries}{marked}{error}"
    return f"is {reply['state']}{tries}{marked}{error}"


def _parts(stored: object) -> str:
    """The platform's ids of what is out."""
    parts = json.loads(stored) if isinstance(stored, str) else stored
    there = [str(each) for each in parts if each] if isinstance(parts, list) else []
    return f" as {', '.join(there)}" if there else ""


def _ended(message: Json) -> Iterator[TimelineEntry]:
    if message.get("edited_at") is not None:
        yield TimelineEntry(message["edited_at"], 1, "its author edited it", "in")
    if message["ended_at"] is not None:
        why = f": {_why(message['why'], message.get('suspended_why'))}" if message["why"] else ""
        kind, took_s = ("trouble" if message["state"] == "dead" else "in"), message["ended_at"] - message["received_at"]
        yield TimelineEntry(
            message["ended_at"], 10, f"{ENDS.get(message['state'], message['state'])}{why}", kind, took_s
        )


def _still_open(message: Json) -> Iterator[tuple[str, str]]:
    turn = message.get("turn")
    yield from _open_effects(turn) if turn else ()
    if turn and turn["state"] in STILL_OPEN:
        text = f"turn {turn['id']} is {turn['state']}" + (f": {_why(turn['reason'])}" if turn["reason"] else "")
        yield text, "trouble" if turn["state"] == "interrupted" else "turn"
    for reply in message["replies"]:
        if reply["ended_at"] is None:
            yield f"{_name(reply)} {_delivery(reply)}", _out(reply)
    if message["ended_at"] is None:
        yield OPEN.get(message["state"], f"the message is {message['state']}"), "in"


def _open_effects(turn: Json) -> Iterator[tuple[str, str]]:
    for effect in turn["effects"]:
        if effect["done_at"] is None:
            running = turn["state"] == "running" and effect["attempt"] == turn["attempts"][-1]["attempt"]
            state = "is running" if running else "has no result: its outcome is unknown"
            yield f"effect {effect['name']} {effect['call_id']} {state}", "tool" if running else "trouble"


def _why(why: object, suspended_why: str | None = None) -> str:
    if why == "suspended" and suspended_why:
        return f"its conversation was {suspended_why}"
    return WHYS.get(str(why), str(why))
