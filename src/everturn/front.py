"""What the gateway's HTTP side is made of: the page, the door, and the link that a person opens first."""

from __future__ import annotations

import sys

from everturn import __version__
from everturn.decide import web_words
from everturn.decide.access import Place
from everturn.decide.commands import REGISTRY
from everturn.home import Home, reachable
from everturn.media import MEGABYTE, Media
from everturn.model import Json
from everturn.platform.v1 import V1Platform
from everturn.platform.web import WebPlatform
from everturn.settings import MAIN, Config, ServerConfig
from everturn.web.app import WebApp
from everturn.web.conversations import About
from everturn.web.files import Files
from everturn.web.limits import Bounds
from everturn.web.messages import BYTES_PER_CHAR, ROOM_FOR_THE_REST
from everturn.web.server import Door, Page
from everturn.web.v1.endpoints import V1Parts
from everturn.web.visits import LOGIN_S


def media_of(home: Home, config: Config) -> Media:
    """The home's folder of files, with its limits."""
    limits = config.limits
    return Media(home.files, int(limits.file_megabytes * MEGABYTE), int(limits.files_megabytes * MEGABYTE))


def page_of(platform: WebPlatform, media: Media, config: Config) -> Page:
    """The page."""
    commands: tuple[Json, ...] = tuple(
        {"name": each.name, "arguments": each.arguments, "line": each.line} for each in REGISTRY
    )
    return Page(
        chats=platform,
        files=Files(media),
        about=About(
            version=__version__,
            commands=commands,
            message_chars=config.limits.message_chars,
            file_bytes=media.most,
        ),
    )


def programs_of(platform: V1Platform, config: Config) -> V1Parts:
    """The OpenAI API: its models are our agents."""
    return V1Parts(
        clients=platform,
        models=(MAIN, *config.agents),
        most_body=config.limits.message_chars * BYTES_PER_CHAR + ROOM_FOR_THE_REST,
    )


def door_of(server: ServerConfig) -> Door:
    """Where we are reached, and how often one may knock."""
    return Door(place=Place(server.host, server.public_url), per_minute=server.requests_per_minute)


def bounds_of(server: ServerConfig) -> Bounds:
    """How much clients without a credential may hold."""
    return Bounds(of_address=server.connections_per_address)


async def invite(app: WebApp, server: ServerConfig, url: str, *, again: bool) -> None:
    """On a terminal, print a link that opens the page once; a log must not have one, and who was just there needs none."""
    if sys.stdout.isatty() and not again:
        login = await app.visits.make()
        print(web_words.one_login(login.link(server.public_url or reachable(url)), LOGIN_S / 60), flush=True)  # noqa: T201
