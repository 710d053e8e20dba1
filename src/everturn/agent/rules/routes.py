"""Which agent answers a message: the most exact route that fits, else the main one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from everturn.model import SessionSource

MAIN = "main"
Exactness = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route to an agent; an empty field matches everything."""

    agent: str
    platform: str = ""
    chat: str = ""
    thread: str = ""
    person: str = ""


def agent_for(source: SessionSource, routes: Collection[Route]) -> str:
    """The name of the agent that answers a message from this source.

    A route that names the person goes before one that names the thread, then the chat, then the platform.
    """
    if not routes:
        return MAIN
    fitting = ((exactness, route) for route in routes if (exactness := _exactness(route, source)) is not None)
    best = max(fitting, key=lambda each: each[0], default=None)
    return best[1].agent if best else MAIN


def _exactness(route: Route, source: SessionSource) -> Exactness | None:
    """How exactly a route matches the source; None when it does not. An id goes before its second form."""
    person = _fit(route.person, source.user_id, source.user_id_alt)
    # The message that opens a thread and those that follow in it share a lane, so they share the route.
    thread = _fit(route.thread, source.thread_id or source.prospective_thread_id)
    chat = _fit(route.chat, source.chat_id, source.chat_id_alt, source.parent_chat_id)
    platform = _fit(route.platform, source.platform)
    if person is None or thread is None or chat is None or platform is None:
        return None
    return person, thread, chat, platform


def _fit(wanted: str, *ids: str | None) -> int | None:
    if not wanted:
        return 0
    return len(ids) - ids.index(wanted) if wanted in ids else None
