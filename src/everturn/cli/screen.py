"""What `everturn chat` shows, and how far it was read."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from typing import Protocol
from urllib.parse import quote

from everturn.cli.shared import printable
from everturn.commands.rules.registry import COMMANDS
from everturn.home.folder import Home

PROMPT = "> "
_CLEAR_ROW = "\r\x1b[K"
_ROW_ABOVE = "\x1b[1A"


class ChatScreen(Protocol):
    """Where a chat is shown."""

    def reply(self, text: str) -> None:
        """Show a reply of the agent."""
        ...

    def notice(self, text: str) -> None:
        """Show a notice of the gateway, or of this program."""
        ...

    def message(self, text: str) -> None:
        """Show a message of the user that was not typed in this window."""
        ...

    def progress(self, text: str) -> None:
        """Show what the agent is doing; empty when it is done."""
        ...

    def ask(self) -> str:
        """Read the user's next line; raises EOFError when there is none."""
        ...


class PlainScreen:
    """Prints replies to standard output, everything else to standard error, a line each."""

    def __init__(self) -> None:
        self._progress = ""

    def reply(self, text: str) -> None:
        """Show a reply of the agent."""
        print(printable(text), flush=True)

    def notice(self, text: str) -> None:
        """Show a notice of the gateway, or of this program."""
        print(f"-- {printable(text)}", file=sys.stderr, flush=True)

    def message(self, text: str) -> None:
        """Show nothing: a program knows what it sent."""

    def progress(self, text: str) -> None:
        """Print the last line when it changes."""
        line = last_line(text)
        if line and line != self._progress:
            print(f".. {line}", file=sys.stderr, flush=True)
        self._progress = line

    def ask(self) -> str:
        """Read the next line of standard input."""
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")


class TerminalScreen:
    """Draws what the user types in the bottom row, and what the agent is doing in the row above."""

    def __init__(self) -> None:
        typed_so_far()  # loads the line editor
        complete_commands()
        self._lock = threading.Lock()
        self._progress = ""
        self._asking = False

    def reply(self, text: str) -> None:
        """Show a reply of the agent."""
        self._draw(printable(text))

    def notice(self, text: str) -> None:
        """Show a notice of the gateway, or of this program."""
        self._draw(f"\x1b[2m-- {printable(text)}\x1b[0m")

    def message(self, text: str) -> None:
        """Show a message of the user that was not typed in this window."""
        self._draw(PROMPT + printable(text))

    def progress(self, text: str) -> None:
        """Show what the agent is doing, in place, in one row."""
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
        """Remove the progress above the line that was typed."""
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
    """The text behind the prompt now."""
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
    """The command with this number that begins with the typed text; None when there are no more."""
    names = [*COMMANDS, "quit"]
    found = [f"/{name} " for name in names if typed.startswith("/") and f"/{name}".startswith(typed.lower())]
    return found[number] if number < len(found) else None


def last_line(text: str) -> str:
    """The end of a growing text, as one line."""
    lines = printable(text).replace("\t", " ").strip().splitlines()
    return lines[-1] if lines else ""


def screen_for_this_terminal() -> ChatScreen:
    """The full screen for a capable terminal, else plain lines."""
    capable = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return TerminalScreen() if capable else PlainScreen()


class ReadPosition:
    """How far a chat was read from this home: the id of the last event shown, in an owner-only file; 0 when there was none."""

    def __init__(self, home: Home, chat: str) -> None:
        self._file = home.path / f"chat-{quote(chat, safe='')}.last"
        self.last = self._read()

    def _read(self) -> int:
        try:
            return max(0, int(self._file.read_text(encoding="ascii")))
        except (OSError, ValueError):
            return 0

    def move(self, number: int) -> None:
        """Save the last event shown. If the disk refuses, events are shown again after the next start."""
        self.last = number
        draft = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
                stream.write(f"{number}\n")
            draft.replace(self._file)
        except OSError:
            draft.unlink(missing_ok=True)
