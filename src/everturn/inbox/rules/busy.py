"""The busy modes: what a message does while a turn runs, and which messages begin a turn together."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import takewhile
from typing import TypeVar

from everturn.commands.rules.registry import parse_command

LONGEST_BURST_S = 1.0
ALBUM_S = 0.8  # when no further part of an album came for so long, it is whole
OUTCOME_UNKNOWN = "The outcome of this call is unknown: it was cut off while it ran. It was not run again."


class BusyMode(StrEnum):
    """The busy modes."""

    STEER = "steer"  # it joins the running turn before its next model call
    QUEUE = "queue"  # it is the next turn
    INTERRUPT = "interrupt"  # the running turn ends, it is the next one
    COLLECT = "collect"  # what comes until it is quiet is the next turn
    ROLLBACK = "rollback"  # the running turn is rolled back, it is the next one


TAKES_OVER = frozenset({BusyMode.INTERRUPT, BusyMode.ROLLBACK})
_BY_NAME: dict[str | None, BusyMode] = {mode.value: mode for mode in BusyMode}
_FORCED = {"steer": BusyMode.STEER, "queue": BusyMode.QUEUE}


def busy_of(
    forced: str | None, chosen: str | None, configured: str, *, turn_open: bool, others_wait: bool
) -> BusyMode | None:
    """The busy mode of an accepted message: its own, else that of /busy, else the configured one. None: no turn is open."""
    busy = _BY_NAME.get(forced) or _BY_NAME.get(chosen) or _BY_NAME.get(configured) or BusyMode.STEER
    if turn_open or (busy is BusyMode.COLLECT and others_wait):
        return busy
    return None


def forced_by(text: str) -> tuple[BusyMode, str] | None:
    """The busy mode and text of `/steer text` and `/queue text`; without a text they are commands."""
    command = parse_command(text) if text.startswith("/") else None
    if command is None or command.name not in _FORCED or not command.argument.strip():
        return None
    return _FORCED[command.name], command.argument


def skipped(because: str) -> str:
    """The result of a tool call that was never begun: calls and results stay paired."""
    return f"Skipped: this call was not run, because {because}."


NEW_MESSAGE = skipped("the user wrote a new message, which follows")


def steers(modes: Sequence[str | None]) -> int:
    """How many of the queued messages, in order, join the running turn: up to the first with another mode."""
    return sum(1 for _ in takewhile(lambda mode: mode == BusyMode.STEER, modes))


Author = TypeVar("Author")


def burst(waiting: Sequence[tuple[Author, float]], burst_s: float) -> int:
    """How many of the queued messages begin one turn: of one author, each soon after the last. At least the first does."""
    first_author, first_at = waiting[0]
    count, last_at = 1, first_at
    for author, at in waiting[1:]:
        if author != first_author or not 0 <= at - last_at <= burst_s or at - first_at > LONGEST_BURST_S:
            break
        count, last_at = count + 1, at
    return count if burst_s > 0 else 1


def quiet_at(collected: Sequence[float], collect_s: float) -> float:
    """When the collected messages, by the times they were accepted, have been followed by a quiet time of `collect_s`."""
    return max(collected) + collect_s
