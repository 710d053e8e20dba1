"""The HTTP platform `api`: programs post messages and watch events."""

from __future__ import annotations

from everturn.platform.posted import CHAT_CHARS, ID_CHARS, PostedPlatform, unique_id

__all__ = ["CHAT_CHARS", "ID_CHARS", "ApiPlatform", "unique_id"]


class ApiPlatform(PostedPlatform):
    """Programs that post messages and watch events over HTTP. A program with a key is known by the key's name."""

    name = "api"
