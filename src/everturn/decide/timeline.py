"""The life of one message in plain words: what the store tells as values, as lines in the order of time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from everturn.decide.exact_text import INDENT

Json = dict[str, Any]

ENDS = {
    "done": "the message is done",
    "withdrawn": "the message was withdrawn",
    "expired": "the message expired",
    "dead": "the message is a dead letter: it was given up",
}
OPEN = {"waiting": "the message waits for its turn", "claimed": "the message is being answered"}
STEPS = {
    "summary": "summary of the earlier conversation stored",
    "user": "the user's words stored",
    "assistant": "model response stored",
    "tool": "tool result stored",
}
WHYS = {
    "restart_timeout": "cut off by a restart whose patience ran out (restart_timeout)",
    "shutdown_timeout": "cut off by a stop whose patience ran out (shutdown_timeout)",
    "restart_interrupted": "the gateway ended without warning (restart_interrupted)",
    "the gateway ended": "the gateway ended while it was running",
    "cancelled": "it was cancelled",
    "waits for an approval": "it waits for a person's answer",
    "cut": "answered, but the answer is not complete",
    "failed": "it failed",
    "suspended": "the session was suspended after repeated interruptions",
    "/new": "the user began a fresh conversation (/new)",
    "/stop": "the user stopped it (/stop)",
    "/resume": "the user went to another conversation (/resume)",
    "operator": "an operator ended it",
    "revoked": "its author may no longer speak here (revoked)",
    "deleted": "its author deleted it",
    "too_old": "it was too old when it came (backlog_age_s)",
    "away": "it came while the gateway was away, and only the newest is answered, or nobody said that it should be",
    "/skip": "its author did not want it answered (/skip)",
    "too_long": "it is longer than what is taken",
    "asking": "it waits until a question is answered",
    "queue_full": "too many messages were waiting",
    "unstorable": "it could not be stored as it came",
}
ACTIONS = {
    "send": "the reply was sent again", "drop": "put away", "mark_sent": "the reply was marked as delivered",
    "run": "the message was run again", "resume": "the conversation was resumed", "stop": "the turn was stopped",
    "suspend": "the conversation was set aside", "reset": "a fresh conversation was begun",
}  # fmt: skip
TRIES = {"later": "failed", "given_up": "failed, and it was given up", "in_doubt": "may or may not have arrived"}
RUN_AGAIN = "@again-"
SILENCE = "silence"  # a reply that was not sent
LOST = "lost"  # a model call that was cut off before its response was stored
FAILED = frozenset({"failed", "suspended"})
CUT_OFF = frozenset({"the gateway ended", "restart_timeout", "shutdown_timeout", "failed", "suspended"})
STILL_OPEN = frozenset({"running", "waiting", "interrupted"})


class Line(NamedTuple):
    """Something that happened. `rank` orders what one commit did at one moment."""

    at: float
    rank: int
    words: str
    kind: str = "turn"  # in, turn, step, tool, out or trouble: how it is drawn
    took_s: float | None = None  # how long it lasted, where it ended something that began
    detail: str | None = None  # what somebody else said of it: an error, a question


def timeline(life: Json) -> list[tuple[float | None, str]]:
    """Everything that happened to a message, oldest first; what is still open has no time and comes last."""
    happened: list[tuple[float | None, str]] = [
        (line.at, words) for line in _happened(life) for words in _with_call(line)
    ]
    return happened + [(None, words) for words, _ in _still_open(life)]


def _with_call(line: Line) -> list[str]:
    """An approval request and the call that it showed; an error's details stand in its words already."""
    return [line.words, f"{INDENT}{line.detail}"] if line.kind == "tool" and line.detail else [line.words]


def drawn(life: Json) -> list[Json]:
    """The same, with what a picture of it needs."""
    lines: list[Json] = [
        {"at": line.at, "what": line.words, "detail": line.detail, "kind": line.kind, "took_s": line.took_s}
        for line in _happened(life)
    ]
    return lines + [
        {"at": None, "what": words, "detail": None, "kind": kind, "took_s": None} for words, kind in _still_open(life)
    ]


def _happened(life: Json) -> list[Line]:
    turn = life.get("turn")
    lines = [_received(life), *(_turn(turn, life.get("set_aside")) if turn else ()), *_replies(life["replies"])]
    lines += [*_actions(life.get("actions", ())), *_ended(life)]
    return sorted(lines, key=lambda line: line[:3])


def _received(life: Json) -> Line:
    if RUN_AGAIN in life["id"]:
        return Line(life["received_at"], 0, "message stored once more: an operator had it run again", "in")
    what = "command" if life["kind"] == "command" else "message"
    return Line(life["received_at"], 0, f"{what} received from {life['platform']} and stored", "in")


def _actions(actions: Iterable[Json]) -> Iterator[Line]:
    for each in actions:
        by = "the owner" if each["who"] == "owner" else each["who"]
        yield Line(each["at"], 6, f"{ACTIONS.get(each['action'], each['action'])} by {by}", "in")


def _turn(turn: Json, set_aside: str | None) -> Iterator[Line]:
    begun: float = turn["started_at"]
    yield Line(begun, 1, f"turn {turn['id']} began in session {turn['session_id']}")
    for attempt in turn["attempts"]:
        yield from _attempt(attempt, _last_sign(turn, attempt["attempt"]))
    for step in turn["steps"]:
        words = f"step {step['seq']}: {STEPS.get(step['role'], step['role'])} (attempt {step['attempt']})"
        yield Line(max(step["at"], begun), 5 if step["role"] == "tool" else 3, words, "step")
    for effect in turn["effects"]:
        yield from _effect(effect)
    for failure in turn.get("failures", ()):
        yield _failure(failure, turn["attempts"][-1]["attempt"])
    for approval in turn.get("approvals", ()):
        yield from _approval(approval)
    if turn["ended_at"] is not None:
        if turn.get("usage", {}).get("requests"):
            yield Line(turn["ended_at"], 8, _used(turn["usage"], turn.get("failures", ())))
        kind = "trouble" if turn["state"] in FAILED else "turn"
        words = f"turn ended: {_why(turn['why'] or turn['state'], set_aside)}"
        yield Line(turn["ended_at"], 9, words, kind, turn["ended_at"] - begun)


def _failure(failure: Json, last_attempt: int) -> Line:
    then = f"; tried again after {failure['wait_s']:g} s" if failure["wait_s"] else ""
    if failure["kind"] == LOST and last_attempt > failure["attempt"]:
        then = "; asked again"
    words = f"{_failed(failure['kind'])}: {failure['why']}{then} (attempt {failure['attempt']})"
    return Line(failure["at"], 3, words, "trouble", detail=failure["why"])


def _failed(kind: str) -> str:
    return {"compaction": "compaction failed", LOST: "model call lost"}.get(kind, f"model call failed ({kind})")


def _approval(approval: Json) -> Iterator[Line]:
    words = f"question {approval['id']} asked: may {approval['tool']} be used?"
    yield Line(approval["asked_at"], 4, words, "tool", detail=approval.get("question"))
    if approval["answered_at"] is not None:
        by = f" by {approval['answered_by']}" if approval["answered_by"] else ""
        words = f"question {approval['id']} {approval['state']}{by}"
        yield Line(approval["answered_at"], 1, words, "tool", approval["answered_at"] - approval["asked_at"])


def _used(usage: Json, failures: Iterable[Json]) -> str:
    cost = f", costs {usage['cost']:.4f}" if usage.get("cost") is not None else ""
    cached = f" ({usage['cached_tokens']} cached)" if usage.get("cached_tokens") else ""
    lost = sum(each["kind"] == LOST for each in failures)
    of_these = f" ({lost} lost)" if lost else ""
    return (
        f"used in all: {_count(usage['requests'], 'model request')}{of_these}, {usage['input_tokens']} tokens in{cached},"
        f" {usage['output_tokens']} out{cost}"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _last_sign(turn: Json, number: int) -> float:
    """When an attempt is last known to have done something: a death is dated by a heartbeat, which may be older."""
    steps, effects = ([each for each in turn[name] if each["attempt"] == number] for name in ("steps", "effects"))
    signs = [each["at"] for each in steps] + [each["begun_at"] for each in effects]
    later = [each["started_at"] for each in turn["attempts"] if each["attempt"] > number]
    return float(min([max(signs, default=0.0), *later]))


def _attempt(attempt: Json, last_sign: float) -> Iterator[Line]:
    number, note = attempt["attempt"], attempt["note"]
    given = f"with the note {note}" if note else "without a note"
    yield Line(attempt["started_at"], 2, f"attempt {number} began {given} (gateway life {attempt['instance']})")
    if attempt["ended_at"] is not None:
        kind = "trouble" if attempt["why"] in CUT_OFF else "turn"
        words = f"attempt {number} ended: {_why(attempt['why'])}"
        ended_at = max(attempt["ended_at"], attempt["started_at"], last_sign)
        yield Line(ended_at, 8, words, kind, ended_at - attempt["started_at"])


def _effect(effect: Json) -> Iterator[Line]:
    name = f"effect {effect['name']} {effect['call_id']}"
    yield Line(effect["begun_at"], 4, f"{name} ({effect['class']}) begun (attempt {effect['attempt']})", "tool")
    if effect["done_at"] is not None:
        yield Line(effect["done_at"], 4, f"{name} done", "tool", effect["done_at"] - effect["begun_at"])


def _replies(replies: list[Json]) -> Iterator[Line]:
    for reply in replies:
        name = _name(reply)
        yield Line(reply["created_at"], 6, f"{name} written", "out")
        yield from _tries(reply)
        if reply["ended_at"] is not None:
            kind, took_s = _out(reply), reply["ended_at"] - reply["created_at"]
            yield Line(reply["ended_at"], 7, f"{name} {_delivery(reply)}", kind, took_s, reply["error"])


def _name(reply: Json) -> str:
    return "reply" if reply["kind"] == SILENCE else str(reply["kind"])


def _tries(reply: Json) -> Iterator[Line]:
    """Those that did not end well; the last of a dead letter is told with its end."""
    tries = reply.get("tries", [])
    for number, each in enumerate(tries, 1):
        if number < len(tries) or reply["state"] != "dead" or each["kind"] != "given_up":
            words = f"{reply['kind']}: attempt {number} {TRIES.get(each['kind'], 'failed')}: {each['why']}"
            yield Line(each["at"], 7, words, "trouble", detail=each["why"])


def _made(reply: Json) -> int:
    """All attempts ever to deliver it: those since it was last sent again, or all that are known."""
    return max(int(reply["attempts"]), len(reply.get("tries", ())) + (reply["state"] in {"sent", "sending"}))


def _out(reply: Json) -> str:
    return "trouble" if reply["error"] or reply["state"] in {"dead", "doubtful"} else "out"


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
            again = " again" if sum(each["kind"] == "given_up" for each in reply.get("tries", ())) > 1 else ""
            return f"given up{again} after {_count(_made(reply), 'attempt')}{error}"
    return f"is {reply['state']}{tries}{marked}{error}"


def _parts(stored: object) -> str:
    """The platform's ids of what is out."""
    parts = json.loads(stored) if isinstance(stored, str) else stored
    there = [str(each) for each in parts if each] if isinstance(parts, list) else []
    return f" as {', '.join(there)}" if there else ""


def _ended(life: Json) -> Iterator[Line]:
    if life.get("edited_at") is not None:
        yield Line(life["edited_at"], 1, "its author changed its words", "in")
    if life["ended_at"] is not None:
        why = f": {_why(life['why'], life.get('set_aside'))}" if life["why"] else ""
        kind, took_s = ("trouble" if life["state"] == "dead" else "in"), life["ended_at"] - life["received_at"]
        yield Line(life["ended_at"], 10, f"{ENDS.get(life['state'], life['state'])}{why}", kind, took_s)


def _still_open(life: Json) -> Iterator[tuple[str, str]]:
    turn = life.get("turn")
    yield from _open_effects(turn) if turn else ()
    if turn and turn["state"] in STILL_OPEN:
        words = f"turn {turn['id']} is {turn['state']}" + (f": {_why(turn['reason'])}" if turn["reason"] else "")
        yield words, "trouble" if turn["state"] == "interrupted" else "turn"
    for reply in life["replies"]:
        if reply["ended_at"] is None:
            yield f"{_name(reply)} {_delivery(reply)}", _out(reply)
    if life["ended_at"] is None:
        yield OPEN.get(life["state"], f"the message is {life['state']}"), "in"


def _open_effects(turn: Json) -> Iterator[tuple[str, str]]:
    for effect in turn["effects"]:
        if effect["done_at"] is None:
            running = turn["state"] == "running" and effect["attempt"] == turn["attempts"][-1]["attempt"]
            state = "is running" if running else "has no result: its outcome is unknown"
            yield f"effect {effect['name']} {effect['call_id']} {state}", "tool" if running else "trouble"


def _why(why: object, set_aside: str | None = None) -> str:
    if why == "suspended" and set_aside:
        return f"its conversation was {set_aside}"
    return WHYS.get(str(why), str(why))
