"""Which chat is meant by a name, and who may have something sent there.

A name is looked for as an alias of the owner's, then as an id, a name, a community's name, and last as the beginning of a
name. A name that fits two chats is refused, and the error lists them.
"""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from everturn.model import SessionSource
from everturn.pauses import grown_s
from everturn.people.rules.access import clean_name, ids_of

NAMED = 5  # so many chats are named in an error
COMPARED = 300  # so many names are compared with one that nobody has, letter by letter: those of the chats seen last
SIGILS = "!#@+$"  # ids that begin so end with a server's name, after a colon
EVENT = "$"  # a thread of such a chat begins so
ALIAS_CHARS = 64
ASKED_AGAIN_S = 30.0


class KnownChat(msgspec.Struct, frozen=True, kw_only=True):
    """A chat, or a thread in one, as it was last seen. Names are what strangers chose: cleaned, never obeyed."""

    platform: str
    chat_id: str
    account: str = ""
    thread_id: str = ""
    chat_type: str = "group"
    name: str = ""
    parent: str = ""  # the community or forum it belongs to, by name
    person: str = ""  # with whom, where it is a direct chat
    seen_at: float = 0.0

    @property
    def address(self) -> str:
        """The address of the chat: `platform:chat[:thread]`."""
        return f"{self.platform}:{self.chat_id}" + (f":{self.thread_id}" if self.thread_id else "")

    @property
    def label(self) -> str:
        """The name shown to people: `Community/name`, or its address where it has no name."""
        name = clean_name(self.name)
        if not name:
            return self.address
        parent = clean_name(self.parent)
        return f"{parent}/{name}" if parent else name

    def source(self) -> SessionSource:
        """The source to send a message to this chat."""
        return SessionSource(
            platform=self.platform,
            account=self.account,
            chat_id=self.chat_id,
            chat_type=self.chat_type,
            thread_id=self.thread_id or None,
            user_id=self.person or None,
        )


class NotFound(msgspec.Struct, frozen=True):
    """No chat, or more than one; `why` is text for the caller."""

    why: str


def seen_in(source: SessionSource, at: float) -> list[KnownChat]:
    """The chat that a message came from; with a thread also the thread."""
    if not source.chat_id:
        return []
    direct = source.chat_type == "dm"
    chat_name = (source.user_name if direct else source.chat_name) or ""
    chat = KnownChat(
        platform=source.platform,
        account=source.account,
        chat_id=source.chat_id,
        chat_type=source.chat_type,
        name=clean_name(chat_name),
        person=(source.user_id or "") if direct else "",
        seen_at=at,
    )
    if not source.thread_id:
        return [chat]
    thread = msgspec.structs.replace(
        chat, thread_id=source.thread_id, name=clean_name(source.chat_topic), parent=chat.name
    )
    return [chat, thread]


def kinds(channels: Iterable[KnownChat]) -> Callable[[KnownChat], str]:
    """A function that names a chat's kind for people: a chat that has threads is a forum, and those are its topics."""
    forums = {(each.platform, each.account, each.chat_id) for each in channels if each.thread_id}

    def kind(each: KnownChat) -> str:
        if each.thread_id:
            return "topic" if each.chat_type != "dm" else "thread"
        forum = (each.platform, each.account, each.chat_id) in forums and each.chat_type != "dm"
        return "forum" if forum else each.chat_type

    return kind


def newer(old: KnownChat | None, new: KnownChat, every_s: float) -> KnownChat | None:
    """What to keep of a channel that was seen again; None when the old row says the same and is fresh enough.

    Last seen wins, but a name that is not told this time is not forgotten.
    """
    if old is None:
        return new
    if new.seen_at < old.seen_at:
        return None
    kept = msgspec.structs.replace(
        new, name=new.name or old.name, parent=new.parent or old.parent, person=new.person or old.person
    )
    same = msgspec.structs.replace(kept, seen_at=old.seen_at) == old
    return None if same and new.seen_at - old.seen_at < every_s else kept


def listing_due(asked_s: float | None, failures: int, every_s: float, *, changed: bool) -> bool:
    """Whether to list a platform's chats, `asked_s` seconds after the last time: every `every_s`; sooner when we came into a
    chat since, or after `failures` in a row, and then less and less often.
    """
    if asked_s is None:
        return True
    return asked_s >= (grown_s(failures, ASKED_AGAIN_S, every_s) if changed or failures else every_s)


# -- which chat is meant -----------------------------------------------------------------------------------------------


def resolve(text: str, channels: Sequence[KnownChat], aliases: Mapping[str, str]) -> KnownChat | NotFound:
    """The chat that is meant. `aliases` lead from a name (as `plain` writes it) to an address."""
    wanted = text.strip()
    if not plain(wanted):
        return NotFound("say which chat.")
    if plain(wanted) in aliases:
        return at_address(aliases[plain(wanted)], channels) or NotFound(f"the alias {clean_name(text)} names no chat.")
    for fits in (_by_id, _by_name, _by_community, _by_beginning):
        found = fits(wanted, channels)
        if len(found) == 1:
            return found[0]
        if found:
            return NotFound(f"several chats fit {clean_name(text)}: {_named(found)}. Say which by its address.")
    return NotFound(_nobody(wanted, channels, aliases))


def plain(text: str) -> str:
    """A name as it is compared: case and # do not count."""
    return " ".join(text.replace("#", "").casefold().split())


def at_address(address: str, channels: Sequence[KnownChat]) -> KnownChat | None:
    """The chat of an address; one that nobody has seen yet is a chat of the kind that its id suggests."""
    platform, _, rest = address.partition(":")
    here = [each for each in channels if each.platform == platform.casefold()]
    for chat, thread in _splits(rest):
        known = next((each for each in here if (each.chat_id, each.thread_id) == (chat, thread)), None)
        if known is not None:
            return known
    chat, thread = _split(rest)
    if not platform or not chat:
        return None
    within = next((each for each in here if each.chat_id == chat), None)
    if within is not None:
        return msgspec.structs.replace(within, thread_id=thread, name="", parent=within.name)
    return KnownChat(platform=platform.casefold(), chat_id=chat, thread_id=thread)


def _splits(rest: str) -> list[tuple[str, str]]:
    chat, _, thread = rest.rpartition(":")
    return [(rest, ""), (chat, thread)]


def _split(rest: str) -> tuple[str, str]:
    """A chat and a thread that nobody has seen: ids with a server's name hold colons of their own."""
    if rest[:1] in SIGILS:
        chat, _, thread = rest.rpartition(":")
        return (chat, thread) if thread.startswith(EVENT) else (rest, "")
    chat, _, thread = rest.partition(":")
    return chat, thread


def _by_id(wanted: str, channels: Sequence[KnownChat]) -> list[KnownChat]:
    exact = [each for each in channels if wanted in {each.address, each.chat_id} and not each.thread_id]
    return exact or [each for each in channels if wanted == each.address]


def _by_name(wanted: str, channels: Sequence[KnownChat]) -> list[KnownChat]:
    name = plain(wanted)
    return [each for each in channels if name in {plain(each.name), plain(each.label)}]


def _by_community(wanted: str, channels: Sequence[KnownChat]) -> list[KnownChat]:
    """`Community/name`, or `platform/name`."""
    parent, slash, name = wanted.rpartition("/")
    if not slash:
        return []
    within = [each for each in channels if plain(parent) in {plain(each.parent), each.platform}]
    return [each for each in within if plain(each.name) == plain(name)]


def _by_beginning(wanted: str, channels: Sequence[KnownChat]) -> list[KnownChat]:
    name = plain(wanted)
    return [each for each in channels if plain(each.name).startswith(name) or plain(each.label).startswith(name)]


def _named(found: Sequence[KnownChat]) -> str:
    shown = [f"{each.label} ({each.address})" for each in found[:NAMED]]
    more = [f"and {len(found) - NAMED} more"] if len(found) > NAMED else []
    return ", ".join([*shown, *more])


def _nobody(wanted: str, channels: Sequence[KnownChat], aliases: Mapping[str, str]) -> str:
    newest = heapq.nlargest(COMPARED, channels, key=lambda each: each.seen_at)
    names = {plain(each.label): each.label for each in newest} | {plain(each.name): each.label for each in newest}
    names |= {name: name for name in sorted(aliases)[:COMPARED]}
    names.pop("", None)
    near = difflib.get_close_matches(plain(wanted), names, 3, 0.5)
    hint = f" The nearest: {', '.join(dict.fromkeys(names[each] for each in near))}." if near else ""
    return f"no chat is known as {clean_name(wanted)}.{hint}"


# -- who may have something sent there ---------------------------------------------------------------------------------


def may_use(place: KnownChat, author: SessionSource, *, owner: bool) -> bool:
    """Whether an author may send there: owners everywhere, others in the chat they write in and their own direct chat."""
    if owner:
        return True
    if author.platform != place.platform or author.account != place.account:
        return False
    if (author.chat_id, author.thread_id or "") == (place.chat_id, place.thread_id):
        return True
    return place.chat_type == "dm" and bool(place.person) and place.person in ids_of(author)
