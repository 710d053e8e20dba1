"""`everturn chat`: the main thread reads the terminal, another talks to the gateway, so that neither waits."""

from __future__ import annotations

import _thread
import asyncio
import signal
import sys
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

import click

from everturn.cli.chat.conversation import ChatClient, TypedMessage
from everturn.cli.chat.screen import ChatScreen, screen_for_this_terminal
from everturn.cli.looking.options import home_option
from everturn.errors import EverturnError
from everturn.home.folder import Home

T = TypeVar("T")
LEAVE_S = 3.0
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
    help="How many seconds to wait for a gateway that does not run [default: 60 for piped input, else no limit].",
)
def chat(name: str, home: Home, wait_s: float | None) -> int:
    """Talk to the agent in the chat NAME; Ctrl-D or /quit leaves.

    Replies since your last visit are shown first. While the gateway is disconnected, the command keeps what you type and
    sends it after it reconnects. With piped input it sends every line, waits for the reply to the last one, and exits with
    0; it prints replies to standard output, everything else to standard error.
    """
    if not home.path.is_dir():
        raise EverturnError(f"the home {home.path} does not exist; `everturn run` creates it")
    piped = not sys.stdin.isatty()
    screen = screen_for_this_terminal()
    with ChatThread(home, name, screen, WAIT_S if wait_s is None and piped else wait_s) as link:
        try:
            last = _talk(link, screen)
            return _await_last(link, last) if piped else _leave(link, screen, last)
        except KeyboardInterrupt:
            if link.error is None:
                return INTERRUPTED
            raise link.error from None


def _talk(link: ChatThread, screen: ChatScreen) -> TypedMessage | None:
    """Send every line until there are no more; returns the last."""
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


def _await_last(link: ChatThread, last: TypedMessage | None) -> int:
    """Wait for the reply to the last line of piped input; 0 when it was answered."""
    if last is None or link.wait(link.conversation.answered(last)):
        return 0
    print(f"everturn: the last line ended without a reply; everturn explain {last.id} may say why", file=sys.stderr)
    return 1


def _leave(link: ChatThread, screen: ChatScreen, last: TypedMessage | None) -> int:
    """Wait a moment until the gateway accepted the typed lines; their replies are shown next time."""
    try:
        link.wait(link.conversation.all_sent(), LEAVE_S)
    except TimeoutError:
        screen.notice(f"not accepted by the gateway, and not saved: {link.conversation.unsent} lines")
        return 1
    if last is not None:
        screen.notice(f"timeline of your last message: everturn explain {last.id}")
    return 0


class ChatThread:
    """Runs the conversation in its own thread; when that fails, it sets `error` and wakes the main thread."""

    def __init__(self, home: Home, name: str, screen: ChatScreen, patience_s: float | None) -> None:
        self._arguments = (home, name, screen, patience_s)
        self._begun = threading.Event()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="conversation", daemon=True)
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
        self._thread.join(LEAVE_S)

    def say(self, text: str) -> TypedMessage:
        """Queue a line to be sent."""

        async def said() -> TypedMessage:
            return self.conversation.say(text)

        return self.wait(said())

    def wait(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run work in the conversation's loop; returns its result, or cancels it when it takes too long."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        finally:
            future.cancel()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.conversation = ChatClient(*self._arguments)
        self._task = asyncio.ensure_future(self.conversation.run())
        self._begun.set()
        await asyncio.wait({self._task})
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            self.error = _first(error)
            self._wake_main_thread()

    def _wake_main_thread(self) -> None:
        """Signal the main thread until it leaves: it may be reading a line, and a signal that comes too early is lost."""
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
