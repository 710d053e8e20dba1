"""Chats in which somebody spoke for the first time in this life: noted on a message's way, kept beside it."""

from __future__ import annotations

from everturn.decide.directory import Known, seen_in
from everturn.model import SessionSource

MOST = 20_000


class SeenChats:
    """Nothing here must survive: what is lost is found again where conversations were held."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._noted: set[tuple[str | None, ...]] = set()
        self._new: list[Known] = []

    def note(self, source: SessionSource, at: float) -> None:
        """Somebody spoke here. A chat with another name is another one."""
        name = source.user_name if source.chat_type == "dm" else source.chat_name
        place = source.platform, source.account, source.chat_id, source.thread_id, name, source.chat_topic
        if not self._wanted or place in self._noted:
            return
        if len(self._noted) >= MOST:
            self._noted.clear()
        self._noted.add(place)
        if len(self._new) < MOST:
            self._new += seen_in(source, at)

    def take(self) -> list[Known]:
        """Those that nobody took."""
        new, self._new = self._new, []
        return new
