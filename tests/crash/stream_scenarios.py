"""Scenarios of streaming messages: what is said in which pieces, where it dies, what the platform is and does to each call."""

import itertools
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from everturn.outbox.rules.delivery import Surety
from tests.crash.gateway_process import DIED, DONE, Death
from tests.crash.noting import CALLED
from tests.crash.processes import run_here, run_process
from tests.crash.seen import faults_of
from tests.crash.streaming import DEAD_LETTER, FAULTS, KINDS, TOOL, Stream, play, run_to_exit
from tests.postgres import memory

PREVIEW = ("preview.opened", "preview.sent", "preview.committed")
TURN = ("turn.calling", "turn.answering", "turn.finished")
ACT = ("step.committed", "effect.begun", "effect.acted", "effect.committed")
SEND = ("send.before", "send.after", "send.committed")
SILENT = 0.3
GROWING = sorted(set(KINDS) - {"whole"})
THREE_PIECES = ("alpha bravo", " charlie delta", " echo foxtrot")


def homes(folder: Path) -> Iterator[Path]:
    """Folders in this one, without end: one for each answer."""
    for number in itertools.count():
        (folder / str(number)).mkdir()
        yield folder / str(number)


def fresh(folder: Path, url: str = "", **about: object) -> Stream:
    """A new home and a new platform."""
    values: dict[str, object] = {"pieces": THREE_PIECES, **about}
    return Stream(url or f"sqlite:///{folder / 'everturn.db'}", folder, began=time.time(), **values)  # type: ignore[arg-type]


def run_stream(stream: Stream) -> int:
    """Run the stream, in a process of its own if it dies; how it ended."""
    return run_process(run_to_exit, stream) if stream.death else run_here(play(stream))


def check(stream: Stream, *deaths: Death) -> list[str]:
    """Die there, process after process, then run to the end; the points at which it died. The screen is right in the end;
    what the platform refuses may be a dead letter, for everybody to see.
    """
    died, code = [], DIED
    for death in (*deaths, None):
        code = run_stream(replace(stream, death=death))
        if code != DIED or death is None:
            break
        died.append(death.point)
    assert_right(stream, code, deaths)
    return died


def assert_right(stream: Stream, code: int, about: object = "") -> None:
    """Check how a scenario has to end."""
    platform = stream.platform()
    ends = {DONE, *([DEAD_LETTER] if stream.may_die(platform) else [])}
    assert code in ends, (code, about, platform.texts("one"), platform.met)
    assert faults_of(platform, stream.whole, dead=code == DEAD_LETTER) == [], about


@dataclass
class Totals:
    """What really happened in the scenarios, in numbers."""

    scenarios: int = 0
    deaths: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        deaths = ", ".join(f"{point} {times}" for point, times in sorted(self.deaths.items()))
        faults = ", ".join(f"{error} {times}" for error, times in sorted(self.faults.items()))
        return f"{self.scenarios} scenarios, {self.deaths.total()} deaths ({deaths}), {self.faults.total()} faults ({faults})"


@dataclass(frozen=True)
class StreamScenario:
    """What is said in which pieces, where it dies, and what the platform is and does."""

    pieces: tuple[str, ...]
    deaths: tuple[Death, ...]
    faults: tuple[str, ...]
    kind: str
    surety: Surety
    on_unknown_delivery: str
    silent: bool

    @property
    def limit(self) -> int:
        """A part has room for all that may have to be said: that it replaces another, or the request whether it arrived."""
        if self.surety is not Surety.NEITHER and "refused" not in self.faults:
            return 40
        return 4000 if self.kind == "whole" else 400 if self.on_unknown_delivery == "ask" else 120

    def happens(self, totals: Totals, url: str = "") -> None:
        """Run it, and check that the answer is seen once, whole."""
        with tempfile.TemporaryDirectory(dir=memory()) as folder:
            stream = fresh(
                Path(folder), url, pieces=self.pieces, faults=self.faults, seen=False, kind=self.kind, surety=self.surety,
                on_unknown_delivery=self.on_unknown_delivery, resends=self.on_unknown_delivery == "ask", limit=self.limit, silent=self.silent,
            )  # fmt: skip
            totals.scenarios += 1
            totals.deaths.update(check(stream, *self.deaths))
            totals.faults.update(each.error for each in stream.platform().met)


SAID = [
    "alpha ",
    "bravo\n",
    "charlie, ",
    "delta. \n\n",
    "echo",
    "```\ncode\n```\n",
    "\n<think>\nhm",
    "hidden\n</think>\n",
    TOOL,
]


def cut_anywhere(pieces: tuple[str, ...], cuts: list[int]) -> tuple[str, ...]:
    """The same text in other pieces: also cut in the middle of a word, a tag or a fence."""
    found: list[str] = []
    for says, group in itertools.groupby(pieces, lambda piece: piece != TOOL):
        whole = list(group)
        text = "".join(whole)
        places = [0, *sorted({cut for cut in cuts if cut < len(text)}), len(text)]
        found += [text[start:end] for start, end in itertools.pairwise(places)] if says else whole
    return tuple(found)


def numbered(pieces: list[str]) -> tuple[str, ...]:
    """Each piece that is said with a word of its own, so that a repetition is seen."""
    own = [piece if piece == TOOL or "think>" in piece else f"w{place}x {piece}" for place, piece in enumerate(pieces)]
    return ("first ", *own)


def at_calls(faults: dict[int, str]) -> tuple[str, ...]:
    """Faults by the number of the call that meets them."""
    return tuple(faults.get(call, "") for call in range(max(faults, default=-1) + 1))


def reachable(scenario: StreamScenario, earlier: Sequence[str]) -> list[str]:
    """The points that the next process passes, if it comes to where the last one died; what is seldom passed is named often."""
    answered, growing = bool({"turn.finished", "preview.removed", *SEND} & set(earlier)), scenario.kind != "whole"
    sends = not scenario.silent or growing
    points = [
        *(SEND if sends else SEND[2:]),
        *(["preview.removed"] * 3 * (scenario.silent and scenario.kind == "deleted")),
    ]
    points += ["recovery.outbox"] if earlier else []
    if scenario.on_unknown_delivery == "ask":
        points += ["delivery.asked"] * 6 if delivery_unknown(scenario, earlier) else PREVIEW[1:2] * 4 * growing
    if not answered:
        points += [*TURN, *(["recovery.turn"] if earlier else [])]
        points += ACT if TOOL in scenario.pieces and not set(ACT) & set(earlier) else []
        points += 2 * (PREVIEW[:1] if set(PREVIEW) & set(earlier) else PREVIEW) if growing else ()
        points += [CALLED] * 3 if sends else []
    return points


def delivery_unknown(scenario: StreamScenario, earlier: Sequence[str]) -> bool:
    """Whether something may have been sent."""
    return bool(
        {"send.before", "send.after"} & set(earlier) if scenario.kind == "whole" else set(PREVIEW[:2]) & set(earlier)
    )


def drawn(chance: Random) -> StreamScenario:
    """Draw a scenario. It dies at points that are really passed, mostly for the first time."""
    kind, surety = chance.choice([*GROWING, *GROWING, "whole"]), chance.choice(list(Surety))
    calls = chance.sample(range(10), chance.randint(0, 4))
    faults = at_calls({call: chance.choice(sorted(set(FAULTS) - {""})) for call in calls})
    pieces = numbered(chance.choices(SAID, k=chance.randint(1, 6)))
    cuts = chance.sample(range(1, 60), chance.choice([0, 0, 2, 4]))
    scenario = StreamScenario(
        pieces=cut_anywhere(pieces, cuts) if cuts else pieces,
        deaths=(),
        faults=faults,
        kind=kind,
        surety=surety,
        on_unknown_delivery=chance.choice(["mark", "ask", "ask", "drop"]) if surety is Surety.NEITHER else "mark",
        # What may be left above is not made up for by silence: nothing is there that could say so.
        silent=surety is not Surety.NEITHER and chance.random() < SILENT,
    )
    for _ in range(chance.choice([0, 1, 1, 2, 2, 3])):
        point = chance.choice(reachable(scenario, [death.point for death in scenario.deaths]))
        hit = chance.randint(1, 4) if point == CALLED else chance.choice([1, 1, 1, 1, 2])
        scenario = replace(scenario, deaths=(*scenario.deaths, Death(point, hit)))
    return scenario


def run_scenarios(number: int, scenarios: int, empty: Callable[[], str] = str) -> Totals:
    """Run so many scenarios, which the number alone decides; `empty` returns the address of an empty store for each."""
    totals = Totals()
    for place in range(scenarios):
        run_scenario(number, place, totals, empty())
    return totals


def run_scenario(number: int, place: int, totals: Totals, url: str = "") -> None:
    """Run one of them."""
    scenario = drawn(Random(f"{number}/{place}"))
    try:
        scenario.happens(totals, url)
    except AssertionError as error:
        error.add_note(f"seed {number}, number {place}: {scenario}")
        raise
