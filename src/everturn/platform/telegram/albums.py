"""Albums that arrive by webhook in groups where our name must be mentioned.

Telegram posts the next message of a chat only after the last was answered, so that a photo has to be acknowledged before
the one with our name arrives. Until then it is here, in memory only: a message that is not for us is not stored. A crash at
that moment loses the photo. By polling nothing is acknowledged before the album is decided.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from everturn.model import Heard, Inbound
from everturn.platform.telegram.rules.albums import album_of, taken

REMEMBERED_S = 5.0  # how long the next part of an album may take
MOST_ALBUMS = 200  # albums at once; the oldest is forgotten


@dataclass(slots=True)
class Album:
    """An album that is arriving."""

    heard_at: float
    named: bool = False
    parts: dict[str, Inbound] = field(default_factory=dict)  # by id: those that are not stored


class Albums:
    """The albums of the last seconds."""

    def __init__(self) -> None:
        self._albums: dict[tuple[str | None, str | None], Album] = {}

    def add(self, inbound: Inbound, now: float) -> list[Inbound]:
        """The messages to take now: with the first part that names us all earlier parts, in the order of the album."""
        self.forget(now)
        if inbound.album is None or inbound.what is not Heard.SAID:
            return [inbound]
        album = self._albums.pop(album_of(inbound), None) or Album(now)
        self._albums[album_of(inbound)] = album
        album.heard_at, album.named = now, album.named or not inbound.only_with_album
        album.parts[inbound.id] = inbound
        if not album.named:
            return [inbound]  # an earlier process may have stored one that names us
        return [taken(each) for each in sorted(album.parts.values(), key=_place)]

    def mark_stored(self, inbound: Inbound) -> None:
        """Forget a part that is stored, unless it still waits for one that names us."""
        album = self._albums.get(album_of(inbound))
        if album is not None and not inbound.only_with_album:
            album.parts.pop(inbound.id, None)

    def forget(self, now: float) -> None:
        """Forget old albums."""
        kept = [(which, album) for which, album in self._albums.items() if now - album.heard_at < REMEMBERED_S]
        self._albums = dict(kept[-MOST_ALBUMS:])


def _place(part: Inbound) -> int:
    return int(part.source.message_id or 0)
