"""Prints the walk of a message through a real gateway: `python scripts/walk.py [NAME ...] [--functions]`.

Names: plain, streamed, approval, resume, v1; all if none is given. Each file is printed once, in the order in which the message
comes to it, with --functions each with its functions. `--page` writes all walks into docs/architecture.md instead.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import structlog
import uvloop

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.walk import SCENES, Walk, walk  # noqa: E402  the tests are no installed package
from tests.walk_page import PAGE, write  # noqa: E402

OPTIONS = {"--functions", "--page"}


def main(arguments: list[str]) -> int:
    """Run the named walks and print each."""
    names = [each for each in arguments if not each.startswith("--")]
    unknown = set(names) - set(SCENES) | {each for each in arguments if each.startswith("--")} - OPTIONS
    if unknown:
        print(f"walk: {', '.join(sorted(unknown))}: unknown. Names: {', '.join(SCENES)}; options: {', '.join(OPTIONS)}")
        return 2
    structlog.configure(
        processors=[structlog.processors.JSONRenderer()], logger_factory=structlog.ReturnLoggerFactory()
    )
    if "--page" in arguments:
        if write({name: walked(name) for name in SCENES}):
            print(PAGE.relative_to(ROOT))
        return 0
    for name in names or SCENES:
        show(name, walked(name), functions="--functions" in arguments)
    return 0


def walked(name: str) -> Walk:
    """Send the message of a scene through a gateway of its own."""
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(walk(name, f"sqlite:///{folder}/everturn.db"))


def show(name: str, passed: Walk, *, functions: bool) -> None:
    """Print one walk, a file a line."""
    print(f"\n{name}: {SCENES[name].__doc__}")
    print(f"{len(passed.files)} files, {len(passed.stations)} functions, {passed.hops} hops")
    for number, file in enumerate(passed.files, 1):
        own = [each.function for each in passed.stations if each.file == file]
        print(f"{number:4}  {file}  ({len(own)})" + (f"\n        {', '.join(own)}" if functions else ""))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
