"""/approve and /deny: an answer and its command are one commit; a turn that waits goes on with it."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from everturn.commands.rows.commands import split_answer
from everturn.commands.rows.values import Applied, Terms
from everturn.model import Effect, ToolCall
from everturn.turns.rows.approvals import ApprovalTerms, May, begin_approved
from everturn.turns.rows.turns import step
from tests.contracts.store import BY_EVENT, StoreProcess, answer_to, broken, key_of, living, response

SHELL = ToolCall(id="call", name="shell", effect=Effect.ONCE, ask="Run: rm -r x")


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url, delivery=BY_EVENT) as process:
        yield process


async def open_request(process: StoreProcess, chat: str = "c") -> int:
    """A turn that awaits approval; the number of its approval request."""
    begun = await process.called("use the shell", chat)
    await process.store.run(step, begun, response(begun, 1, "call", at=process.now), None, None, prove_it=False)
    terms = ApprovalTerms(id=process.ids.next(), at=process.now, expires_s=3600, delivery=process.delivery)
    permission = await process.store.run(begin_approved, begun, SHELL, terms)
    assert permission.may is May.REQUESTED
    return terms.id


async def answered(
    process: StoreProcess, text: str, chat: str = "c", terms: Terms | None = None
) -> tuple[Applied, str]:
    """A command, and what it says; every rule of the store holds afterwards."""
    said = await answer_to(process, text, chat, terms)
    assert await process.store.read(broken) == {}
    return said


async def goes_on(process: StoreProcess, chat: str = "c") -> tuple[May, str]:
    """The waiting turn goes on, without a note, and asks for its call again."""
    begun = await process.began(chat)
    assert (begun.attempt, begun.note, begun.texts) == (2, None, ("use the shell",))
    terms = ApprovalTerms(id=process.ids.next(), at=process.now, expires_s=3600, delivery=process.delivery)
    permission = await process.store.run(begin_approved, begun, SHELL, terms)
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
async def test_a_yes_lets_the_call_run(process: StoreProcess, text: str, said: str) -> None:
    number = await open_request(process)
    applied, answer = await answered(process, text.format(id=number))
    assert f"shell may be used {said}" in answer
    assert [event.kind for event in applied.events] == ["approval", "reply"]
    assert (applied.stopped, applied.wakes) == (None, key_of() if "id" in text else None)
    assert await goes_on(process) == (May.ALLOWED, "")


@pytest.mark.parametrize("text", ["/deny", "/deny {id}", "/deny it is too late", "/deny {id} it is too late"])
async def test_a_denial_is_passed_to_the_model_with_its_reason(process: StoreProcess, text: str) -> None:
    number = await open_request(process)
    _, answer = await answered(process, text.format(id=number))
    assert answer == "Denied: shell is not used. The task goes on without it."
    may, why = await goes_on(process)
    assert (may, "it is too late" in why) == (May.REFUSED, "late" in text)


async def test_an_answer_from_another_chat_names_the_request(process: StoreProcess) -> None:
    number = await open_request(process)
    _, nothing = await answered(process, "/approve", chat="elsewhere")
    assert nothing == "No approval request is open here."
    applied, answer = await answered(process, f"/approve {number}", chat="elsewhere")
    assert "Approved" in answer
    assert (applied.key, applied.wakes) == (key_of("elsewhere"), key_of())
    assert await goes_on(process) == (May.ALLOWED, "")


async def test_an_answer_that_comes_too_late_or_is_no_answer_changes_nothing(process: StoreProcess) -> None:
    assert (await answered(process, "/approve"))[1] == "No approval request is open here."
    number = await open_request(process)
    assert "/approve session" in (await answered(process, "/approve please"))[1]
    await answered(process, "/deny")
    assert "no longer open" in (await answered(process, f"/approve {number}"))[1]
    assert (await goes_on(process))[0] is May.REFUSED


async def test_named_approvers_alone_allow(process: StoreProcess) -> None:
    await open_request(process)
    bobs = changed(process.terms(), approvers=("fake:bob",))
    assert "an approver whom the owner has named" in (await answered(process, "/approve", terms=bobs))[1]
    anns = changed(process.terms(), approvers=("fake:ann",))
    assert "Approved" in (await answered(process, "/approve", terms=anns))[1]


async def test_stop_and_new_close_the_request(process: StoreProcess) -> None:
    for command in ("/stop", "/new"):
        number = await open_request(process)
        applied = await process.command(command)
        assert applied.stopped is not None
        assert "no longer open" in (await answered(process, f"/approve {number}"))[1]


async def test_undo_waits_for_an_approval_request(process: StoreProcess) -> None:
    await replace(process).talk("first")
    await open_request(process)
    assert "may I use shell? Send /approve or /deny." in (await answered(process, "/status"))[1]
    assert "A task here is not finished yet. Send /stop first" in (await answered(process, "/undo"))[1]


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
def test_an_answer_may_name_its_request(argument: str, parts: tuple[int | None, str]) -> None:
    assert split_answer(argument) == parts
