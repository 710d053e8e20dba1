"""Builds the parts of the HTTP server from the settings: the page, the APIs, its limits, and the first login link."""

from __future__ import annotations

import sys

from everturn import __version__
from everturn.commands.rules.registry import REGISTRY
from everturn.home.files import MEGABYTE, Media
from everturn.home.folder import Home, reachable
from everturn.model import Json
from everturn.people.rules.access import GatewayAddress
from everturn.platform.v1 import V1Platform
from everturn.platform.web import WebPlatform
from everturn.settings import MAIN, Config, ServerConfig
from everturn.web.app import WebApp
from everturn.web.chat.conversations import About
from everturn.web.chat.files import FileEndpoints
from everturn.web.chat.messages import BYTES_PER_CHAR, ROOM_FOR_THE_REST
from everturn.web.control.visits import LOGIN_S
from everturn.web.rules import web_texts
from everturn.web.v1.endpoints import V1Parts
from everturn.web.wire.limits import Bounds
from everturn.web.wire.server import FrontSettings, PageParts


def media_of(home: Home, config: Config) -> Media:
    """The store of files in the home, with its limits."""
    limits = config.limits
    return Media(home.files, int(limits.file_megabytes * MEGABYTE), int(limits.files_megabytes * MEGABYTE))


def page_of(platform: WebPlatform, media: Media, config: Config) -> PageParts:
    """The parts of the page."""
    commands: tuple[Json, ...] = tuple(
        {"name": each.name, "arguments": each.arguments, "line": each.line} for each in REGISTRY
    )
    return PageParts(
        chats=platform,
        files=FileEndpoints(media),
        about=About(
            version=__version__,
            commands=commands,
            message_chars=config.limits.message_chars,
            file_bytes=media.most,
        ),
    )


def programs_of(platform: V1Platform, config: Config) -> V1Parts:
    """The parts of the OpenAI API: its models are our agents."""
    return V1Parts(
        clients=platform,
        models=(MAIN, *config.agents),
        most_body=config.limits.message_chars * BYTES_PER_CHAR + ROOM_FOR_THE_REST,
    )


def front_of(server: ServerConfig) -> FrontSettings:
    """The gateway's address, and how many requests a client may make."""
    return FrontSettings(place=GatewayAddress(server.host, server.public_url), per_minute=server.requests_per_minute)


def bounds_of(server: ServerConfig) -> Bounds:
    """The limits for connections without a credential."""
    return Bounds(of_address=server.connections_per_address)


async def print_login_link(app: WebApp, server: ServerConfig, url: str, *, again: bool) -> None:
    """Print a one-time login link on a terminal; never to a log, and not after a restart."""
    if sys.stdout.isatty() and not again:
        login = await app.visits.make()
        print(web_texts.one_login(login.link(server.public_url or reachable(url)), LOGIN_S / 60), flush=True)  # noqa: T201
