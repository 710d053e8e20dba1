"""Builds the gateway's `Settings` from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from everturn.agent.rules import providers_of
from everturn.commands.rules.registry import REGISTRY, canonical
from everturn.errors import ConfigError
from everturn.inbox.rules import BacklogRule, MediaRules
from everturn.lifecycle.settings import Policies, Settings
from everturn.outbox.rules.streaming import Display, Look, Pace
from everturn.people.rules.access import AccessPolicy, Admission
from everturn.people.rules.rights import ChatRights, Rights
from everturn.sessions.rules.keys import Isolation, Route
from everturn.sessions.rules.reset_policy import ResetPolicy
from everturn.settings import Config, MediaConfig, ResetConfig, RightsConfig, nearest
from everturn.settings.display import given
from everturn.turns.rules.spending import SpendingLimits
from everturn.turns.rules.turns import TurnTimeouts

DIRECTORY_S = 300.0
Table = dict[str, Any]


def settings_of(config: Config) -> Settings:
    """The gateway's settings from the whole configuration."""
    recovery, limits = config.recovery, config.limits
    sessions, approvals = config.sessions, config.approvals
    platforms = config.platforms.by_name()
    return Settings(
        isolation=Isolation(sessions.group_sessions_per_user, sessions.thread_sessions_per_user),
        routes=tuple(Route(**asdict(route)) for route in config.routes),
        policies=_policies(config),
        resume=recovery.resume,
        fresh_s=recovery.fresh_s,
        stuck_after=recovery.stuck_after,
        unclean_boots=recovery.unclean_boots,
        crash_loop_delay_s=recovery.crash_loop_delay_s,
        drain_s=config.drain.timeout_s,
        running_turns=limits.running_turns,
        message_chars=limits.message_chars,
        queue_per_session=limits.queue_per_session,
        output_chars=config.tools.output_chars,
        output_kept_chars=config.tools.output_kept_chars,
        busy=sessions.busy,
        busy_by_platform=sessions.busy_by_platform(),
        burst_s=sessions.burst_s,
        collect_s=sessions.collect_s,
        patience=TurnTimeouts(**asdict(config.patience)),
        approvers=approvals.approvers,
        approval_expires_s=approvals.expires_s,
        rights=rights_of(config.rights),
        models=config.agent.models,
        providers=_providers(config),
        context_tokens=config.agent.context_tokens if config.agent.model else 0,
        limits=SpendingLimits(**asdict(config.spending)),
        on_unknown_by_platform={name: each.on_unknown_delivery for name, each in platforms.items()},
        valid_by_platform={name: each.reply_valid_s for name, each in platforms.items()},
        backlog={name: BacklogRule(policy=each.backlog, age_s=each.backlog_age_s) for name, each in platforms.items()},
        admission=admission_of(config),
        display=_display(config),
        directory_every_s=DIRECTORY_S,
        media=rules_of(config.media),
    )


def rules_of(media: MediaConfig) -> MediaRules:
    """The rules for files that come with messages."""
    return MediaRules(
        fetch_s=media.fetch_s,
        keep_s=media.keep_hours * 3600,
        text_chars=media.text_chars,
        forbidden=media.forbidden,
    )


def _display(config: Config) -> Display:
    streaming, display = config.streaming, config.display
    return Display(
        everywhere=Pace(**streaming.everywhere()),
        look_everywhere=Look(**display.everywhere()),
        by_platform=_joined(given(streaming.platform), given(display.platform)),
        by_chat=_joined(given(streaming.chat), given(display.chat)),
    )


def _joined(one: Mapping[str, Table], other: Mapping[str, Table]) -> dict[str, Table]:
    """Merge two sets of tables by name; they share no setting."""
    return {name: {**one.get(name, {}), **other.get(name, {})} for name in {**one, **other}}


def admission_of(config: Config) -> Admission:
    """The access policy of each chat platform. Every one has a policy; without one, nobody is admitted."""
    policies = {
        name: AccessPolicy(allow=each.allow, chats=each.allow_chats, unknown=each.unknown)
        for name, each in config.platforms.by_name().items()
    }
    return Admission(policies=policies, owners=config.rights.owners)


def rights_of(config: RightsConfig) -> Rights:
    """Who may use which command. Raises ConfigError for a command that does not exist."""
    scopes: dict[str, ChatRights] = {}
    for platform, own in config.platform.items():
        for scope, table in (("dm", own.dm), ("group", own.group)):
            for each in table.commands:
                _check_command(f"rights.platform.{platform}.{scope}.commands", each)
            scopes[f"{platform}:{scope}"] = ChatRights(admins=table.admins, commands=table.commands)
    return Rights(owners=config.owners, scopes=scopes)


def _check_command(key: str, name: str) -> None:
    known = [each.name for each in REGISTRY]
    if canonical(name) not in known:
        raise ConfigError(f"{key} names /{name}, an unknown command; the nearest known one is {nearest(name, known)}")


def _providers(config: Config) -> tuple[str, ...]:
    """The providers that the owner named for language models; none where an agent of another kind reads the name itself."""
    agents = (config.agent, *config.agents.values())
    if not all(each.model and each.kind in {"auto", "llm"} for each in agents):
        return ()
    places = [place.model or "" for each in agents for place in (*each.platform.values(), *each.chat.values())]
    return providers_of(*(model for each in agents for model in (each.model, *each.fallback)), *places)


def _policies(config: Config) -> Policies:
    sessions = config.sessions
    zone = sessions.timezone or machine_zone()
    return Policies(
        default=_policy(sessions.reset_for("", ""), zone),
        by_platform={name: _policy(sessions.reset_for(name, ""), zone) for name in sessions.platform},
        by_chat_type={name: _policy(sessions.reset_for("", name), zone) for name in sessions.chat_type},
    )


def _policy(reset: ResetConfig, zone: str) -> ResetPolicy:
    return ResetPolicy(reset.reset, reset.idle_minutes, reset.at_hour, reset.notify, zone)


def machine_zone() -> str:
    """The name of the machine's time zone; UTC where it has none."""
    link = Path("/etc/localtime")
    target = str(link.readlink()) if link.is_symlink() else ""
    return target.partition("zoneinfo/")[2] or "UTC"
