"""The cache of expensive objects: bounded, least recently used first, never what is in use, never another session's."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from everturn.agent.cache import Cache, CachedValue, CacheEntries, CacheLimits, Name
from everturn.testing import ManualClock
from tests.waiting import WAIT_S, within

LIMITS = CacheLimits(entries=3, size=100, idle_s=60)
NAMES = st.tuples(st.sampled_from("abcd"), st.sampled_from(["one", "two"]))


async def nothing() -> None:
    """How a cached object of these tests is closed."""


class ShelfMachine(RuleBasedStateMachine):
    """The entries beside a plain list of their users; after each step old ones are evicted, as the cache does."""

    taken: Bundle[Name] = Bundle("taken")

    def __init__(self) -> None:
        super().__init__()
        self.entries: CacheEntries[Name] = CacheEntries(LIMITS)
        self.now = 0.0
        self.users: list[Name] = []
        self.used_at: dict[Name, float] = {}

    @rule(target=taken, name=NAMES, size=st.integers(0, 60))
    def borrow(self, name: Name, size: int) -> Name:
        found = self.entries.take(name, self.now)
        if found is None:
            self.entries.put(name, CachedValue(name, size, nothing), self.now)
        else:
            assert found.value == name  # never another's
        self.users.append(name)
        self.used_at[name] = self.now
        self.tidy()
        return name

    @rule(name=consumes(taken))
    def release(self, name: Name) -> None:
        self.entries.release(name, self.now)
        self.users.remove(name)
        self.used_at[name] = self.now
        self.tidy()

    @rule(seconds=st.floats(0, 50))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.tidy()

    def tidy(self) -> None:
        before = self.entries.names()
        evicted = [built.value for built in self.entries.evict(self.now)]
        assert not set(evicted) & set(self.users)
        assert evicted == [name for name in before if name in evicted]  # the oldest first
        assert [name for name in before if name not in evicted] == self.entries.names()

    @invariant()
    def what_is_used_is_there(self) -> None:
        assert set(self.users) <= set(self.entries.names())

    @invariant()
    def the_bounds_are_passed_only_by_what_is_in_use(self) -> None:
        idle = [name for name in self.entries.names() if name not in self.users]
        assert not idle or (len(self.entries) <= LIMITS.entries and self.entries.size() <= LIMITS.size)

    @invariant()
    def nothing_is_idle_for_too_long(self) -> None:
        idle = [name for name in self.entries.names() if name not in self.users]
        assert all(self.now - self.used_at[name] < LIMITS.idle_s for name in idle)

    @invariant()
    def a_session_keeps_only_its_newest_thing_when_idle(self) -> None:
        idle = [session for session, signature in self.entries.names() if (session, signature) not in self.users]
        assert len(idle) == len(set(idle))


TestShelf = ShelfMachine.TestCase
TestShelf.settings = settings(max_examples=60, stateful_step_count=30)


class Dear:
    """Builds objects that can be counted."""

    def __init__(self) -> None:
        self.built: list[str] = []
        self.closed: list[str] = []
        self.go = asyncio.Event()
        self.go.set()
        self.gone = asyncio.Event()

    def build(self, name: str, size: int = 1) -> Callable[[], "asyncio.Future[CachedValue[str]]"]:
        async def make() -> CachedValue[str]:
            await self.go.wait()
            self.built.append(name)

            async def close() -> None:
                self.closed.append(name)
                self.gone.set()

            return CachedValue(name, size, close)

        return lambda: asyncio.ensure_future(make())


async def use(cache: Cache[str], dear: Dear, session: str, signature: str = "s") -> str:
    async with cache.borrow(session, signature, dear.build(f"{session} {signature}")) as thing:
        return thing


async def test_a_thing_is_built_once_for_all_who_ask_at_the_same_time() -> None:
    cache, dear = Cache[str](LIMITS, ManualClock()), Dear()
    dear.go.clear()
    asked = [asyncio.create_task(use(cache, dear, "a")) for _ in range(5)]
    first = asked.pop(0)
    await asyncio.sleep(0)
    first.cancel()
    dear.go.set()
    assert await asyncio.gather(*asked) == ["a s"] * 4
    assert dear.built == ["a s"]
    await cache.close()
    assert dear.closed == ["a s"]


async def test_another_session_never_gets_it() -> None:
    cache, dear = Cache[str](LIMITS, ManualClock()), Dear()
    assert [await use(cache, dear, each) for each in ("old", "new", "old")] == ["old s", "new s", "old s"]
    assert dear.built == ["old s", "new s"]
    await cache.close()


async def test_what_was_built_from_other_settings_is_let_go() -> None:
    cache, dear = Cache[str](LIMITS, ManualClock()), Dear()
    assert [await use(cache, dear, "a", each) for each in ("one", "two")] == ["a one", "a two"]
    assert len(cache) == 1
    await cache.close()
    assert dear.closed == ["a one", "a two"]


async def test_what_nobody_uses_any_more_is_let_go_though_nobody_comes_by() -> None:
    clock = ManualClock()
    cache, dear = Cache[str](LIMITS, clock), Dear()
    await use(cache, dear, "a")
    await asyncio.sleep(0)
    clock.advance(LIMITS.idle_s)
    async with within(WAIT_S, lambda: f"closed: {dear.closed}"):
        await dear.gone.wait()
    assert len(cache) == 0
    await cache.close()


async def test_a_failure_to_build_is_told_to_all_and_not_kept() -> None:
    cache, dear = Cache[str](LIMITS, ManualClock()), Dear()

    async def fails() -> CachedValue[str]:
        raise RuntimeError("no")

    async def ask() -> None:
        async with cache.borrow("a", "s", fails):
            pass

    told = await asyncio.gather(ask(), ask(), return_exceptions=True)
    assert [type(each) for each in told] == [RuntimeError, RuntimeError]
    assert await use(cache, dear, "a") == "a s"
    await cache.close()


async def test_a_thing_that_does_not_close_troubles_nobody() -> None:
    cache = Cache[str](LIMITS, ManualClock())

    async def breaks() -> None:
        raise RuntimeError("stuck")

    async def build() -> CachedValue[str]:
        return CachedValue("x", 1, breaks)

    async with cache.borrow("a", "s", build) as thing:
        assert thing == "x"
    await cache.close()
    assert len(cache) == 0


def test_nothing_is_put_twice() -> None:
    entries: CacheEntries[str] = CacheEntries(LIMITS)
    entries.put(("a", "s"), CachedValue("x", 1, nothing), 0)
    with pytest.raises(ValueError, match="in the cache already"):
        entries.put(("a", "s"), CachedValue("x", 1, nothing), 0)
