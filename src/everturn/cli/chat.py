"""`everturn chat`: the terminal is the main thread's, the gateway another's, so that neither waits for the other."""

from __future__ import annotations

import _thread
import asyncio
import signal
import sys
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

import click

from everturn.cli.conversation import Conversation, Said
from everturn.cli.options import home_option
from everturn.cli.screen import Screen, screen_for_this_terminal
from everturn.errors import EverturnError
from everturn.home import Home

T = TypeVar("T")
LAST_WORDS_S = 3.0
AGAIN_S = 0.3
WAIT_S = 60.0
INTERRUPTED = 130
# Not SIGINT: a shell's background job ignores that one.
WAKE = getattr(signal, "SIGUSR1", None)


@click.command
@click.argument("name", metavar="[NAME]", default="me")
@home_option
@click.option(
    "--wait",
    "wait_s",
    metavar="SECONDS",
    type=click.FloatRange(0),
    help="How long to wait for a gateway that is not there [default: 60 for piped input, else for ever].",
)
def chat(name: str, home: Home, wait_s: float | None) -> int:
    """Talk to the agent in the chat NAME; Ctrl-D or /quit leaves.

    What was answered while you were gone is shown first. When the gateway goes away, what you type is kept and sent
    when it is back. With piped input every line is sent, the reply to the last one awaited, and 0 returned; replies are
    printed to standard output, everything else to standard error.
    """
    if not home.path.is_dir():
        raise EverturnError(f"the home {home.path} does not exist; everturn run makes it")
    piped = not sys.stdin.isatty()
    screen = screen_for_this_terminal()
    with Link(home, name, screen, WAIT_S if wait_s is None and piped else wait_s) as link:
        try:
            last = _talk(link, screen)
            return _await_last(link, last) if piped else _leave(link, screen, last)
        except KeyboardInterrupt:
            if link.error is None:
                return INTERRUPTED
            raise link.error from None


def _talk(link: Link, screen: Screen) -> Said | None:
    """Say every line until there are no more; returns the last."""
    last = None
    while True:
        try:
            line = screen.ask()
        except EOFError:
            return last
        if line.strip() == "/quit":
            return last
        if line.strip():
            last = link.say(line)


def _await_last(link: Link, last: Said | None) -> int:
    """For programs: 0 when the last line was answered."""
    if last is None or link.wait(link.conversation.answered(last)):
        return 0
    print(f"everturn: the last line ended without a reply; everturn explain {last.id} may say why", file=sys.stderr)
    return 1


def _leave(link: Link, screen: Screen, last: Said | None) -> int:
    """For people: what was typed gets a moment to be accepted; its answer is shown next time."""
    try:
        link.wait(link.conversation.all_sent(), LAST_WORDS_S)
    except TimeoutError:
        screen.notice(f"not accepted by the gateway, and not kept: {link.conversation.unsent} lines")
        return 1
    if last is not None:
        screen.notice(f"the life of your last message: everturn explain {last.id}")
    return 0


class Link:
    """The conversation in a thread of its own; when it fails, the main thread is woken and finds `error`."""

    def __init__(self, home: Home, name: str, screen: Screen, patience_s: float | None) -> None:
        self._arguments = (home, name, screen, patience_s)
        self._begun = threading.Event()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), name="conversation", daemon=True)
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        if WAKE is not None:
            signal.signal(WAKE, self._woken)
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        if self.error is None:
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(LAST_WORDS_S)

    def say(self, text: str) -> Said:
        """Hand over a line."""

        async def said() -> Said:
            return self.conversation.say(text)

        return self.wait(said())

    def wait(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """The result of work in the conversation's loop; the work is cancelled when it takes too long."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        finally:
            future.cancel()

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.conversation = Conversation(*self._arguments)
        self._task = asyncio.ensure_future(self.conversation.run())
        self._begun.set()
        await asyncio.wait({self._task})
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            self.error = _first(error)
            self._wake_main_thread()

    def _wake_main_thread(self) -> None:
        """It may be waiting for a line: only a signal gets it out of that, and one that comes too early does not."""
        while not self._leaving.is_set():
            if WAKE is None:
                _thread.interrupt_main()
            else:
                signal.pthread_kill(threading.main_thread().ident or 0, WAKE)
            self._leaving.wait(AGAIN_S)

    def _woken(self, *_: object) -> None:
        if not self._leaving.is_set():
            raise KeyboardInterrupt


def _first(error: BaseException) -> BaseException:
    """The first error of a group, or of a group in it."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
