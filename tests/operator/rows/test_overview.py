"""What an operator sees: counts and lists of what is open, recoveries, accounts, metrics over time. Nothing changes a row."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from everturn.commands.rows.sessions import resume_session
from everturn.lifecycle.rows import join, record_end, record_lock
from everturn.operator.rows.overview import (
    ConversationCursor,
    accounts,
    close_dead,
    conversations,
    counts,
    instances,
    messages,
    note_contact,
    note_planned,
    note_ready,
    open_turns,
    recent_turns,
    recoveries,
    replies,
    trends,
)
from everturn.outbox.rows.outbox import make_dead_letter, mark_unknown, record_sent
from everturn.outbox.rules.delivery import UnknownAction
from everturn.turns.rows.recovery import suspend_session
from everturn.turns.rows.turns import fail, step
from tests.contracts.store import StoreProcess, call_of, key_of, living, response


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process


async def joined(process: StoreProcess, token: str = "one") -> int:
    number = await process.store.run(join, token, "host", 7, process.now)
    await process.store.run(record_lock, number, process.now)
    return number


async def busy(process: StoreProcess) -> None:
    """Something of everything: a turn in a tool, one that was cut off, a suspended one, dead letters, unknown deliveries."""
    begun = await process.called(chat="tool")
    await process.store.run(
        step, begun, response(begun, 1, "call", at=process.now), call_of("call"), None, prove_it=False
    )
    await process.called(chat="off")
    await process.called(chat="aside")
    await process.store.run(suspend_session, key_of("aside"), process.now)
    failing = await process.begun("why?", "failed")
    await process.store.run(fail, failing, "broken", "sorry", process.now, process.delivery)
    await process.accept("wait", "tool")
    for chat in ("dead", "unknown", "sent"):
        await process.talk(chat=chat)
        reply = await process.sending(chat)
        if chat == "dead":
            await process.store.run(make_dead_letter, reply, process.now, "refused")
        elif chat == "unknown":
            await process.store.run(mark_unknown, reply, UnknownAction.ASK, process.now, "lost")
        else:
            await process.store.run(record_sent, reply, ("p",), process.now)


async def test_everything_that_is_open_is_counted(process: StoreProcess) -> None:
    await busy(process)
    counted = await process.store.read(counts, process.now)
    assert counted == {
        "running": 2, "awaiting_approval": 0, "interrupted": 0, "inbox_queued": 1, "inbox_oldest_at": process.now,
        "outbox_pending": 1, "outbox_oldest_at": process.now, "outbox_unknown": 1, "dead_replies": 1, "dead_messages": 2,
        "suspended": 1, "resume_pending": 0, "access_requests": 0, "sessions": 7,
    }  # fmt: skip


async def test_open_turns_say_what_they_do(process: StoreProcess) -> None:
    await busy(process)
    tool, off = await process.store.read(open_turns, 0, 9)
    assert (tool["chat"], tool["sender"], tool["step"], tool["steps"]) == ("tool", "ann", "tool tool is running", 1)
    assert (off["step"], off["title"], off["state"]) == ("the model is working", "hello", "running")
    await process.die()
    rest = await process.store.read(open_turns, int(str(tool["turn"])), 9)
    assert [each["step"] for each in rest] == ["cut off"]
    ended = await process.store.read(recent_turns, 0, 2)
    more = await process.store.read(recent_turns, int(str(ended[-1]["turn"])), 9)
    assert [each["chat"] for each in ended + more] == ["sent", "unknown", "dead", "failed", "aside"]


async def test_dead_letters_and_replies_are_listed_by_state_page_by_page(process: StoreProcess) -> None:
    await busy(process)
    (waiting,) = await process.store.read(messages, "queued", 0, 9)
    first, second = await process.store.read(messages, "dead", 0, 9)
    assert (waiting["text"], first["why"], second["why"]) == ("wait", "suspended while it worked on: hello", "broken")
    assert await process.store.read(messages, "dead", int(str(first["id"])), 9) == [second]
    for state, chat in (("pending", "failed"), ("unknown", "unknown"), ("dead", "dead")):
        (reply,) = await process.store.read(replies, state, 0, 9)
        assert (reply["chat"], reply["parts_out"]) == (chat, 0)


async def test_messages_are_found_by_person_and_by_text(process: StoreProcess) -> None:
    await busy(process)
    found = await process.store.read(messages, "all", 0, 2, "ANN")
    more = await process.store.read(messages, "all", int(str(found[-1]["id"])), 9, "ann")
    assert [each["chat"] for each in found + more] == [
        "sent",
        "unknown",
        "dead",
        "tool",
        "failed",
        "aside",
        "off",
        "tool",
    ]
    assert [each["chat"] for each in await process.store.read(messages, "all", 0, 9, "WHY?")] == ["failed"]
    assert [each["chat"] for each in await process.store.read(messages, "dead", 0, 9, "aside")] == ["aside"]
    assert await process.store.read(messages, "all", 0, 9, "user_name") == []


async def test_a_conversation_that_only_keeps_a_note_is_active(process: StoreProcess) -> None:
    later = replace(process, resume="on_message")
    await later.called(chat="off")
    await later.die()
    await process.called(chat="aside")
    await process.store.run(suspend_session, key_of("aside"), process.now, "operator")
    (aside,) = [each for _, each in await process.store.read(conversations, "suspended", "", ConversationCursor(), 9)]
    assert (aside["why"], aside["resumable"]) == ("suspended by an operator while it worked on: hello", False)
    await process.store.run(resume_session, key_of("aside"), str(aside["session_id"]), process.now)
    assert (await keys(process, "resume_pending"), await keys(process, "active")) == (
        [key_of("off")],
        [key_of("aside")],
    )
    seen = [each for _, each in await process.store.read(conversations, "all", "", ConversationCursor(), 9)]
    assert {(each["chat"], each["state"], each["resumable"], each["note_waits"]) for each in seen} == {
        ("off", "resume_pending", True, False), ("aside", "active", False, True),
    }  # fmt: skip
    assert (await process.store.read(counts, process.now))["resume_pending"] == 1


async def test_conversations_are_found_by_state_by_text_and_by_use(process: StoreProcess) -> None:
    for chat in ("a", "b", "c_1"):
        process.clock.advance(1)
        await process.talk(f"about {chat}", chat)
    await process.store.run(suspend_session, key_of("b"), process.now)
    assert await keys(process, "all") == [key_of("c_1"), key_of("b"), key_of("a")]
    assert await keys(process, "active") == [key_of("c_1"), key_of("a")]
    assert await keys(process, "suspended") == [key_of("b")]
    assert await keys(process, "resume_pending") == []
    assert (await keys(process, "all", "ABOUT C_"), await keys(process, "suspended", "a_o")) == ([key_of("c_1")], [])
    pages = [each async for each in paged(process)]
    assert pages == await keys(process, "all")


async def keys(process: StoreProcess, state: str, text: str = "") -> list[object]:
    return [each["key"] for _, each in await process.store.read(conversations, state, text, ConversationCursor(), 9)]


async def paged(process: StoreProcess) -> AsyncIterator[object]:
    place = ConversationCursor()
    while found := await process.store.read(conversations, "all", "", place, 1):
        place = found[0][0]
        yield found[0][1]["key"]


# -- instances --------------------------------------------------------------------------------------------------------


async def test_a_death_is_kept_with_what_became_of_its_turns(process: StoreProcess) -> None:
    first = replace(process, instance=await joined(process))
    await first.called(chat="a")
    await first.begun(chat="b")
    process.clock.advance(5)
    await first.die()
    second = await joined(process, "two")
    await process.twice(close_dead, first.instance, second, process.now)
    process.clock.advance(0.5)
    await process.twice(note_ready, second, process.now)
    (told,) = await process.store.read(recoveries)
    assert (told["previous_exit"], told["by"], told["instance"]) == ("unclean", second, first.instance)
    assert (told["continued"], told["suspended"], told["returned"], told["back_after_s"]) == (1, 0, 1, 5.5)
    assert [(each["number"], each["ended"]) for each in await process.store.read(instances)] == [
        (2, None),
        (1, "unclean"),
    ]


async def test_a_planned_end_is_kept_only_if_it_cut_something_off(process: StoreProcess) -> None:
    first = replace(process, instance=await joined(process))
    await process.store.run(record_end, first.instance, "stop", process.now)
    second = replace(process, instance=await joined(process, "two"))
    assert await process.unchanged(note_planned, second.instance, process.now) is False
    begun = await second.called()
    await second.die("restart_timeout")
    await process.store.run(record_end, second.instance, "restart", process.now)
    third = await joined(process, "three")
    assert await process.twice(note_planned, third, process.now) is True
    (told,) = await process.store.read(recoveries)
    assert (told["previous_exit"], told["continued"], begun.attempt) == ("restart", 1, 1)


async def test_an_account_is_known_by_what_came_and_went(process: StoreProcess) -> None:
    await process.twice(note_contact, "fake", "", 5.0, None)
    await process.twice(note_contact, "fake", "", None, 6.0)
    await process.accept("hello")
    await process.talk(chat="d")
    await process.accept("hello", account="second")
    assert await process.store.read(accounts) == {
        ("fake", ""): {"received_at": 5.0, "sent_at": 6.0, "queued": 1, "pending": 1},
        ("fake", "second"): {"received_at": None, "sent_at": None, "queued": 1, "pending": 0},
    }


# -- metrics over time ------------------------------------------------------------------------------------------------


async def test_metrics_fall_into_their_step_also_those_of_turns_that_took_days(process: StoreProcess) -> None:
    long = await process.called("ask me", "long")
    process.clock.advance(3 * 86_400)
    for took in (1, 2, 30):
        begun = await process.begun(chat=str(took))
        process.clock.advance(took)
        await process.finish(begun)
    await process.finish(long)
    await process.plant("UPDATE turn SET input_tokens=10, output_tokens=5, cost=0.5 WHERE id=$1", long.turn)
    told: Any = await process.store.read(trends, 24, process.now)
    filled = [each for each in told["buckets"] if each["answered"]]
    assert (len(told["buckets"]), told["step_s"], len(filled)) == (96, 900, 1)
    assert filled[0]["at"] <= process.now < filled[0]["at"] + 900
    wanted = {"answered": 4, "messages": 3, "p50_s": 2.0, "tokens": 15, "cost": 0.5, "failed": 0}
    assert {name: filled[0][name] for name in wanted} == wanted
    assert filled[0]["p95_s"] > 86_400
    month: Any = await process.store.read(trends, 720, process.now)
    assert (sum(each["messages"] for each in month["buckets"]), len(month["buckets"])) == (4, 120)


async def test_metrics_count_what_failed_was_stopped_cut_off_and_delivered(process: StoreProcess) -> None:
    await busy(process)
    await process.command("/stop", "off")
    await process.die()
    told: Any = await process.store.read(trends, 168, process.now)
    (step_,) = [each for each in told["buckets"] if each["messages"]]
    names = ("answered", "failed", "stopped", "interrupted", "delivered", "dead", "messages")
    assert [step_[name] for name in names] == [3, 2, 1, 1, 1, 1, 8]
