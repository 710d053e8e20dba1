"""/approve and /deny: an answer and its command are one commit; a turn that waits goes on with it."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from everturn.model import Effect, ToolCall
from everturn.store.operations.approvals import Asking, May, ask_first
from everturn.store.operations.command_answers import split_answer
from everturn.store.operations.command_values import Applied, Terms
from everturn.store.operations.turns import step
from tests.contracts.store import BY_EVENT, Life, answer_to, broken, key_of, living, response

SHELL = ToolCall(id="call", name="shell", effect=Effect.ONCE, ask="Run: rm -r x")


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url, delivery=BY_EVENT) as life:
        yield life


async def question(life: Life, chat: str = "c") -> int:
    """A turn that waits; the number of its question."""
    begun = await life.called("use the shell", chat)
    await life.store.run(step, begun, response(begun, 1, "call", at=life.now), None, None, prove_it=False)
    asking = Asking(id=life.ids.next(), at=life.now, expires_s=3600, delivery=life.delivery)
    permission = await life.store.run(ask_first, begun, SHELL, asking)
    assert permission.may is May.ASKED
    return asking.id


async def answered(life: Life, text: str, chat: str = "c", terms: Terms | None = None) -> tuple[Applied, str]:
    """A command, and what it says; every rule of the store holds afterwards."""
    said = await answer_to(life, text, chat, terms)
    assert await life.store.read(broken) == {}
    return said


async def goes_on(life: Life, chat: str = "c") -> tuple[May, str]:
    """The waiting turn goes on, without a note, and asks for its call again."""
    begun = await life.began(chat)
    assert (begun.attempt, begun.note, begun.words) == (2, None, ("use the shell",))
    asking = Asking(id=life.ids.next(), at=life.now, expires_s=3600, delivery=life.delivery)
    permission = await life.store.run(ask_first, begun, SHELL, asking)
    return permission.may, permission.why


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/approve", "this once"),
        ("/approve session", "for this conversation"),
        ("/approve {id} always", "from now on"),
        ("/Approve {id} ALWAYS", "from now on"),
    ],
)
async def test_a_yes_lets_the_call_run(life: Life, text: str, said: str) -> None:
    number = await question(life)
    applied, answer = await answered(life, text.format(id=number))
    assert f"shell may be used {said}" in answer
    assert [event.kind for event in applied.events] == ["approval", "reply"]
    assert (applied.stopped, applied.wakes) == (None, key_of() if "id" in text else None)
    assert await goes_on(life) == (May.ALLOWED, "")


@pytest.mark.parametrize("text", ["/deny", "/deny {id}", "/deny it is too late", "/deny {id} it is too late"])
async def test_a_no_is_told_to_the_model_with_its_words(life: Life, text: str) -> None:
    number = await question(life)
    _, answer = await answered(life, text.format(id=number))
    assert answer == "Denied: shell is not used. The task goes on without it."
    may, why = await goes_on(life)
    assert (may, "it is too late" in why) == (May.REFUSED, "late" in text)


async def test_an_answer_from_another_chat_names_the_question(life: Life) -> None:
    number = await question(life)
    _, nothing = await answered(life, "/approve", chat="elsewhere")
    assert nothing == "Nothing waits for an approval here."
    applied, answer = await answered(life, f"/approve {number}", chat="elsewhere")
    assert "Approved" in answer
    assert (applied.key, applied.wakes) == (key_of("elsewhere"), key_of())
    assert await goes_on(life) == (May.ALLOWED, "")


async def test_an_answer_that_comes_too_late_or_is_no_answer_changes_nothing(life: Life) -> None:
    assert (await answered(life, "/approve"))[1] == "Nothing waits for an approval here."
    number = await question(life)
    assert "/approve session" in (await answered(life, "/approve please"))[1]
    await answered(life, "/deny")
    assert "no longer open" in (await answered(life, f"/approve {number}"))[1]
    assert (await goes_on(life))[0] is May.REFUSED


async def test_named_approvers_alone_allow(life: Life) -> None:
    await question(life)
    bobs = changed(life.terms(), approvers=("fake:bob",))
    assert "one of the approvers" in (await answered(life, "/approve", terms=bobs))[1]
    anns = changed(life.terms(), approvers=("fake:ann",))
    assert "Approved" in (await answered(life, "/approve", terms=anns))[1]


async def test_stop_and_new_close_the_question(life: Life) -> None:
    for command in ("/stop", "/new"):
        number = await question(life)
        applied = await life.command(command)
        assert applied.stopped is not None
        assert "no longer open" in (await answered(life, f"/approve {number}"))[1]


async def test_undo_waits_for_a_question(life: Life) -> None:
    await replace(life).talk("first")
    await question(life)
    assert "may I use shell? Send /approve or /deny." in (await answered(life, "/status"))[1]
    assert "A task here is not finished yet. Send /stop first" in (await answered(life, "/undo"))[1]


@pytest.mark.parametrize(
    ("argument", "parts"),
    [
        ("", (None, "")),
        ("7", (7, "")),
        ("7 always", (7, "always")),
        ("always", (None, "always")),
        ("9" * 40, (None, "9" * 40)),
    ],
)
def test_an_answer_may_name_its_question(argument: str, parts: tuple[int | None, str]) -> None:
    assert split_answer(argument) == parts
