"""Albums where our name must be mentioned: they arrive message by message, and our name stands under one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from everturn.model import Heard, Inbound


def whole(batch: Sequence[Inbound]) -> list[Inbound]:
    """The messages of a batch, where every part of an album is for us if one part in the same batch is."""
    named = {album_of(each) for each in batch if each.album and each.what is Heard.SAID and not each.only_with_album}
    return [taken(each) if each.only_with_album and album_of(each) in named else each for each in batch]


def undecided(heard: Mapping[int, Inbound]) -> set[int]:
    """The update ids of messages that are for us only if a later part of their album is, and of their edits."""
    parts = {each.id for each in heard.values() if each.only_with_album}
    return {number for number, each in heard.items() if each.id in parts or each.of in parts}


def taken(part: Inbound) -> Inbound:
    """Mark a part of an album as being for us."""
    return replace(part, only_with_album=False)


def album_of(inbound: Inbound) -> tuple[str | None, str | None]:
    """The chat and the album of a message."""
    return inbound.source.chat_id, inbound.album
