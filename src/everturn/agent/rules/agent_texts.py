"""The texts about which agent answers. Each completes "I could not answer: ..."."""

from __future__ import annotations

from collections.abc import Iterable


def no_such_agent(name: str, known: Iterable[str]) -> str:
    """The reason for a turn whose agent is not configured any more."""
    others = ", ".join(sorted(known))
    return (
        f"this conversation belongs to the agent {name!r}, which is no longer in the settings (there: {others});"
        f" its owner can add [agents.{name}] again"
    )
