"""Session entries as other programs and older versions stored them: read with tolerance, and written under the same names.

The import command will use this; until it comes nothing in the package does, and the rule against dead code leaves it out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, tzinfo

from msgspec.structs import replace

from everturn.model import ACTIVE, ResumePending, SessionEntry, SessionSource, State, Suspended

# fmt: off
PLATFORMS = frozenset({
    "api", "bluebubbles", "dingtalk", "discord", "email", "feishu", "google_chat", "homeassistant", "irc", "line",
    "local", "matrix", "mattermost", "nextcloud", "ntfy", "qqbot", "rocketchat", "signal", "simplex", "slack", "sms",
    "teams", "telegram", "web", "webhook", "wecom", "weixin", "whatsapp", "xmpp", "zulip",
})
# fmt: on
RENAMED_PLATFORMS = {"api_server": "api", "whatsapp_cloud": "whatsapp", "wecom_callback": "wecom"}
_DRIVE = re.compile(r"[A-Za-z]:")
_SOURCE_FIELDS = tuple(name for name in SessionSource.__struct_fields__ if name not in {"platform", "chat_type"})


def entries_from_mapping(
    data: object, *, zone: tzinfo = UTC, platforms: Collection[str] = PLATFORMS
) -> tuple[list[SessionEntry], list[str]]:
    """Every entry that can be read, and one warning for each that cannot: a broken one never harms the rest."""
    if not isinstance(data, Mapping):
        return [], ["the stored sessions are not a mapping; none was loaded"]
    entries: dict[str | None, SessionEntry] = {}
    warnings: list[str] = []
    for key, value in data.items():
        entry = entry_from_mapping(key, value, zone=zone, platforms=platforms)
        if entry is not None and entry.session_id not in entries:
            entries[entry.session_id] = entry
        elif not str(key).startswith("_"):  # a remark for people, not an entry
            fault = _fault(key, value) or "another key has the same session"
            warnings.append(f"the stored session {key!r} was skipped: {fault}")
    return list(entries.values()), warnings


def entry_from_mapping(
    key: str, data: object, *, zone: tzinfo = UTC, platforms: Collection[str] = PLATFORMS
) -> SessionEntry | None:
    """The entry, or None when it must be skipped. `zone` is that of times stored without one."""
    if _fault(key, data) or not isinstance(data, Mapping):
        return None
    created_at = _time(data.get("created_at"), zone) or 0.0
    return SessionEntry(
        key=key,
        session_id=data["session_id"],
        state=_state(data, zone),
        unclean_ends=_count(data.get("unclean_ends")),
        tail=_flag(data.get("tail")),
        tail_key=_text(data.get("auto_continue_tool_tail_key")),
        tail_at=_time(data.get("auto_continue_tool_tail_ack_at"), zone),
        previous_session_id=_text(data.get("prev_session_id")),
        auto_reset_reason=_text(data.get("auto_reset_reason")),
        reset_had_activity=_flag(data.get("reset_had_activity")),
        expired=_text(data.get("expired")),
        origin=_origin(data.get("origin"), platforms),
        created_at=created_at,
        active_at=_time(data.get("updated_at"), zone) or created_at,
        turns=_turns(data),
    )


def entry_to_mapping(entry: SessionEntry) -> dict[str, object]:
    """The entry under the stored names; `entry_from_mapping` reads it back. What a running turn holds is left out."""
    pending = entry.state if isinstance(entry.state, ResumePending) else None
    suspended = entry.state if isinstance(entry.state, Suspended) else None
    return {
        "session_key": entry.key,
        "session_id": entry.session_id,
        "created_at": entry.created_at,
        "updated_at": entry.active_at,
        "suspended": suspended is not None,
        "suspended_reason": suspended and suspended.reason,
        "suspended_at": suspended and suspended.marked_at,
        "resume_pending": pending is not None,
        "resume_reason": pending and pending.reason,
        "last_resume_marked_at": pending and pending.marked_at,
        "unclean_ends": entry.unclean_ends,
        "tail": entry.tail,
        "auto_continue_tool_tail_key": entry.tail_key,
        "auto_continue_tool_tail_ack_at": entry.tail_at,
        "prev_session_id": entry.previous_session_id,
        "auto_reset_reason": entry.auto_reset_reason,
        "reset_had_activity": entry.reset_had_activity,
        "expired": entry.expired,
        "origin": entry.origin and {name: getattr(entry.origin, name) for name in SessionSource.__struct_fields__},
        "turns": entry.turns,
    }


def mark_recently_active(
    entries: Iterable[SessionEntry], now: float, within_s: float = 120
) -> tuple[list[SessionEntry], int]:
    """Mark imported sessions used just before the end resume_pending: imports do not say which turn was cut off."""
    marked = [_marked(entry, now, within_s) for entry in entries]
    return [entry for entry, _ in marked], sum(changed for _, changed in marked)


def _marked(entry: SessionEntry, now: float, within_s: float) -> tuple[SessionEntry, bool]:
    if entry.session_id is None or entry.state != ACTIVE or abs(now - entry.active_at) > within_s:
        return entry, False
    return replace(entry, state=ResumePending("restart_interrupted", now)), True


def _fault(key: object, data: object) -> str | None:
    if not isinstance(key, str) or not key or key.startswith(("_", "/", "\\")) or _is_path(key):
        return "its key is not usable"
    if not isinstance(data, Mapping):
        return "it is not a mapping"
    session_id = data.get("session_id")
    if not isinstance(session_id, str) or not session_id:
        return "it has no session id"
    if _is_path(session_id) or "/" in session_id or "\\" in session_id:
        return "its session id is not usable"
    return None


def _is_path(text: str) -> bool:
    return ".." in text or "\0" in text or _DRIVE.match(text) is not None


def _state(data: Mapping[str, object], zone: tzinfo) -> State:
    if _flag(data.get("suspended")):
        return Suspended(_text(data.get("suspended_reason")) or "stuck", _time(data.get("suspended_at"), zone))
    if _flag(data.get("resume_pending")):
        reason = _text(data.get("resume_reason")) or "restart_timeout"
        return ResumePending(reason, _time(data.get("last_resume_marked_at"), zone))
    return ACTIVE


def _origin(data: object, platforms: Collection[str]) -> SessionSource | None:
    if not isinstance(data, Mapping):
        return None
    platform = RENAMED_PLATFORMS.get(str(data.get("platform")), data.get("platform"))
    if not isinstance(platform, str) or platform not in platforms:
        return None
    fields = {name: _id(data.get(name)) for name in _SOURCE_FIELDS}
    fields["scope_id"] = fields["scope_id"] or _id(data.get("guild_id"))
    account = fields.pop("account") or ""
    return SessionSource(platform=platform, account=account, chat_type=_text(data.get("chat_type")) or "dm", **fields)


def _id(value: object) -> str | None:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else _text(value)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _flag(value: object) -> bool:
    return str(value).lower() in {"true", "1"}


def _count(value: object) -> int:
    return max(0, value) if isinstance(value, int) else 0


def _turns(data: Mapping[str, object]) -> int:
    """Other programs count tokens instead; any show that something was answered."""
    used = _count(data.get("last_prompt_tokens")) or _count(data.get("total_tokens"))
    return _count(data.get("turns")) or min(1, used)


def _time(value: object, zone: tzinfo) -> float | None:
    try:
        if isinstance(value, str):
            at = datetime.fromisoformat(value)
            return (at if at.tzinfo else at.replace(tzinfo=zone)).timestamp()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    except (ValueError, OverflowError):
        return None
    return None
