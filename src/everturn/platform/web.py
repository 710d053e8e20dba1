"""The platform `web`: the owner at the gateway's own page. Each conversation is a chat of its own."""

from __future__ import annotations

from everturn.platform.posted import PostedPlatform

OWNER = "owner"


class WebPlatform(PostedPlatform):
    """The page. Who has logged in is the owner; other people come with their own platforms."""

    name = "web"
    person = OWNER
