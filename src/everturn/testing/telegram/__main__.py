"""The local Telegram as a program: python -m everturn.testing.telegram --port 8081 --state telegram.json"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from everturn.testing.telegram import TOKEN, Telegram, TelegramServer


async def _serve(arguments: argparse.Namespace) -> None:
    async with TelegramServer(Telegram(arguments.state), arguments.port) as server:
        sys.stdout.write(f"listening on {server.url}\n")
        sys.stdout.flush()
        await server.ended()


def main() -> None:
    """Listen until it is stopped."""
    parser = argparse.ArgumentParser(
        "everturn.testing.telegram", description=f"A Telegram on this machine, for tests. Its bot's token is {TOKEN}"
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--state", type=Path, help="a file in which everything is saved, so that it survives a restart")
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
