"""Prints the walk of a message through a real gateway: `python scripts/walk.py [NAME ...] [--functions]`.

Names: plain, streamed, approval, resume, v1; all if none is given. Each file is printed once, in the order in which the message
comes to it, with --functions each with its functions.
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


def main(arguments: list[str]) -> int:
    """Run the named walks and print each."""
    names = [each for each in arguments if not each.startswith("--")]
    unknown = set(names) - set(SCENES) | {each for each in arguments if each.startswith("--")} - {"--functions"}
    if unknown:
        print(f"walk: {', '.join(sorted(unknown))}: unknown. Names: {', '.join(SCENES)}; option: --functions")
        return 2
    structlog.configure(
        processors=[structlog.processors.JSONRenderer()], logger_factory=structlog.ReturnLoggerFactory()
    )
    for name in names or SCENES:
        with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            walked = runner.run(walk(name, f"sqlite:///{folder}/everturn.db"))
        show(name, walked, functions="--functions" in arguments)
    return 0


def show(name: str, walked: Walk, *, functions: bool) -> None:
    """Print one walk, a file a line."""
    print(f"\n{name}: {SCENES[name].__doc__}")
    print(f"{len(walked.files)} files, {len(walked.stations)} functions, {walked.hops} hops")
    for number, file in enumerate(walked.files, 1):
        own = [each.function for each in walked.stations if each.file == file]
        print(f"{number:4}  {file}  ({len(own)})" + (f"\n        {', '.join(own)}" if functions else ""))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
