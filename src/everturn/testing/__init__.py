"""The test kit for authors of adapters and agents: a platform with faults on order, a scripted agent, a manual clock,
and a world that wires them to a real gateway. Nothing here is patched or mocked.

The local servers are separate modules: `everturn.testing.telegram`, a Telegram on this machine, and
`everturn.testing.matrix`, a proxy to a homeserver. Both follow the platform's documentation, and fail
on order.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everturn.testing.clock import ManualClock
    from everturn.testing.fakes import (
        OPEN_CARD,
        CardPlatform,
        DeletingPlatform,
        EditingPlatform,
        FakePlatform,
        FilePlatform,
        RemotePlatform,
        SendFault,
        ShownMessage,
    )
    from everturn.testing.world import ScriptedAgent, World, key_of, open_to_all

__all__ = [
    "OPEN_CARD",
    "CardPlatform",
    "DeletingPlatform",
    "EditingPlatform",
    "FakePlatform",
    "FilePlatform",
    "ManualClock",
    "RemotePlatform",
    "ScriptedAgent",
    "SendFault",
    "ShownMessage",
    "World",
    "key_of",
    "open_to_all",
]  # fmt: skip
_WORLD = {"ScriptedAgent", "World", "key_of", "open_to_all"}


def __getattr__(name: str) -> object:
    """Load a name of the kit when it is first used: the local servers also run as programs, and need no gateway."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    part = "world" if name in _WORLD else "clock" if name == "ManualClock" else "fakes"
    return getattr(import_module(f"{__name__}.{part}"), name)
