"""The collaborators that every loop of the gateway gets: store, clock, ids, settings, platforms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from everturn.clock import Clock
from everturn.home.files import Media
from everturn.ids import Ids
from everturn.inbox.rules import BacklogRule, BusyMode, MediaRules
from everturn.model import SessionSource
from everturn.outbox.hub import Hub
from everturn.outbox.rules.delivery import Delivery, Surety, UnknownAction, unknown_action
from everturn.outbox.rules.streaming import Display
from everturn.outbox.screens import MessageScreen, screen_of
from everturn.people.recent_chats import RecentChats
from everturn.people.rules.access import NO_RIGHTS, Rights
from everturn.people.rules.admission import CLOSED, Admission
from everturn.platform.contacts import Contacts
from everturn.platform.interface import (
    CanEdit,
    CanFetch,
    CanReadBack,
    CanSend,
    CanType,
    HasChangingMembers,
    Platform,
)
from everturn.sessions.rules.keys import Isolation, Route, agent_for, session_key
from everturn.sessions.rules.reset_policy import ResetPolicy
from everturn.store.interface import Store
from everturn.telemetry.observing import Observing
from everturn.telemetry.spans import Tracer
from everturn.telemetry.traces import Traces
from everturn.turns.rows.turn_values import Start
from everturn.turns.rules.spending import SpendingLimits
from everturn.turns.rules.turns import TurnTimeouts

ANSWER_ALL = BacklogRule()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """The reset policy of a source: by platform, then by chat type, then the default."""

    default: ResetPolicy = ResetPolicy()  # noqa: RUF009  frozen
    by_platform: Mapping[str, ResetPolicy] = field(default_factory=dict)
    by_chat_type: Mapping[str, ResetPolicy] = field(default_factory=dict)

    def of(self, platform: str, chat_type: str) -> ResetPolicy:
        """The policy that applies to a message from here."""
        return self.by_platform.get(platform) or self.by_chat_type.get(chat_type) or self.default

    def any(self) -> bool:
        """Whether any session can expire at all."""
        return any(
            policy.mode != "none" for policy in (self.default, *self.by_platform.values(), *self.by_chat_type.values())
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a gateway; `app` makes them from the configuration."""

    isolation: Isolation = Isolation()  # noqa: RUF009  frozen
    routes: tuple[Route, ...] = ()
    policies: Policies = Policies()
    resume: str = "auto"
    fresh_s: float = 3600
    stuck_after: int = 3
    unclean_boots: int = 3
    crash_loop_delay_s: float = 60
    drain_s: float = 30
    running_turns: int = 64
    message_chars: int = 100_000
    queue_per_session: int = 32
    output_chars: int = 20_000  # of a tool's output, what enters the transcript
    output_kept_chars: int = 1_000_000  # and what is kept beside it
    on_unknown_delivery: str = "mark"
    on_unknown_by_platform: Mapping[str, str] = field(default_factory=dict)
    valid_by_platform: Mapping[str, float] = field(default_factory=dict)  # how long a reply is of use; 0: for ever
    backlog: Mapping[str, BacklogRule] = field(default_factory=dict)
    home: str = ""  # the name of this home for other gateways
    credentials: Path | None = None  # where gateways of this machine record who uses a platform's credential
    admission: Admission = CLOSED  # who may speak on chat platforms: nobody, unless their platform has a policy
    busy: str = BusyMode.STEER  # what a message does while a turn runs, where /busy chose nothing
    busy_by_platform: Mapping[str, str] = field(default_factory=dict)
    burst_s: float = 0.35  # messages of one author this close together begin one turn, where replies are sent
    collect_s: float = 2.0  # mode collect: how long it must be quiet
    patience: TurnTimeouts = TurnTimeouts()  # noqa: RUF009  frozen
    heartbeat_s: float = 5
    expiry_every_s: float = 300
    upkeep_every_s: float = 3600
    directory_every_s: float = 0.0  # how often platforms and conversations are asked where people talk; 0: never
    approvers: tuple[str, ...] = ()  # "platform:user": they alone allow; none: whose turn it is
    approval_expires_s: float = 7 * 86_400
    rights: Rights = NO_RIGHTS
    models: tuple[str, ...] = ()  # what /model may choose; none named: any of the providers
    providers: tuple[str, ...] = ()  # whose models that are; none named: any name
    context_tokens: int = 0  # the model's window, for /context; 0: not known
    limits: SpendingLimits = SpendingLimits()  # noqa: RUF009  frozen
    display: Display = Display()  # noqa: RUF009  frozen
    media: MediaRules = MediaRules()  # noqa: RUF009  frozen

    def busy_for(self, platform: str) -> str:
        """The busy mode of a platform: what a message does while a turn runs, where /busy chose nothing."""
        return self.busy_by_platform.get(platform, self.busy)

    def on_unknown_delivery_for(self, platform: str) -> str:
        """The setting of a platform for a reply whose delivery is unknown."""
        return self.on_unknown_by_platform.get(platform, self.on_unknown_delivery)

    def backlog_of(self, platform: str) -> BacklogRule:
        """The backlog rule of a platform: what happens to messages from while the gateway was down."""
        return self.backlog.get(platform, ANSWER_ALL)

    def admission_of(self, platform: str) -> Admission | None:
        """The admission policy of a platform; None where it authenticates people itself (api, web)."""
        return self.admission if self.admission.governs(platform) else None

    def key_of(self, source: SessionSource, agent: str | None = None, first_chat: str | None = None) -> str:
        """The session key of a message: its agent's, which the sender may have chosen, and its lane's. A chat
        that moved keeps the lane of the number that it had first.
        """
        lane = structs.replace(source, chat_id=first_chat) if first_chat else source
        return session_key(lane, self.isolation, agent or agent_for(source, self.routes))


class Parts:
    """The collaborators that all loops share; the instance's number and ids are known once it has joined."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings,
        platforms: Mapping[str, Platform],
        ids: Ids | None = None,
        tracer: Tracer | None = None,
        *,
        media: Media | None = None,
    ) -> None:
        self.media = media  # None: there is no folder for files
        self.store = store
        self.clock = clock
        self.settings = replace(settings, isolation=_isolation(settings.isolation, platforms))
        self.platforms = platforms
        self.hub = Hub()
        self.observing = Observing(clock, platforms, Traces(tracer, store, clock) if tracer else None)
        self.contacts = Contacts(store, clock, platforms)
        self.chats = RecentChats(wanted=settings.directory_every_s > 0)
        self.instance = 0
        self.ids = ids or Ids(clock, 0)
        # Asking what a platform can do is slow enough to be done once.
        self._senders = {name: each for name, each in platforms.items() if isinstance(each, CanSend)}
        self._fetchers = {name: each for name, each in platforms.items() if isinstance(each, CanFetch)}
        self._typing = {name: each for name, each in platforms.items() if isinstance(each, CanType)}
        self._screens = {name: screen_of(each) for name, each in platforms.items()}
        self._deliveries = {name: _delivery(platform, settings) for name, platform in platforms.items()}

    def delivery(self, platform: str) -> Delivery:
        """How replies to a platform leave; those to one that is not connected wait for it."""
        return self._deliveries.get(platform) or Delivery(by_event=False)

    def event_platforms(self) -> frozenset[str]:
        """The platforms that deliver by events: a notice there is delivered with its commit."""
        return frozenset(name for name, delivery in self._deliveries.items() if delivery.by_event)

    def sender(self, platform: str) -> CanSend | None:
        """The platform, if replies can be sent to it now."""
        return self._senders.get(platform)

    def fetcher(self, platform: str) -> CanFetch | None:
        """The platform, if what came with its messages can be fetched."""
        return self._fetchers.get(platform)

    def typing(self, platform: str) -> CanType | None:
        """The platform, if it can show a typing indicator."""
        return self._typing.get(platform)

    def screen(self, platform: str) -> MessageScreen | None:
        """The streaming display of a platform; None where it cannot stream."""
        return self._screens.get(platform)

    def unknown_actions(self) -> dict[str, UnknownAction]:
        """The action for a reply whose delivery is unknown, by platform."""
        return {name: self.unknown_action(name) for name in self._senders}

    def unknown_action(self, platform: str) -> UnknownAction:
        """The action of a platform for a part whose delivery is unknown."""
        sender = self._senders.get(platform)
        surety = Surety.NEITHER if sender is None else sender.surety
        readable = isinstance(sender, CanReadBack)
        return unknown_action(surety, self.settings.on_unknown_delivery_for(platform), readable=readable)

    def start(self, platform: str, chat_type: str, *, counts: bool, suspects: bool = True) -> Start:
        """Everything the beginning of a turn may need, with fresh ids."""
        settings, ids, delivery = self.settings, self.ids, self.delivery(platform)
        return Start(
            instance=self.instance,
            notice=ids.next(),  # smaller than the turn's id: a notice about its start is sent before its reply
            turn=ids.next(),
            session_id=ids.session(),
            at=self.clock.now(),
            policy=settings.policies.of(platform, chat_type),
            fresh_s=settings.fresh_s,
            resume=settings.resume,
            delivery=delivery,
            stuck_after=settings.stuck_after,
            suspects=suspects,
            counts=counts,
            isolation=settings.isolation,
            # Programs that post know each message by its id: theirs are answered one by one.
            burst_s=0.0 if delivery.by_event else settings.burst_s,
            collect_s=settings.collect_s,
            admission=settings.admission_of(platform),
        )


def _isolation(isolation: Isolation, platforms: Mapping[str, Platform]) -> Isolation:
    """Add the platforms whose adapters say that the members of a direct chat can change."""
    changing = (
        name for name, each in platforms.items() if isinstance(each, HasChangingMembers) and each.direct_members_change
    )
    return replace(isolation, changing_directs=frozenset(changing))


def _delivery(platform: Platform, settings: Settings) -> Delivery:
    if not isinstance(platform, CanSend):
        return Delivery(by_event=True)
    keyed = platform.surety is not Surety.NEITHER
    edits, streams = isinstance(platform, CanEdit), screen_of(platform) is not None
    valid_s = settings.valid_by_platform.get(platform.name)
    valid_s = platform.limits.valid_s if valid_s is None else valid_s
    return Delivery(by_event=False, send_now=keyed, valid_s=valid_s or None, edits=edits, streams=streams)
