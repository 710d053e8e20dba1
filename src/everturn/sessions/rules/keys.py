"""Which session a message belongs to: its agent by the routes, and its lane by chat, thread and author."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import quote, unquote

from everturn.model import Inbound, SessionSource

MOST_BYTES = 4  # of one character
INDEXED_BYTES = 2500  # a row of an index of PostgreSQL's has room for 2,704; SQLite does not mind
PROGRAMS = "v1"  # the platform of programs that speak the OpenAI API
SINGLE_CALL = "call:"  # prefix of the thread of a stateless call
_PLAIN = re.compile(r"[A-Za-z0-9_.~+-]+")


@dataclass(frozen=True, slots=True)
class Isolation:
    """Whether people in one group, or in one thread, each have a conversation of their own. They always have one in the direct
    chats of the platforms in `changing_directs`: people come into those chats and leave them.
    """

    group_sessions_per_user: bool = True
    thread_sessions_per_user: bool = False
    changing_directs: frozenset[str] = frozenset()  # names of platforms, as their adapters declare it


KeyParts = tuple[str, str | None, str | None, str | None]
"""The kind of the chat, the chat, the thread and the participant of a conversation."""


def session_key(source: SessionSource, isolation: Isolation = Isolation(), agent: str = "main") -> str:  # noqa: B008
    """`agent:<agent>:<platform>[@account]:<chat type>[:=scope][:chat][:thread][:@participant]`."""
    kind, chat, thread, participant = _key_parts(source, isolation)
    account = f"@{_escape(source.account)}" if source.account else ""
    key = f"agent:{_escape(agent)}:{_escape(source.platform)}{account}:{_escape(kind)}"
    if source.platform == "slack" and source.scope_id:
        key += f":={_escape(source.scope_id)}"
    if chat or thread:
        key += f":{_escape(chat or '')}"
    if thread:
        key += f":{_escape(thread)}"
    return f"{key}:@{_escape(participant)}" if participant else key


def is_shared(source: SessionSource, isolation: Isolation) -> bool:
    """Whether several people speak in this conversation, so that each message must name its sender."""
    return source.chat_type != "dm" and _key_parts(source, isolation)[3] is None


def _key_parts(source: SessionSource, isolation: Isolation) -> KeyParts:
    thread = source.thread_id or source.prospective_thread_id or None
    chat = source.chat_id or None
    participant = source.user_id_alt or source.user_id or None
    if source.chat_type == "dm":
        own = not chat or source.platform in isolation.changing_directs
        return "dm", chat, thread, participant if own else None
    alone = isolation.group_sessions_per_user and (not thread or isolation.thread_sessions_per_user)
    # The message that opens a thread and those that follow in it share a key.
    kind = "thread" if thread and not source.thread_id else source.chat_type
    return kind, chat, thread, participant if alone else None


def is_keepable(inbound: Inbound, key: str) -> bool:
    """Whether the ids of a message fit into the database indexes: a stranger may have chosen some of them."""
    source = inbound.source
    place = (source.platform, source.account)
    ids = (
        *place,
        key,
        inbound.id,
        inbound.album,
        inbound.of,
        source.chat_id,
        source.thread_id,
        source.user_id,
        source.user_id_alt,
    )
    if not inbound.attachments and sum(map(len, filter(None, ids))) * MOST_BYTES <= INDEXED_BYTES:
        return True  # as almost always: all of it together would fit
    rows = (
        (key, inbound.album),
        (*place, inbound.id),
        (*place, inbound.of),
        (*place, source.chat_id, source.thread_id),
        *((source.platform, each) for each in (source.user_id, source.user_id_alt)),
        *((source.platform, each.unique) for each in inbound.attachments),
    )
    return all(sum(len((text or "").encode()) for text in row) <= INDEXED_BYTES for row in rows)


def _escape(text: str) -> str:
    if text.isascii() and text.isalnum():
        return text
    if not _PLAIN.fullmatch(text):
        text = quote(text, safe="+", errors="surrogatepass")
    return text.replace(".", "%2E") if text == "." or ".." in text else text


def origin_of(key: str) -> tuple[str, str]:
    """The platform and the chat type that a session key names."""
    _, _, platform, kind, *_ = [*key.split(":", 4), "", ""]
    return unquote(platform.partition("@")[0]), unquote(kind)


def is_single_call(key: str) -> bool:
    """Whether a session key is that of a program's stateless call: nobody ever writes to it again."""
    _, _, platform, _, _, thread, *_ = [*key.split(":"), "", "", "", "", "", ""]
    return platform == PROGRAMS and unquote(thread).startswith(SINGLE_CALL)


def same_chat(key: str, other: str) -> bool:
    """Whether two session keys name the same chat, whoever takes part in it."""
    return key.partition(":@")[0] == other.partition(":@")[0]


def account_of(key: str) -> str:
    """The account of ours that a session key names; empty for a platform's only one."""
    _, _, platform, *_ = [*key.split(":", 3), "", "", ""]
    return unquote(platform.partition("@")[2])


def agent_of(key: str) -> str:
    """The name of the agent that a session key names."""
    _, agent, *_ = [*key.split(":", 2), "", ""]
    return unquote(agent)


# Which agent answers a message: the most exact route that fits, else the main one.


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
