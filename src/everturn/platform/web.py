"""The platform `web`: the owner at the gateway's own page. Each conversation is a chat of its own."""

from __future__ import annotations

from everturn.platform.posted import PostedPlatform

OWNER = "owner"


class WebPlatform(PostedPlatform):
    """The chat page. Whoever is logged in is the owner; other people use other platforms."""

    name = "web"
    person = OWNER
