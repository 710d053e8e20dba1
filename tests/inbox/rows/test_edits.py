"""Messages that are edited or deleted on the platform: applied while they are queued, by id, once."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from everturn.inbox.rows.inbox import AcceptOutcome, accept, read_cursor
from everturn.inbox.rows.steering import Revision, revise
from everturn.model import Heard
from everturn.operator.rows.reading import explain
from everturn.people.rules.access import AccessPolicy, Admission
from tests.contracts.store import QUEUE, StoreProcess, living


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as made:
        yield made


async def changes(process: StoreProcess, of: str, text: str = "", ext: str = "e1", **about: str) -> Revision:
    arrival = replace(process.arrival(text, ext=ext, **about), cursor="7")
    what = Heard.EDITED if text else Heard.DELETED
    return (await process.twice(revise, arrival, what, of)).what


async def test_queued_text_is_replaced_and_the_first_text_is_still_known(process: StoreProcess) -> None:
    first = process.arrival("helo", ext="m1")
    await process.store.run(accept, first, QUEUE, None)
    assert await changes(process, "m1", "hello") is Revision.APPLIED
    assert await changes(process, "m1", "hello!", "e2") is Revision.APPLIED
    assert await changes(process, "m1", "hello") is Revision.APPLIED  # the first change, delivered again
    assert await process.look("SELECT body FROM inbox WHERE ext_id='m1'") == [("hello!",)]
    again = await process.store.run(accept, process.arrival("helo", ext="m1"), QUEUE, None)
    assert again.outcome is AcceptOutcome.DUPLICATE
    begun = await process.began()
    assert begun.texts == ("hello!",)
    (lived,) = await process.store.read(explain, "m1")
    assert lived["edited_at"] == process.now
    assert await process.store.read(read_cursor, "fake", "") == "7"


@pytest.mark.parametrize(("came", "counts"), [((5, 7), 7), ((7, 5), 7), ((None, 5), 5), ((5, None), None)], ids=str)
async def test_an_edit_does_not_replace_what_its_author_wrote_later(
    process: StoreProcess, came: tuple[int | None, int | None], counts: int | None
) -> None:
    """Where the platform numbers them; else the one that comes last counts."""
    first, second = came
    await process.store.run(accept, replace(process.arrival(f"words {first}", ext="m1"), edition=first), QUEUE, None)
    edit = replace(process.arrival(f"words {second}", ext="e1"), edition=second)
    done = (await process.twice(revise, edit, Heard.EDITED, "m1")).what
    assert done is (Revision.APPLIED if counts == second else Revision.OUTDATED)
    assert await process.look("SELECT body, edition FROM inbox WHERE ext_id='m1'") == [(f"words {counts}", counts)]


async def test_a_message_that_was_begun_stays_as_it_was(process: StoreProcess) -> None:
    await process.store.run(accept, process.arrival("hello", ext="m1"), QUEUE, process.start())
    assert await changes(process, "m1", "other words") is Revision.TOO_LATE
    assert await changes(process, "m1", ext="d1") is Revision.TOO_LATE
    assert await process.states("turn") == ["running"]
    assert await process.look("SELECT ext_id, kind, state, body, why FROM inbox WHERE kind<>'message' ORDER BY id") == [
        ("e1", "edit", "done", "", "too_late"),
        ("d1", "deletion", "done", "", "too_late"),
    ]


async def test_a_message_deleted_while_it_waits_is_withdrawn(process: StoreProcess) -> None:
    await process.begun()
    await process.store.run(accept, process.arrival("no, wait", ext="m2"), QUEUE, None)
    assert await changes(process, "m2", ext="d1") is Revision.APPLIED
    assert await process.look("SELECT state, why FROM inbox WHERE ext_id='m2'") == [("withdrawn", "deleted")]
    assert (await process.entry()).waiting == 0
    assert await changes(process, "m2", "again", "e2") is Revision.TOO_LATE


async def test_what_happens_in_another_chat_changes_nothing(process: StoreProcess) -> None:
    """Promise 8: whoever may delete in their own room names any id there. A chat with another number is the same chat."""
    await process.store.run(accept, process.arrival("hello", ext="m1"), QUEUE, None)
    for number, what in enumerate((Heard.DELETED, Heard.EDITED)):
        elsewhere = process.arrival("other", "d", ext=f"x{number}")
        assert (await process.twice(revise, elsewhere, what, "m1")).what is Revision.ELSEWHERE
    assert await process.look("SELECT body, state FROM inbox WHERE ext_id='m1'") == [("hello", "queued")]
    moved = process.arrival("", "d", ext="x2", chat_id_alt="c")
    assert (await process.twice(revise, moved, Heard.DELETED, "m1")).what is Revision.APPLIED


async def test_nobody_edits_a_message_of_somebody_else_or_of_another_kind(process: StoreProcess) -> None:
    await process.store.run(accept, process.arrival("hello", ext="m1"), QUEUE, None)
    assert await changes(process, "m1", "mine", user_id="bob") is Revision.NOT_THEIRS
    assert await changes(process, "m1", "/new", "e2") is Revision.OTHER_KIND
    assert await changes(process, "m9", "hello", "e3") is Revision.UNKNOWN
    closed = replace(process.arrival("hello!", ext="e4"), admission=Admission(policies={"fake": AccessPolicy()}))
    assert (await process.store.run(revise, closed, Heard.EDITED, "m1")).what is Revision.DENIED
    assert await process.look("SELECT body FROM inbox WHERE ext_id='m1'") == [("hello",)]
