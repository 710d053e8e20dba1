"""Choose the next key for a free slot, from three queues in memory. Nothing here touches the database or the clock.

The queues: new work, interrupted turns (which leave half of the slots to new work), and suspects, of which only one may be
unproven at a time, so that the next crash shows which turn causes it.
"""

from __future__ import annotations


class Lanes:
    """Three queues of keys, and the suspect that is being watched."""

    def __init__(self, slots: int) -> None:
        self._fresh: dict[str, None] = {}
        self._resumes: dict[str, None] = {}
        self._suspects: dict[str, None] = {}
        self._resumes_at_once = max(1, slots // 2)
        self._unproven: str | None = None

    def add(self, key: str, *, resume: bool) -> None:
        """Queue a key that has work; one that is queued already keeps its place."""
        if key in self._resumes or key in self._suspects:
            return
        if resume:
            self._fresh.pop(key, None)
        (self._resumes if resume else self._fresh)[key] = None

    def add_suspect(self, key: str) -> None:
        """Queue a suspect: its turn begins when no other suspect is unproven."""
        self._suspects[key] = None
        self.clear(key)

    def waits(self, key: str) -> bool:
        """Whether the key is in a queue."""
        return key in self._fresh or key in self._resumes or key in self._suspects

    def any_resume(self) -> bool:
        """Whether an interrupted turn is queued."""
        return bool(self._resumes)

    def pick(self, resumed: int) -> tuple[str, bool] | None:
        """Take the key for the next slot, while `resumed` interrupted turns have one; and whether it resumes."""
        if self._suspects and self._unproven is None:
            self._unproven = key = _pop(self._suspects)
            return key, False
        if self._resumes and resumed < self._resumes_at_once:
            return _pop(self._resumes), True
        return (_pop(self._fresh), False) if self._fresh else None

    def watch(self, key: str) -> None:
        """Watch a suspect that begins: no other may begin until it is cleared."""
        self._unproven = key

    def watches(self, key: str) -> bool:
        """Whether this suspect is the one that may begin."""
        return self._unproven == key

    def clear(self, key: str) -> None:
        """Stop watching a suspect that is proven, did not begin, or has ended."""
        if self._unproven == key:
            self._unproven = None

    def delay_resumes(self) -> None:
        """Delay all interrupted turns (crash loop)."""
        self._resumes_at_once = 0

    def resume_one_at_a_time(self) -> None:
        """End the crash loop delay: interrupted turns resume, one at a time."""
        self._resumes_at_once = 1

    def delayed_resumes(self) -> int:
        """How many interrupted turns the crash loop delays."""
        return len(self._resumes) if self._resumes_at_once == 0 else 0


def _pop(queue: dict[str, None]) -> str:
    key = next(iter(queue))
    del queue[key]
    return key
