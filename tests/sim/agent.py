"""The agent of the simulation: it does what the texts of its turn say, and writes down what it asked its model and what its tools did.

`m7 once pure` is two tool calls and then an answer that names every message it answers: "re m7". One that is `long` takes several
messages, the last of which ends with "end m7".
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from everturn.agent.interface import Answer, TurnContext
from everturn.model import Effect, ToolCall
from tests.promises import NOTE
from tests.sim.plan import TOOLS

NAME = re.compile(r"m\d+")
LONG = 60  # repetitions


@dataclass(frozen=True)
class Asked:
    """A request to the model: the step that it is for, whether its turn was still ours, and the notes in it."""

    step: str
    session: str  # the session key
    turn: int
    ours: bool
    notes: int


@dataclass(frozen=True)
class Happened:
    """A tool call that really happened, under its idempotency key."""

    effect: Effect
    call: str  # its turn and its id
    key: str
    name: str
    session: str  # the session key


Ledger = list[Asked | Happened]


class SimAgent:
    """Works through a turn. `wait` passes virtual time, `owns` says from outside whether the turn is still this process's."""

    def __init__(
        self,
        ledger: Ledger,
        wait: Callable[[float, float], Awaitable[None]],
        owns: Callable[[TurnContext], bool],
        die: Callable[[], None],
        trace: Callable[..., None],
    ) -> None:
        self._ledger = ledger
        self._wait = wait
        self._owns = owns
        self._die = die
        self._trace = trace
        self.begun: dict[str, TurnContext] = {}  # by session key, the last attempt that it was given
        self.running: set[str] = set()  # session keys

    def marks_calls(self, _key: str) -> bool:
        """Nothing ends a process before its first call."""
        return True

    async def run(self, turn: TurnContext) -> Answer:
        """One attempt."""
        self._trace("agent", turn.key, turn.text.replace("\n", " | "), "attempt", turn.attempt, turn.note or "")
        self.begun[turn.key] = turn
        self.running.add(turn.key)
        try:
            return await self._work(turn)
        finally:
            self.running.discard(turn.key)

    async def _work(self, turn: TurnContext) -> Answer:
        act = partial(self._act, turn)
        await turn.calling()
        if turn.attempt > 1:
            await turn.settle(act)
        while True:
            await turn.joined()
            own = await turn.own()
            said = " ".join(row.content for row in own if row.role == "user").split()
            plan, done = calls_in(said), sum(bool(row.calls) for row in own)
            if "compact" in said and done == 0 and not any(row.role == "summary" for row in await turn.history()):
                await turn.session.compact("what was said before", 6)
                continue
            await self._ask(turn, done, said)
            if done < len(plan):
                call = ToolCall(f"c{done + 1}", plan[done][0], effect=plan[done][1], ask=plan[done][2])
                await turn.step("I look." if "stream" in said else "", [call], act)
                continue
            names = list(dict.fromkeys(word for word in said if NAME.fullmatch(word)))
            text = f"re {' '.join(names)}"
            if "long" in said:
                text = f"{text}\n{'and so on ' * LONG}\nend {' '.join(names)}"
            await self._say(turn, said, text)
            return Answer("(silent)" if "silent" in said and len(names) == 1 else text)

    async def _ask(self, turn: TurnContext, done: int, said: list[str]) -> None:
        """One request to the model."""
        notes = sum(NOTE in row.content for row in await turn.history()) + bool(turn.note)
        self._ledger.append(Asked(f"{turn.id}:c{done + 1}", turn.key, int(turn.id), self._owns(turn), notes))
        await self._wait(-2, 0.3)
        if "poison" in said:
            self._die()
            await self._wait(9, 9)

    async def _say(self, turn: TurnContext, said: list[str], text: str) -> None:
        """Stream the answer, if somebody wants to watch it grow."""
        if "stream" not in said:
            return
        words = [*text.split(), *(f"word{number}" for number in range(6))]
        for place in range(1, len(words) + 1, 1 + len(words) // 15):
            turn.stream(" ".join(words[:place]))
            await self._wait(-2, 0)

    async def _act(self, turn: TurnContext, call: ToolCall, key: str) -> str:
        await self._wait(-3, 0)
        self._ledger.append(Happened(call.effect, f"{turn.id}:{call.id}", key, call.name, turn.key))
        self._trace("effect", call.name, key)
        await self._wait(-3, 0)
        return f"{call.name} done"


def calls_in(said: list[str]) -> list[tuple[str, Effect, str | None]]:
    """The tool calls that a text wants, in order: name, class, and the text of the approval request."""
    calls: list[tuple[str, Effect, str | None]] = []
    for word in said:
        if word in TOOLS:
            calls.append((word, Effect(word), None))
        elif word == "ask":
            calls.append((word, Effect.ONCE, "May I?"))
    return calls
