"""The scenarios in which a process dies at every point: how each begins, and what must be true in the end.

All of them run on the platform in memory, which takes keys. Growing answers have scenarios of their own for every class of
delivery (test_streaming_points); a real platform adds only the points of its own border (test_telegram, test_matrix).
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from everturn.lifecycle.settings import Settings
from everturn.store.open import open_store
from everturn.testing import FakePlatform
from everturn.testing.model import read_log
from everturn.turns.rules.spending import SpendingLimits
from tests.contracts.store import broken, select
from tests.crash import admitted, changed_chats, operated, sent_files
from tests.crash.asking import AskingAgent, asks, expires
from tests.crash.busy_processes import FIRST, SECOND, Digger, answers
from tests.crash.filling import Filling
from tests.crash.gateway_process import DIED, SENT, CrashProcess, Death, answer_to
from tests.crash.homes import Homes
from tests.crash.models import asks as asks_model
from tests.crash.outside import history_of, transcript_of
from tests.crash.processes import run_gateway
from tests.history import problems, steps_of
from tests.model_history import model_problems
from tests.promises import notes, paid_twice, repeated


@dataclass(frozen=True)
class Scenario:
    """How a process begins, which may die, and what must be true when the next one has ended (`at` says where it died)."""

    fresh: Callable[[Homes, Death | None], CrashProcess]
    check: Callable[[CrashProcess, object], None]
    only: tuple[
        str, ...
    ] = ()  # the points that it is for, where others have no meaning in it; none: all that it passes
    cancelled: bool = False  # whether the task that reaches a point is also cancelled there


def nothing_wrong(process: CrashProcess, at: object) -> None:
    """Promises 1 to 8."""
    assert problems(history_of(process)) == [], at


def plainly(scenario: str) -> Scenario:
    """One of those that tests.crash.gateway_process knows by name."""
    return Scenario(lambda homes, death: homes.fresh(scenario, death), nothing_wrong, cancelled=scenario != "undo")


def recovering(first: str, scenario: str) -> Scenario:
    """What a process does whose predecessor died at this point: recovery takes the normal path, and may itself die anywhere."""

    def fresh(homes: Homes, death: Death | None) -> CrashProcess:
        process = homes.fresh("behind", Death(first, 1))
        assert run_gateway(process) == DIED, first
        return replace(process, scenario=scenario, death=death)

    return Scenario(fresh, nothing_wrong)


def own(
    agent: Callable[..., object], check: Callable[[CrashProcess, object], None], *only: str, **about: object
) -> Scenario:
    """One whose agent brings what happens."""

    def fresh(homes: Homes, death: Death | None) -> CrashProcess:
        return replace(homes.fresh("own", death), agent=agent, **about)  # type: ignore[arg-type]

    return Scenario(fresh, check, only)


# -- a message that a tool sends, and approvals ------------------------------------------------------------------------


def sent_once(process: CrashProcess, at: object) -> None:
    """Promises 5 and 6: the call is repeated, the message is not."""
    nothing_wrong(process, at)
    assert FakePlatform(file=process.folder / "platform").texts("two").count(SENT) == 1, at


def asking(homes: Homes, death: Death | None) -> CrashProcess:
    """Two calls that need an approval, spending limits, a compaction."""
    process = homes.fresh("given", death)
    settings = replace(process.settings, limits=SpendingLimits(turn_tokens=10**6, total_tokens_day=10**9))
    return replace(process, agent=AskingAgent, play=asks, settings=settings)


def expiring(homes: Homes, death: Death | None) -> CrashProcess:
    """The same, but nobody answers."""
    process = asking(homes, death)
    return replace(process, play=expires, settings=replace(process.settings, approval_expires_s=0.0))


def approved(process: CrashProcess, at: object) -> None:
    """Nothing was asked twice, or ran twice or without an approval; the key stands on the child session, with every call and its result."""
    nothing_wrong(process, at)
    roles = [row.role for row in transcript_of(process)]
    assert roles == ["summary", "user", "assistant", "tool", "tool", "assistant"], at


# -- a message while a turn runs ---------------------------------------------------------------------------------------


def busy(mode: str) -> Scenario:
    """It joins the turn, interrupts it, or takes it back."""
    settings = Settings(busy=mode, stuck_after=0, unclean_boots=0, drain_s=0.0, burst_s=0.0, in_flight_s=0.0)

    def check(process: CrashProcess, at: object) -> None:
        """Nothing is lost, answered twice or done twice, and calls have their results."""
        rules, states = asyncio.run(stored(process.url))
        seen = Counter(answers(FakePlatform(file=process.folder / "platform")))
        history = history_of(process)
        assert rules == {}, at
        assert seen[answer_to(SECOND)] == 1, at
        assert seen[answer_to(FIRST)] == (states[0] == "done"), at
        assert set(states) <= ({"done"} if mode == "steer" else {"done", "withdrawn"}), at
        assert (states[1], len(states)) == ("done", 2), at
        assert [
            *repeated(history.effects, "twice"),
            *paid_twice(steps_of(history)),
            *notes(history.transcripts),
        ] == [], at

    return replace(own(Digger, check, settings=settings), cancelled=True)


async def stored(url: str) -> tuple[dict[str, object], list[str]]:
    """The rules that are broken in the database, and what became of the messages."""
    store = await open_store(url)
    try:
        states = await store.read(select, "SELECT state FROM inbox WHERE kind='message' ORDER BY id")
        return dict(await store.read(broken)), [row[0] for row in states]
    finally:
        await store.close()


# -- a language model --------------------------------------------------------------------------------------------------


def with_a_model(homes: Homes, death: Death | None) -> CrashProcess:
    """Turns with several tool calls."""
    log = homes.model.log
    return replace(homes.fresh("model", death), agent=asks_model(homes.model.base_url), asked=(log, len(read_log(log))))


def asked_once(process: CrashProcess, at: object) -> None:
    """Promises 4, 5 and 7: no committed step is asked for again, and a request holds the transcript and at most one note."""
    nothing_wrong(process, at)
    assert process.asked is not None
    log, before = process.asked
    assert model_problems(read_log(log)[before:], transcript_of(process)) == [], at


SCENARIOS: dict[str, Scenario] = {
    **{name: plainly(name) for name in ("plain", "tools", "reset", "drain", "undo", "restart")},
    **{f"recovery after {first}": recovering(first, "finish") for first in ("step.committed", "effect.acted", "turn.finished")},
    **{f"two recoveries after {first}": recovering(first, "two_recoveries") for first in ("step.committed", "effect.acted", "turn.finished")},
    **{mode: busy(mode) for mode in ("steer", "interrupt", "rollback")},
    "sends": Scenario(lambda homes, death: homes.fresh("sends", death), sent_once),
    "asks": Scenario(asking, approved, cancelled=True),
    "expires": Scenario(expiring, approved, ("approval.asked", "approval.answered"), cancelled=True),
    "model": Scenario(with_a_model, asked_once),
    "files": own(sent_files.FileAgent, sent_files.delivered_once, platform=sent_files.Albums),
    "operator": own(operated.Operated, operated.seen_once, "action.committed"),
    "access": own(admitted.AccessAgent, admitted.notified_once, "person.approved", "person.revoked", settings=admitted.PAIRING),
    "backlog": own(admitted.BacklogAgent, admitted.asked_once, "backlog.settled", settings=admitted.ASKING),
    "moved": own(changed_chats.Moving, changed_chats.went_on, "inbox.before", "inbox.committed", "chat.moved"),
    "fails": own(changed_chats.Failing, changed_chats.failed_once),
    "directory": own(Filling, lambda _timeline, _at: None, "channels.kept"),
}  # fmt: skip
