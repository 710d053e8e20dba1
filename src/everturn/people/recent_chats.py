"""Chats seen for the first time by this process: noted as messages arrive, stored later by the chat directory."""

from __future__ import annotations

from everturn.model import SessionSource
from everturn.people.rules.directory import KnownChat, seen_in

MOST = 20_000


class RecentChats:
    """New chats for the directory, in memory only: what is lost is found again from stored conversations."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._noted: set[tuple[str | None, ...]] = set()
        self._new: list[KnownChat] = []

    def note(self, source: SessionSource, at: float) -> None:
        """Note the chat of a message. A chat with another name counts as another one."""
        name = source.user_name if source.chat_type == "dm" else source.chat_name
        place = source.platform, source.account, source.chat_id, source.thread_id, name, source.chat_topic
        if not self._wanted or place in self._noted:
            return
        if len(self._noted) >= MOST:
            self._noted.clear()
        self._noted.add(place)
        if len(self._new) < MOST:
            self._new += seen_in(source, at)

    def take(self) -> list[KnownChat]:
        """Return the chats noted since the last call."""
        new, self._new = self._new, []
        return new
