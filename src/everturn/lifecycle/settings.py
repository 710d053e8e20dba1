"""The settings of a running gateway, in the terms of its rooms; `app` makes them from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from everturn.inbox.rules import BacklogRule, BusyMode, MediaRules
from everturn.model import SessionSource
from everturn.outbox.rules.delivery import IN_FLIGHT_S
from everturn.outbox.rules.streaming import Display
from everturn.people.rules.access import CLOSED, Admission
from everturn.people.rules.rights import NO_RIGHTS, Rights
from everturn.sessions.rules.keys import MAIN, Isolation, Route, agent_for, session_key
from everturn.sessions.rules.reset_policy import ResetPolicy
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
    """The settings of all loops; one that differs by platform has a method that knows its default."""

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
    in_flight_s: float = IN_FLIGHT_S
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
        return session_key(lane, self.isolation, agent or (agent_for(source, self.routes) if self.routes else MAIN))
