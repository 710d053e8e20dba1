"""Messages that are edited or deleted where they were written: honoured while they wait, by id, once."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from everturn.decide.admission import Admission, Policy
from everturn.model import Heard
from everturn.store.operations.inbox import Outcome, accept, read_cursor
from everturn.store.operations.reading import explain
from everturn.store.operations.revising import Revision, revise
from tests.contracts.store import QUEUE, Life, living


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as made:
        yield made


async def changes(life: Life, of: str, text: str = "", ext: str = "e1", **about: str) -> Revision:
    arrival = replace(life.arrival(text, ext=ext, **about), cursor="7")
    what = Heard.EDITED if text else Heard.DELETED
    return (await life.twice(revise, arrival, what, of)).what


async def test_words_that_wait_are_replaced_and_the_first_ones_are_still_known(life: Life) -> None:
    first = life.arrival("helo", ext="m1")
    await life.store.run(accept, first, QUEUE, None)
    assert await changes(life, "m1", "hello") is Revision.APPLIED
    assert await changes(life, "m1", "hello!", "e2") is Revision.APPLIED
    assert await changes(life, "m1", "hello") is Revision.APPLIED  # the first change, delivered again
    assert await life.look("SELECT body FROM inbox WHERE ext_id='m1'") == [("hello!",)]
    again = await life.store.run(accept, life.arrival("helo", ext="m1"), QUEUE, None)
    assert again.outcome is Outcome.DUPLICATE
    begun = await life.began()
    assert begun.words == ("hello!",)
    (lived,) = await life.store.read(explain, "m1")
    assert lived["edited_at"] == life.now
    assert await life.store.read(read_cursor, "fake", "") == "7"


@pytest.mark.parametrize(("came", "counts"), [((5, 7), 7), ((7, 5), 7), ((None, 5), 5), ((5, None), None)], ids=str)
async def test_an_edit_does_not_replace_what_its_author_wrote_later(
    life: Life, came: tuple[int | None, int | None], counts: int | None
) -> None:
    """Where the platform numbers them; else the one that comes last counts."""
    first, second = came
    await life.store.run(accept, replace(life.arrival(f"words {first}", ext="m1"), edition=first), QUEUE, None)
    edit = replace(life.arrival(f"words {second}", ext="e1"), edition=second)
    done = (await life.twice(revise, edit, Heard.EDITED, "m1")).what
    assert done is (Revision.APPLIED if counts == second else Revision.OUTDATED)
    assert await life.look("SELECT body, edition FROM inbox WHERE ext_id='m1'") == [(f"words {counts}", counts)]


async def test_a_message_that_was_begun_stays_as_it_was(life: Life) -> None:
    await life.store.run(accept, life.arrival("hello", ext="m1"), QUEUE, life.start())
    assert await changes(life, "m1", "other words") is Revision.TOO_LATE
    assert await changes(life, "m1", ext="d1") is Revision.TOO_LATE
    assert await life.states("turn") == ["running"]
    assert await life.look("SELECT ext_id, kind, state, body, why FROM inbox WHERE kind<>'message' ORDER BY id") == [
        ("e1", "edit", "done", "", "too_late"),
        ("d1", "deletion", "done", "", "too_late"),
    ]


async def test_a_message_deleted_while_it_waits_is_withdrawn(life: Life) -> None:
    await life.begun()
    await life.store.run(accept, life.arrival("no, wait", ext="m2"), QUEUE, None)
    assert await changes(life, "m2", ext="d1") is Revision.APPLIED
    assert await life.look("SELECT state, why FROM inbox WHERE ext_id='m2'") == [("withdrawn", "deleted")]
    assert (await life.entry()).waiting == 0
    assert await changes(life, "m2", "again", "e2") is Revision.TOO_LATE


async def test_what_happens_in_another_chat_changes_nothing(life: Life) -> None:
    """Promise 8: whoever may delete in their own room names any id there. A chat with another number is the same chat."""
    await life.store.run(accept, life.arrival("hello", ext="m1"), QUEUE, None)
    for number, what in enumerate((Heard.DELETED, Heard.EDITED)):
        elsewhere = life.arrival("other", "d", ext=f"x{number}")
        assert (await life.twice(revise, elsewhere, what, "m1")).what is Revision.ELSEWHERE
    assert await life.look("SELECT body, state FROM inbox WHERE ext_id='m1'") == [("hello", "waiting")]
    moved = life.arrival("", "d", ext="x2", chat_id_alt="c")
    assert (await life.twice(revise, moved, Heard.DELETED, "m1")).what is Revision.APPLIED


async def test_nobody_changes_the_words_of_somebody_else_or_of_another_kind(life: Life) -> None:
    await life.store.run(accept, life.arrival("hello", ext="m1"), QUEUE, None)
    assert await changes(life, "m1", "mine", user_id="bob") is Revision.NOT_THEIRS
    assert await changes(life, "m1", "/new", "e2") is Revision.OTHER_KIND
    assert await changes(life, "m9", "hello", "e3") is Revision.UNKNOWN
    closed = replace(life.arrival("hello!", ext="e4"), admission=Admission(policies={"fake": Policy()}))
    assert (await life.store.run(revise, closed, Heard.EDITED, "m1")).what is Revision.DENIED
    assert await life.look("SELECT body FROM inbox WHERE ext_id='m1'") == [("hello",)]
