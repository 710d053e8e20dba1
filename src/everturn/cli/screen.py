"""What a chat shows: plain lines for programs; on a terminal a prompt that stays below what arrives."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from typing import Protocol

from everturn.cli.printable import printable
from everturn.decide.commands import COMMANDS

PROMPT = "> "
_CLEAR_ROW = "\r\x1b[K"
_ROW_ABOVE = "\x1b[1A"


class Screen(Protocol):
    """Where a chat is shown."""

    def reply(self, text: str) -> None:
        """The agent's words."""
        ...

    def notice(self, text: str) -> None:
        """The gateway's words, or ours."""
        ...

    def message(self, text: str) -> None:
        """The user's words that were not typed here and now."""
        ...

    def progress(self, text: str) -> None:
        """What the agent is doing; empty when it is done."""
        ...

    def ask(self) -> str:
        """The user's next line; EOFError when there is none."""
        ...


class Plain:
    """Replies on standard output, everything else on standard error, a line each."""

    def __init__(self) -> None:
        self._progress = ""

    def reply(self, text: str) -> None:
        """The agent's words."""
        print(printable(text), flush=True)

    def notice(self, text: str) -> None:
        """The gateway's words, or ours."""
        print(f"-- {printable(text)}", file=sys.stderr, flush=True)

    def message(self, text: str) -> None:
        """A program knows what it sent."""

    def progress(self, text: str) -> None:
        """A line when its last line changes."""
        line = last_line(text)
        if line and line != self._progress:
            print(f".. {line}", file=sys.stderr, flush=True)
        self._progress = line

    def ask(self) -> str:
        """The next line of standard input."""
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")


class Terminal:
    """The bottom row is what the user types, the row above it what the agent is doing."""

    def __init__(self) -> None:
        typed_so_far()  # loads the line editor
        complete_commands()
        self._lock = threading.Lock()
        self._progress = ""
        self._asking = False

    def reply(self, text: str) -> None:
        """The agent's words."""
        self._draw(printable(text))

    def notice(self, text: str) -> None:
        """The gateway's words, or ours."""
        self._draw(f"\x1b[2m-- {printable(text)}\x1b[0m")

    def message(self, text: str) -> None:
        """The user's words that were not typed here and now."""
        self._draw(PROMPT + printable(text))

    def progress(self, text: str) -> None:
        """In place; never longer than a row."""
        width = shutil.get_terminal_size().columns
        line = last_line(text)[: width - 4]
        if line != self._progress:
            self._draw(None, line)

    def ask(self) -> str:
        """Read a line; what arrives meanwhile is shown above it."""
        self._asking = True
        try:
            return input(PROMPT)
        except EOFError:
            self._write("\n")
            raise
        finally:
            with self._lock:
                self._asking = False
                self._entered()

    def _entered(self) -> None:
        """The typed line stays where it is; the progress that was above it does not."""
        if self._progress:
            self._progress = ""
            self._write(f"{_ROW_ABOVE}{_ROW_ABOVE}\x1b[M\x1b[1B\r")

    def _draw(self, text: str | None, progress: str | None = None) -> None:
        with self._lock:
            above = _CLEAR_ROW + (_ROW_ABOVE + _CLEAR_ROW if self._progress else "")
            self._progress = self._progress if progress is None else progress
            status = f"\x1b[2m.. {self._progress}\x1b[0m\n" if self._progress else ""
            typed = PROMPT + typed_so_far() if self._asking else ""
            self._write(above + (f"{text}\n" if text is not None else "") + status + typed)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def typed_so_far() -> str:
    """What stands behind the prompt now."""
    try:
        import readline
    except ImportError:  # Windows has none
        return ""
    return readline.get_line_buffer()


def complete_commands() -> None:
    """Let the tab key complete a command's name."""
    try:
        import readline
    except ImportError:  # Windows has none
        return
    readline.set_completer_delims(" \t\n")
    readline.set_completer(completion)
    readline.parse_and_bind("tab: complete")


def completion(typed: str, number: int) -> str | None:
    """The line editor's question: the command of this number that begins so; None when there are no more."""
    names = [*COMMANDS, "quit"]
    found = [f"/{name} " for name in names if typed.startswith("/") and f"/{name}".startswith(typed.lower())]
    return found[number] if number < len(found) else None


def last_line(text: str) -> str:
    """The end of a growing text, as one line."""
    lines = printable(text).replace("\t", " ").strip().splitlines()
    return lines[-1] if lines else ""


def screen_for_this_terminal() -> Screen:
    """A terminal that understands us gets the full picture."""
    capable = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return Terminal() if capable else Plain()
