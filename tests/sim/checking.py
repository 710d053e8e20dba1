"""What the outside saw of a simulated run, against what was promised: people, platforms, models, tools, and operators."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from everturn.model import Effect
from everturn.outbox.rules.delivery import MAY_REPEAT
from everturn.outbox.rules.outbox_texts import PAUSED, REPLACES
from tests.promises import overtaken, paid_twice, repeated
from tests.sim.agent import NAME, Asked, Happened
from tests.sim.network import LATE_S
from tests.sim.operators import answered, dead_letters, with_notes
from tests.sim.plan import READABLE, UNSURE, Said
from tests.sim.platforms import OPEN_CARD, Refusal, Shown
from tests.sim.world import SimWorld, key_of

ANSWER = re.compile(r"^re (m\d+(?: m\d+)*)", re.MULTILINE)
ENDS = re.compile(r"^end (m\d+(?: m\d+)*)", re.MULTILINE)
CURSOR = "▌"
ENDED = "(Ended without an answer.)"
FRESH = "This is a fresh conversation"
QUEUE_FULL = "which is the limit"
ENDS_TASKS = ("/new", "/stop", "/undo", "/retry")  # they end the turn before them, or take messages out of the queue
TAKES_OVER = ("interrupt", "rollback")  # busy modes in which every message ends the turn before it
STUCK_AFTER = 3
MOST_PARTS = 4  # of an answer
MIDDLE = "and so on"  # in a part of a long answer, which may have no name


def problems_of(world: SimWorld) -> list[str]:
    """Every broken promise, as a sentence."""
    chats = [SeenChat.of(world, chat) for chat in sorted(world.plan.homes)]
    found = [f"{problem} in {chat.name} on {chat.home}" for chat in chats for problem in chat.problems()]
    noted = [f"a note is stored: {row}" for row in with_notes(world.database)]
    return [*world.problems, *found, *steps(world), *noted]


def strictly_judged(world: SimWorld) -> tuple[int, int]:
    """How many messages must have been answered, whatever happened, and how many there are."""
    chats = [SeenChat.of(world, chat) for chat in world.plan.homes]
    asked = [(chat, each) for chat in chats for each in chat.said if each.wants_answer]
    return sum(not chat.is_excused(each) for chat, each in asked), len(asked)


class Posted(NamedTuple):
    """A message on its way to the gateway."""

    id: str
    sent: float
    acknowledged: float | None


@dataclass(frozen=True)
class SeenChat:
    """A chat as its people saw it in the end, and what they had said."""

    name: str
    home: str
    said: Sequence[Said]
    screen: Mapping[str, Shown]  # by the ids of the messages, in their order
    refused: Sequence[Refusal]  # what the platform refused there: it may be a dead letter
    busy: str
    cut_off: Sequence[float]  # when a process was cut off while a turn of this chat ran
    taken: Mapping[int, float]  # when the gateway said that it had received something
    answered: frozenset[int]  # the messages whose turn was answered, as operators see it
    dead: Sequence[str]  # what stands in the operators' list of dead letters
    revoked_at: float | None  # when it was confirmed that its person may no longer speak

    @classmethod
    def of(cls, world: SimWorld, name: str) -> SeenChat:
        """The chat of this name."""
        home = world.plan.homes[name]
        platform = world.platforms[home]
        return cls(
            name,
            home,
            [each for each in world.plan.said if each.chat == name],
            {number: shown for number, shown in platform.screen.items() if shown.chat == name},
            [refusal for refusal in platform.refused if refusal.chat == name],
            world.plan.options.busy,
            world.cut_off.get(key_of(home, name), ()),
            world.people.taken,
            answered(world.database),
            dead_letters(world.database),
            world.people.revoked.get(name),
        )

    @cached_property
    def shown(self) -> Sequence[Shown]:
        """The messages on its screen."""
        return list(self.screen.values())

    @cached_property
    def texts(self) -> Sequence[str]:
        """What it shows, and what it was to show and the platform refused."""
        return [*(each.text for each in self.shown), *(each.text for each in self.refused)]

    @cached_property
    def touched(self) -> frozenset[str]:
        """The names whose answer met a refusal: a part of it may be a dead letter, or stand beneath what it replaces."""
        texts = [refusal.text for refusal in self.refused]
        texts += [self.screen[refusal.shown].text for refusal in self.refused if refusal.shown in self.screen]
        found = {name for text in texts for name in NAME.findall(text)}
        if any(MIDDLE in text and not NAME.search(text) for text in texts):
            found |= {each.name for each in self.said if "long" in each.text.split()}
        return frozenset(found)

    def problems(self) -> Iterator[str]:
        """What is wrong with it."""
        yield from self.lost()
        yield from self.doubled()
        yield from self.reordered()
        yield from self.unfinished()
        yield from self.answered_strangers()
        yield from self.suspended_innocents()

    def answers(self) -> list[tuple[list[str], bool]]:
        """The names in each answer, in the order of the screen, and whether it says that it may be a repetition."""
        found = []
        for place, shown in enumerate(self.shown):
            if CURSOR in shown.text:  # no answer yet: `unfinished` says whether it may stay like this
                continue
            whole = shown.text  # of an answer that takes several messages, the last one says that it is a repetition
            if ANSWER.search(whole) and not ENDS.search(whole):
                whole += "".join(each.text for each in self.shown[place + 1 : place + MOST_PARTS])
            names = [name for line in ANSWER.findall(shown.text) for name in NAME.findall(line)]
            ends = [f"end {name}" for line in ENDS.findall(shown.text) for name in NAME.findall(line)]
            found.append((names + ends, MAY_REPEAT in whole or REPLACES in whole))
        return found

    def suspended(self) -> bool:
        """Whether its people were told that the conversation is suspended."""
        return any("suspended" in text for text in self.texts)

    def lost(self) -> Iterator[str]:
        """Promises 1 and 6: every accepted message is answered, unless its people or a refusal took it back."""
        answered = {name for names, _ in self.answers() for name in names}
        for each in self.said:
            if not each.wants_answer or self.is_excused(each):
                continue
            edited = any(change.of == each.number for change in self.said)
            if each.name not in answered:
                yield f"lost: {each.text!r}"
            elif "long" in each.text and not edited and f"end {each.name}" not in answered:
                yield f"cut: the end of the answer to {each.text!r}"

    def is_excused(self, said: Said) -> bool:
        """Whether people, a refusal or a limit may have taken this message out of the run."""
        if said.name in self.touched or self.suspended() or "silent" in said.text or self.revoked_at is not None:
            return True
        dead = any(said.name in text.split() for text in self.dead)
        if dead and any(QUEUE_FULL in text for text in self.texts):
            return True
        if said.number in self.answered:
            return False
        later = [
            each
            for each in self.said
            if each is not said and (each.at > said.at or self._may_have_overtaken(each, said))
        ]
        busy = [self.busy, *(each.text.removeprefix("/busy ") for each in self.said if each.text.startswith("/busy"))]
        ended = any(each.text in ENDS_TASKS or (each.of == said.number and not each.text) for each in later)
        return ended or (any(mode in TAKES_OVER for mode in busy) and any(each.wants_answer for each in later))

    def _may_have_overtaken(self, each: Said, said: Said) -> bool:
        """What is posted may be overtaken on its way; what is polled comes in its order."""
        return self.home != READABLE and self.taken.get(each.number, math.inf) > said.at

    def doubled(self) -> Iterator[str]:
        """Promises 2 and 6: a message is answered once. Where nothing helps, a repetition says that it is one."""
        if any(each.text in {"/retry", "/undo"} for each in self.said):
            return
        clear = Counter(name for names, marked in self.answers() for name in names if not marked)
        every = Counter(name for names, _ in self.answers() for name in names)
        for name, times in every.items():
            may_mark = self.home == UNSURE or name.removeprefix("end ") in self.touched
            if (clear[name] > 1 and not self.mark_refused(name)) or (times > 1 and not may_mark):
                yield f"doubled: {name}, {times} times"

    def mark_refused(self, name: str) -> bool:
        """Whether the part was refused that says of a repeated answer that it is one: it is a dead letter."""
        return any(MAY_REPEAT in refusal.text and name in NAME.findall(refusal.text) for refusal in self.refused)

    def reordered(self) -> Iterator[str]:
        """Promise 3: answers come in the order of the messages."""
        if any(not each.wants_answer or each.text.startswith("/") for each in self.said):
            return
        by_name = {each.name: each for each in self.said if each.name not in self.touched}
        order = list(dict.fromkeys(name for names, _ in self.answers() for name in names if name in by_name))
        said = [by_name[name] for name in order]
        for name in overtaken([Posted(each.name, each.at, self.taken.get(each.number)) for each in said]):
            yield f"reordered: {order}, {name} after a message that was sent when it was acknowledged"

    def suspended_innocents(self) -> Iterator[str]:
        """Promise 9: a conversation is suspended when its own turns were cut off three times; a fresh one begins to count anew."""
        suspended = [max(shown.at, shown.changed_at) for shown in self.shown if "suspended" in shown.text]
        if not suspended or any("poison" in each.text for each in self.said):
            return
        fresh = [shown.at for shown in self.shown if FRESH in shown.text and shown.at < min(suspended)]
        began = max(
            (each.at for each in self.said if each.text == "/new" and fresh and each.at < fresh[-1]), default=0.0
        )
        times = sum(at > began for at in self.cut_off)
        if times < STUCK_AFTER:
            yield f"suspended though its turns were cut off only {times} times since {began:.0f} s"

    def answered_strangers(self) -> Iterator[str]:
        """Promise 11: who was revoked gets nothing any more, but for what was on its way."""
        if self.revoked_at is None:
            return
        for shown in self.shown:
            late = shown.at > self.revoked_at + LATE_S and ENDED not in shown.text
            if late and ANSWER.search(shown.text):
                yield f"answered though revoked: {shown.text!r}"
        answered = {name for names, _ in self.answers() for name in names}
        for each in self.said:
            if each.at > self.revoked_at and each.name in answered:
                yield f"answered though revoked: {each.text!r}"

    def unfinished(self) -> Iterator[str]:
        """Nothing looks as if more came, but for what a message below says that it replaces, or was to say and was refused."""
        changed = {each for refusal in self.refused for each in (refusal.shown, refusal.key) if each}
        for place, (number, shown) in enumerate(self.screen.items()):
            marks = CURSOR in shown.text or shown.card or OPEN_CARD in shown.text or PAUSED in shown.text
            cut = re.search(r"word\d+$", shown.text)
            below = [*(each.text for each in self.shown[place + 1 :]), *(refusal.text for refusal in self.refused)]
            replaced = self.home == UNSURE and any(REPLACES in text for text in below)
            refused = number in changed or shown.key in changed or not self.touched.isdisjoint(NAME.findall(shown.text))
            excused = refused or replaced or self.revoked_at is not None
            if (marks or cut) and not excused:
                yield f"unfinished: {shown.text!r}"


def steps(world: SimWorld) -> Iterator[str]:
    """What is wrong with what the agents asked and did, in the order in which it happened."""
    asked = [fact for fact in world.ledger if isinstance(fact, Asked)]
    happened = [fact for fact in world.ledger if isinstance(fact, Happened)]
    yield from (f"{fact.notes} notes in the request for {fact.step}" for fact in asked if fact.notes > 1)
    yield from two_turns_at_once([fact for fact in asked if fact.ours])
    yield from paid_twice(
        ("effect", fact.call) if isinstance(fact, Happened) else ("request", fact.step)
        for fact in world.ledger
        if isinstance(fact, Happened) or fact.ours
    )
    yield from repeated((fact.call for fact in happened if fact.effect is Effect.ONCE), "effect happened twice")
    yield from other_keys(happened)
    yield from unapproved(world, happened)


def two_turns_at_once(asked: Sequence[Asked]) -> Iterator[str]:
    """Promise 3: a key has one turn at a time."""
    turns: dict[str, list[int]] = {}
    for fact in asked:
        order = turns.setdefault(fact.session, [])
        if fact.turn in order[:-1]:
            yield f"two turns of {fact.session} at once: {fact.turn} goes on after {order[-1]} began"
        if fact.turn not in order:
            order.append(fact.turn)


def other_keys(happened: Sequence[Happened]) -> Iterator[str]:
    """Promise 5: a call that is repeated has the key that it had before."""
    keys: dict[str, str] = {}
    for fact in happened:
        if keys.setdefault(fact.call, fact.key) != fact.key:
            yield f"repeated under another key: {fact.call}, {fact.key} after {keys[fact.call]}"


def unapproved(world: SimWorld, happened: Sequence[Happened]) -> Iterator[str]:
    """What asks for an approval runs once for each that its person gave."""
    ran = Counter(fact.session for fact in happened if fact.name == "ask")
    for chat, home in world.plan.homes.items():
        if ran[key_of(home, chat)] > len(world.people.approved.get(chat, ())):
            yield f"a tool ran without an approval in {chat} on {home}"
