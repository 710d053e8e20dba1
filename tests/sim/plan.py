"""What happens in one simulated run: the people and what they do, the settings, the faults. A seed draws all of it.

A plan is a value: shrinking drops messages and faults from it, and a run of the rest draws its latencies anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

CHATS = 10
FAULTS_S = 60.0  # so long something breaks; then everything has to come to its end
LONG_S = 240.0  # so long in some runs: what was taken over from an instance that stood still meets faults, too
LAST_S = 10.0  # before that people have written
TOOLS = ("pure", "idempotent", "once")
KEYED, READABLE, CARDS, UNSURE = "keyed", "readable", "cards", "unsure"  # the platforms, named after what they can
PLATFORMS = (KEYED, READABLE, CARDS, UNSURE)


@dataclass(frozen=True)
class Said:
    """Something that a person does in a chat: a message, a command, or a change of an earlier message."""

    number: int
    at: float
    chat: str
    text: str
    of: int | None = None  # the message that is edited; one that is deleted, when there is no text

    @property
    def name(self) -> str:
        """How the answer names it."""
        return f"m{self.number}"

    @property
    def wants_answer(self) -> bool:
        """Whether it is a message for the agent. A steer is one, too."""
        return self.of is None and self.name in self.text.split()

    def __str__(self) -> str:
        what = "says" if self.of is None else f"edits m{self.of} to" if self.text else f"deletes m{self.of}"
        return f"{self.at:6.1f} s  {self.chat} {what} {self.text!r}"


@dataclass(frozen=True)
class Fault:
    """Something that breaks. `size` between 0 and 1 says how much, `place` which instance it is."""

    number: int
    at: float
    kind: str
    size: float
    place: int

    def __str__(self) -> str:
        return f"{self.at:6.1f} s  {self.kind} at instance {self.place}, size {self.size:.3f}"


@dataclass(frozen=True)
class Options:
    """Settings of the gateway, and what the platforms are like."""

    burst_s: float = 0.0
    running_turns: int = 64
    busy: str = "steer"
    interval_s: float = 0.8
    approval_expires_s: float = 300.0
    queued: int = 32  # so many messages may wait in a session
    skews: tuple[float, ...] = ()  # by how much the clock of each machine is wrong
    drifts: tuple[float, ...] = ()  # and how much faster it goes than time does


@dataclass(frozen=True)
class Plan:
    """Everything that a seed decides before the run."""

    seed: int
    instances: int
    options: Options
    homes: dict[str, str]  # the platform of each chat
    faults_s: float = FAULTS_S  # so long something breaks
    said: tuple[Said, ...] = field(default=())
    faults: tuple[Fault, ...] = field(default=())

    def __str__(self) -> str:
        happens: list[Said | Fault] = sorted([*self.said, *self.faults], key=_at)
        chats = ", ".join(f"{chat} on {home}" for chat, home in sorted(self.homes.items()) if self._talks(chat))
        head = f"{self.instances} instance(s), seed {self.seed}; {chats}; {self.options}"
        return "\n".join([head, *map(str, happens)])

    def _talks(self, chat: str) -> bool:
        return any(each.chat == chat for each in self.said)


def _at(event: Said | Fault) -> float:
    return event.at


# One instance on SQLite dies and starts again; several on one PostgreSQL also lose each other, and the database.
ALONE = (
    "crash",
    "point",
    "commit",
    "point",
    "commit",
    "drain",
    "pause",
    "slow",
    "bad",
    "disk",
    "jump",
    "late",
    "revoke",
)
SEVERAL = (
    "crash", "point", "commit", "freeze", "freeze", "drain", "pause", "slow", "bad", "partition", "restart database", "jump", "late", "revoke",
)  # fmt: skip


def drawn(seed: int) -> Plan:
    """The plan of a seed: a seed that three divides has one instance, the others two or three; one that five divides lasts long."""
    instances = 1 + seed % 3
    faults_s, messages, faults = (FAULTS_S, 60, 10) if seed % 5 else (LONG_S, 120, 30)
    chance = Random(f"plan {seed}")
    options = Options(
        burst_s=chance.choice((0.0, 0.35)),
        running_turns=chance.choice((2, 64)),
        busy=chance.choice(("steer",) * 5 + ("queue", "queue", "collect", "interrupt", "rollback")),
        interval_s=chance.choice((0.0, 0.8)),
        queued=chance.choice((2, 32, 32, 32)),
        skews=tuple(chance.uniform(-1, 1) for _ in range(instances)),
        drifts=tuple(chance.uniform(-0.001, 0.001) for _ in range(instances)),
    )
    homes = {f"c{number}": chance.choice(PLATFORMS) for number in range(CHATS)}
    said = [_said(chance, number, faults_s - LAST_S) for number in range(1, messages + 1)]
    if chance.random() < 0.2:
        said = _with_poison(chance, said)
    said = _with_changes(chance, said, faults_s - LAST_S)
    kinds = ALONE if instances == 1 else SEVERAL
    broken = [
        Fault(number, chance.uniform(0, faults_s), chance.choice(kinds), chance.random(), chance.randrange(instances))
        for number in range(1, faults + 1)
    ]
    return Plan(
        seed, instances, options, homes, faults_s,
        tuple(sorted(said, key=lambda each: each.at)), tuple(sorted(broken, key=lambda each: each.at)),
    )  # fmt: skip


COMMANDS = (("/new", 0.04), ("/stop", 0.04), ("/undo", 0.01), ("/retry", 0.01), ("/status", 0.01), ("/busy", 0.02))
MODES = ("steer", "queue", "interrupt", "collect", "rollback")


def _said(chance: Random, number: int, talk_s: float) -> Said:
    """A message with the tools that its answer needs, or a command. Some chats are busier than others."""
    chat = f"c{min(chance.randrange(CHATS), chance.randrange(CHATS))}"
    at, roll = chance.uniform(0, talk_s), chance.random()
    for command, share in COMMANDS:
        roll -= share
        if roll < 0:
            text = f"/busy {chance.choice(MODES)}" if command == "/busy" else command
            return Said(number, at, chat, text)
    words = [f"m{number}", *(chance.choice(TOOLS) for _ in range(chance.choice((0, 0, 1, 2))))]
    words += ["ask"] * (chance.random() < 0.08) + ["stream"] * (chance.random() < 0.5)
    words += ["compact"] * (chance.random() < 0.04) + ["silent"] * (chance.random() < 0.02)
    words += ["long"] * (chance.random() < 0.1)
    text = " ".join(words)
    return Said(number, at, chat, f"/steer {text}" if chance.random() < 0.08 else text)


def _with_poison(chance: Random, said: list[Said]) -> list[Said]:
    """One message kills every process that works on it."""
    poisoned = chance.choice([each for each in said if each.text.startswith("m")])
    poison = Said(poisoned.number, poisoned.at, poisoned.chat, f"{poisoned.text} poison")
    return [poison if each is poisoned else each for each in said]


def _with_changes(chance: Random, said: list[Said], talk_s: float) -> list[Said]:
    """Some messages are edited or deleted, mostly soon after they were sent."""
    changed = list(said)
    for each in said:
        if not each.text.startswith("m") or "poison" in each.text or chance.random() > 0.05:
            continue
        text = f"{each.name} changed" if chance.random() < 0.6 else ""
        later = min(talk_s, each.at + chance.expovariate(0.5))
        changed.append(Said(len(changed) + 1, later, each.chat, text, of=each.number))
    return changed
