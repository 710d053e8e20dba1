"""What a turn costs, in counts that do not depend on the machine: statements, commits, tasks, and calls of functions."""

import asyncio
import dis
import inspect
import sys
import threading
import tomllib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import everturn
from everturn.store.interface import Op, Rows, Store, sql
from everturn.store.open import open_store
from everturn.store.postgres import PostgresStore
from everturn.store.sqlite import SQLiteStore

COSTS = Path(__file__).with_name("turn_costs.toml")
PACKAGE = Path(everturn.__file__).parent
TESTS = Path(__file__).parent
BY_THE_CLOCK = {"on_tick", "open_connections", "look", "tidy", "_grow"}  # run now and then, whatever is said
TURNS = 11  # PostgreSQL may get up to nine more connections while we look: some turns meet none
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Costs:
    """Statements that were run, commits, tasks that our code made, and Python functions that it called."""

    statements: int
    commits: int
    tasks: int
    calls: int

    def __sub__(self, other: "Costs") -> "Costs":
        return Costs(*(mine - its for mine, its in zip(astuple(self), astuple(other), strict=True)))


def _least(costs: Iterable[Costs]) -> Costs:
    return Costs(*map(min, zip(*map(astuple, costs), strict=True)))


class Codes(dict[CodeType, tuple[bool, bool, int]]):
    """Of each code object: whether it is the gateway's, whether it is the tests', and where a generator begins (else none)."""

    def __missing__(self, code: CodeType) -> tuple[bool, bool, int]:
        path = Path(code.co_filename)
        testing = path.is_relative_to(TESTS) or (path.is_relative_to(PACKAGE) and _is_for_tests(path))
        ours = path.is_relative_to(PACKAGE) and not testing and code.co_name not in BY_THE_CLOCK
        begins = sys.maxsize
        if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            begins = next(each.offset for each in dis.get_instructions(code) if each.opname == "RESUME")
        found = self[code] = ours, testing, begins
        return found


def _is_for_tests(path: Path) -> bool:
    return path.relative_to(PACKAGE).parts[0].startswith("testing")


CODES = Codes()  # to look at a code object takes longer than to run many


class Meter:
    """Counts while it is on. Every thread counts for itself; a function that goes on after a wait is not called again."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.functions_of_last: Counter[str] = Counter()
        self.statements_of_last: list[str] = []
        self._by_thread: dict[int, Counter[CodeType]] = {}
        self._tasks = 0
        self._store: SQLiteStore | PostgresStore | None = None

    async def open(self, url: str) -> Store:
        """A store whose statements and threads are counted."""
        threading.setprofile(self._see)
        try:
            self._store = await open_store(url)
        finally:
            threading.setprofile(None)
        return CountedStore(self._store, self.statements)

    @contextmanager
    def on(self) -> Iterator[None]:
        """Count what this thread calls, and the tasks of its loop."""
        loop = asyncio.get_running_loop()
        loop.set_task_factory(self._make_task)
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)
            loop.set_task_factory(None)

    async def of(self, turn: Callable[[], Awaitable[None]], turns: int = TURNS) -> Costs:
        """The costs of a turn, without what looking costs: the least of a few of either, as the system may do something beside
        them. The first one warms up.
        """
        await turn()
        with self.on():
            await self._now()
            looks, each = zip(*[await self._of_one(turn) for _ in range(turns)], strict=True)
        return _least(each) - _least(looks)

    async def _of_one(self, turn: Callable[[], Awaitable[None]]) -> tuple[Costs, Costs]:
        """What a look costs, and a turn with a look."""
        start = await self._now()
        before = await self._now()
        statements, functions = len(self.statements), self._functions()
        await turn()
        self.statements_of_last = self.statements[statements:]
        self.functions_of_last = Counter()
        for code, times in (self._functions() - functions).items():
            self.functions_of_last[f"{Path(code.co_filename).name}:{code.co_qualname}"] += times
        return before - start, await self._now() - before

    async def _now(self) -> Costs:
        """What was counted so far. The engine looks at its own thread while it runs an operation, so that it is past all others."""
        if self._store is None:
            raise RuntimeError("no store was opened")
        thread, calls = await self._store.run(self._calls)
        seen = {thread: calls, threading.get_ident(): self._calls_here()}
        return Costs(len(self.statements), self._store.commits, self._tasks, sum(seen.values()))

    def _calls(self) -> Op[tuple[int, int]]:
        yield sql("SELECT 1")
        return threading.get_ident(), self._calls_here()

    def _functions(self) -> Counter[CodeType]:
        return sum(self._by_thread.values(), Counter())

    def _calls_here(self) -> int:
        return sum(self._by_thread.get(threading.get_ident(), {}).values())

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        ours, testing, begins = CODES[frame.f_code]
        if testing or frame.f_lasti > begins:
            return
        if ours or (frame.f_back is not None and CODES[frame.f_back.f_code][0]):
            counts = self._by_thread.setdefault(threading.get_ident(), Counter())
            counts[frame.f_code] += 1

    def _make_task(self, loop: asyncio.AbstractEventLoop, work: Any, **given: Any) -> "asyncio.Task[Any]":
        """Ours is what runs our code, or was made by it."""
        code, maker = getattr(work, "cr_code", None) or getattr(work, "gi_code", None), inspect.currentframe()
        while maker is not None and (maker.f_code.co_filename == __file__ or "asyncio" in maker.f_code.co_filename):
            maker = maker.f_back
        makes = maker is not None and CODES[maker.f_code][0]
        self._tasks += makes or (code is not None and CODES[code][0])  # who closes a generator has no code
        return asyncio.Task(work, loop=loop, **given)


class CountedStore:
    """A store that notes each statement; all else passes through."""

    def __init__(self, store: SQLiteStore | PostgresStore, statements: list[str]) -> None:
        self._store = store
        self._statements = statements
        self.lock_instance, self.locks_settled, self.alive = store.lock_instance, store.locks_settled, store.alive
        self.trouble, self.now, self.meters, self.close = store.trouble, store.now, store.meters, store.close

    def run(self, operation: Callable[..., Op[T]], *args: Any, **kwargs: Any) -> "asyncio.Future[T]":
        """Run and commit."""
        return self._store.run(partial(self._noted, operation), *args, **kwargs)

    def read(self, operation: Callable[..., Op[T]], *args: Any, **kwargs: Any) -> "asyncio.Future[T]":
        """Only look."""
        return self._store.read(partial(self._noted, operation), *args, **kwargs)

    def _noted(self, operation: Callable[..., Op[T]], *args: Any, **kwargs: Any) -> Op[T]:
        running = operation(*args, **kwargs)
        rows: Rows | None = None
        while True:
            try:
                statement = running.send(rows)  # type: ignore[arg-type]  # a generator starts with None
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            self._statements.append(statement[0])
            rows = yield statement


def recorded(text: str | None = None) -> dict[str, Costs]:
    """The costs that a turn may have, by how it comes and where it is kept."""
    known = tomllib.loads(COSTS.read_text(encoding="utf-8") if text is None else text)
    return {name: Costs(**each) for name, each in known.items() if name != "raised"}


def risen(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The numbers that went up without a new page of `docs/decisions/` beside them."""
    reasons = {name: why for name, why in now.get("raised", {}).items() if before.get("raised", {}).get(name) != why}
    return [
        f"{name}.{what} was {number} and now is {now[name][what]}"
        for name, numbers in before.items()
        if name != "raised" and name in now
        for what, number in numbers.items()
        if now[name][what] > number and f"{name}.{what}" not in reasons
    ]
