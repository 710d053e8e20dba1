"""The platforms of this process: what each can do, asked once, how its replies leave, and whether it is connected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from everturn.clock import Clock
from everturn.model import Json
from everturn.operator.rows.overview import note_contact
from everturn.outbox.rules.delivery import Delivery, Surety, UnknownAction, unknown_action
from everturn.platform.interface import (
    CanEdit,
    CanFetch,
    CanPull,
    CanReadBack,
    CanSend,
    CanTellContact,
    CanType,
    HasChangingMembers,
    Platform,
)
from everturn.platform.rules import Reach, reach_of
from everturn.platform.screens import screen_of
from everturn.store.interface import Store

NOTED_EVERY_S = 60.0


class Platforms:
    """The adapters by their names, and what each can do: asking that is slow enough to be done once."""

    def __init__(
        self, adapters: Mapping[str, Platform], valid_s: Mapping[str, float], on_unknown: Callable[[str], str]
    ) -> None:
        """`valid_s` and `on_unknown` are settings: how long a reply is of use, and what to do when its delivery is unknown."""
        self.adapters = adapters
        self._on_unknown = on_unknown
        self.senders = {name: each for name, each in adapters.items() if isinstance(each, CanSend)}
        self.fetchers = {name: each for name, each in adapters.items() if isinstance(each, CanFetch)}
        self.typists = {name: each for name, each in adapters.items() if isinstance(each, CanType)}
        self.screens = {name: screen for name, each in adapters.items() if (screen := screen_of(each)) is not None}
        self._deliveries = {name: _delivery(each, valid_s.get(name)) for name, each in adapters.items()}

    def delivery(self, platform: str) -> Delivery:
        """How replies to a platform leave; those to one that is not connected wait for it."""
        return self._deliveries.get(platform) or Delivery(by_event=False)

    def event_platforms(self) -> frozenset[str]:
        """The platforms that deliver by events: a notice there is delivered with its commit."""
        return frozenset(name for name, delivery in self._deliveries.items() if delivery.by_event)

    def changing_directs(self) -> frozenset[str]:
        """The platforms whose adapters say that the members of a direct chat can change."""
        return frozenset(
            name
            for name, each in self.adapters.items()
            if isinstance(each, HasChangingMembers) and each.direct_members_change
        )

    def unknown_actions(self) -> dict[str, UnknownAction]:
        """The action for a reply whose delivery is unknown, by platform."""
        return {name: self.unknown_action(name) for name in self.senders}

    def unknown_action(self, platform: str) -> UnknownAction:
        """The action of a platform for a part whose delivery is unknown."""
        sender = self.senders.get(platform)
        surety = Surety.NEITHER if sender is None else sender.surety
        return unknown_action(surety, self._on_unknown(platform), readable=isinstance(sender, CanReadBack))


def _delivery(platform: Platform, valid_s: float | None) -> Delivery:
    if not isinstance(platform, CanSend):
        return Delivery(by_event=True)
    keyed = platform.surety is not Surety.NEITHER
    edits, streams = isinstance(platform, CanEdit), screen_of(platform) is not None
    valid_s = platform.limits.valid_s if valid_s is None else valid_s
    return Delivery(by_event=False, send_now=keyed, valid_s=valid_s or None, edits=edits, streams=streams)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a platform cannot be read."""

    text: str
    since: float
    failures: int  # in a row
    answers: int  # of the platform until then: with the next one the failure is over


class Contacts:
    """The connection state of this process's platforms. A connection alone proves nothing: traffic does. When an account last
    received and sent is saved to the minute, in a write of its own that no message waits for.
    """

    def __init__(self, store: Store, clock: Clock, platforms: Mapping[str, Platform]) -> None:
        self._store = store
        self._clock = clock
        self._platforms = platforms
        self._received: dict[tuple[str, str], float] = {}
        self._sent: dict[tuple[str, str], float] = {}
        self._trouble: dict[str, Trouble] = {}
        self._heard: set[str] = set()  # platforms of which this process has read something
        self._began = clock.now()
        self._telling = {name: each for name, each in platforms.items() if isinstance(each, CanTellContact)}

    def received(self, platform: str, account: str) -> None:
        """Record that a message arrived."""
        now = self._clock.now()
        if abs(now - self._received.get((platform, account), 0.0)) >= NOTED_EVERY_S:
            self._received[platform, account] = now
            self._store.run(note_contact, platform, account, now, None).add_done_callback(_heard)

    def sent(self, platform: str, account: str) -> None:
        """Record that the platform accepted a reply."""
        now = self._clock.now()
        if abs(now - self._sent.get((platform, account), 0.0)) >= NOTED_EVERY_S:
            self._sent[platform, account] = now
            self._store.run(note_contact, platform, account, None, now).add_done_callback(_heard)

    def heard(self, platform: str) -> None:
        """Record a successful read: that alone proves that we receive."""
        self._heard.add(platform)
        self._trouble.pop(platform, None)

    def reads(self, platform: str, trouble: str | None = None) -> None:
        """Record that a platform is being read, or why it cannot be."""
        if trouble is None:
            self._trouble.pop(platform, None)
        else:
            self.failed(platform, trouble)

    def failed(self, platform: str, trouble: str, *, own_fault: bool = False) -> int:
        """Record a failed read; returns how many failed in a row, since something arrived or since the platform answered a
        read. An answer does not reset the count if the fault is our own, which may lie in how we handle that answer.
        """
        before, still = self._trouble.get(platform), self._trouble_of(platform)
        failures = before.failures if before is not None and (still or own_fault) else 0
        since = still.since if still else self._clock.now()
        self._trouble[platform] = Trouble(trouble, since, failures + 1, self._answers(platform))
        return failures + 1

    def _answers(self, platform: str) -> int:
        return self._telling[platform].contact.answers if platform in self._telling else 0

    def _trouble_of(self, platform: str) -> Trouble | None:
        """The current failure, unless the platform has answered since: quiet does not mean disconnected."""
        trouble = self._trouble.get(platform)
        return trouble if trouble is not None and trouble.answers == self._answers(platform) else None

    def hears_since(self, platform: str) -> float:
        """Since when the platform is read without a gap: what was sent before that is backlog."""
        told = self._telling[platform].contact.hears_since if platform in self._telling else None
        return self._began if told is None else max(self._began, told)

    def connected(self) -> dict[tuple[str, str], Json]:
        """The connection state of this process's platforms, from memory, beside what the rows say.

        `since` is when the platform last answered, or when we began to ask; None while all is well.
        """
        return {(each.name, each.account): self._seen(each) for each in self._platforms.values()}

    def listed(self) -> list[Json]:
        """The connection state of each platform as a list, for `everturn status`."""
        return [{"name": name, "account": account, **seen} for (name, account), seen in self.connected().items()]

    def _seen(self, platform: Platform) -> Json:
        trouble = self._trouble_of(platform.name)
        if platform.name in self._telling:
            contact = self._telling[platform.name].contact
            why = trouble.text if trouble else contact.trouble
            state = reach_of(contact.received_at, why, self._clock.now())
            began = self._began if contact.received_at is None else contact.received_at
            return {"state": state.value, "trouble": why, "since": None if state is Reach.READING else began}
        if trouble is not None:
            return {"state": Reach.TROUBLE.value, "trouble": trouble.text, "since": trouble.since}
        if isinstance(platform, CanPull) and not self._has_come(platform):
            return {"state": Reach.CONNECTING.value, "trouble": None, "since": self._began}
        state = Reach.READING if isinstance(platform, CanPull) else Reach.OPEN
        return {"state": state.value, "trouble": None, "since": None}

    def _has_come(self, platform: Platform) -> bool:
        """Whether this process has read anything from it: the only proof for an adapter without `contact`."""
        return platform.name in self._heard or (platform.name, platform.account) in self._received


def _heard(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()  # a store that cannot write reports it elsewhere
