"""An agent whose tool needs an approval, for the scenarios of real platforms; what outlives it; and what people may see in
the end.
"""

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from everturn.agent.interface import Answer, TurnContext
from everturn.inbox.rules import OUTCOME_UNKNOWN
from everturn.model import Effect, ToolCall
from everturn.outbox.rules.delivery import MAY_REPEAT
from everturn.outbox.rules.outbox_texts import REPLACES
from everturn.turns.rules import turn_texts
from everturn.turns.rules.approvals import ApprovalScope
from tests.crash.growing import FIRST_TEXT

TOOL = "write"
WRITTEN = "it is written"
REQUEST = f"May I use {TOOL}?"
ALLOW = turn_texts.buttons(0)[0][0]
APPROVED = turn_texts.approved(TOOL, ApprovalScope.ONCE)


@dataclass(frozen=True)
class Notes:
    """What is written down beside the database of a scenario: that somebody pressed, and what the tool did."""

    folder: Path

    @classmethod
    def of(cls, database: str) -> Self:
        """The notes of the scenario with this database."""
        return cls(Path(database.removeprefix("sqlite:///")).with_suffix(".notes"))

    def pressed(self, press: Callable[[], bool]) -> bool:
        """Press, unless that was done: people do not press again because we restart. No death comes in between."""
        self.folder.mkdir(exist_ok=True)
        file = self.folder / "pressed"
        if not file.exists() and press():
            file.touch()
        return file.exists()

    def act(self) -> None:
        """The tool does what it does."""
        self.folder.mkdir(exist_ok=True)
        number = os.open(self.folder / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(number, b"written\n")
        os.close(number)

    def effects(self) -> int:
        """How often it did."""
        file = self.folder / "effects"
        return len(file.read_text().splitlines()) if file.exists() else 0


class Careful:
    """Requests an approval, uses its tool, and answers with its result."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    async def run(self, turn: TurnContext) -> Answer:
        """Do the same in every attempt; the approval is requested and the tool used once in all of them."""
        await turn.calling()
        if turn.attempt > 1:
            await turn.settle(self._act)
        if not any(row.calls for row in await turn.own()):
            await turn.step("", [ToolCall("call-1", TOOL, effect=Effect.ONCE, ask="Now?")], self._act)
        results = [row.content for row in await turn.own() if row.role == "tool"]
        return Answer(f"{FIRST_TEXT} {turn.text}. {' '.join(results)}")

    async def _act(self, _call: ToolCall, _key: str) -> str:
        self._notes.act()
        return WRITTEN


def is_marked(text: str) -> bool:
    """Whether a message says that it may be a repetition."""
    return MAY_REPEAT in text or REPLACES in text


def faults_of(texts: Sequence[str], answer: str, effects: int, *, may_repeat: Collection[str] = ()) -> list[str]:
    """What is wrong in the end: a request, the notice that it was approved, and the answer, in this order, each once; the
    tool was used once, or its outcome is unknown. One of those that `may_repeat` may stand there again, and then says so.
    """
    kinds = [_kind(text, answer) for text in texts]
    unmarked = [kind for kind, text in zip(kinds, texts, strict=True) if not is_marked(text)]
    marked = [kind for kind, text in zip(kinds, texts, strict=True) if is_marked(text)]
    known = WRITTEN in texts[-1]
    wrong = {
        "not each of them, in order": list(dict.fromkeys(kinds)) != [REQUEST, APPROVED, answer],
        "twice without saying so": len(set(unmarked)) != len(unmarked),
        "says that it repeats, and cannot": len(marked) > 1 or not set(marked) <= set(may_repeat),
        "the tool was used twice, or not, and the answer does not say so": effects != 1 if known else effects > 1,
        "an answer without an outcome": not known and OUTCOME_UNKNOWN not in texts[-1],
    }
    return [f"{what}: {list(texts)}, used {effects} times" for what, is_wrong in wrong.items() if is_wrong]


def _kind(text: str, answer: str) -> str:
    plain = text.replace(MAY_REPEAT, "").replace(REPLACES, "").strip()
    return next((kind for kind in (REQUEST, APPROVED, answer) if plain.startswith(kind)), plain)
