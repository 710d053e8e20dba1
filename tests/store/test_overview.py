"""What an operator sees: counts and lists of what is open, recoveries, accounts, figures over time. Nothing changes a row."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from everturn.decide.delivery import Doubtful
from everturn.store.operations.command_sessions import bring_back
from everturn.store.operations.instances import held, join, record_end
from everturn.store.operations.open_work import Place, conversations, messages, open_turns, recent_turns, replies
from everturn.store.operations.outbox import doubt, give_up, record_sent
from everturn.store.operations.overview import (
    accounts,
    close_dead,
    counts,
    lives,
    note_contact,
    note_planned,
    note_ready,
    recoveries,
)
from everturn.store.operations.recovery import suspend_session
from everturn.store.operations.trends import trends
from everturn.store.operations.turns import fail, step
from tests.contracts.store import Life, call_of, key_of, living, response


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as life:
        yield life


async def joined(life: Life, token: str = "one") -> int:
    number = await life.store.run(join, token, "host", 7, life.now)
    await life.store.run(held, number, life.now)
    return number


async def busy(life: Life) -> None:
    """Something of everything: a turn in a tool, one that was cut off, a suspended one, letters, doubts."""
    begun = await life.called(chat="tool")
    await life.store.run(step, begun, response(begun, 1, "call", at=life.now), call_of("call"), None, prove_it=False)
    await life.called(chat="off")
    await life.called(chat="aside")
    await life.store.run(suspend_session, key_of("aside"), life.now)
    failing = await life.begun("why?", "failed")
    await life.store.run(fail, failing, "broken", "sorry", life.now, life.delivery)
    await life.accept("wait", "tool")
    for chat in ("dead", "doubt", "sent"):
        await life.talk(chat=chat)
        reply = await life.sending(chat)
        if chat == "dead":
            await life.store.run(give_up, reply, life.now, "refused")
        elif chat == "doubt":
            await life.store.run(doubt, reply, Doubtful.ASK, life.now, "lost")
        else:
            await life.store.run(record_sent, reply, ("p",), life.now)


async def test_everything_that_is_open_is_counted(life: Life) -> None:
    await busy(life)
    counted = await life.store.read(counts, life.now)
    assert counted == {
        "running": 2, "waiting_for_approval": 0, "interrupted": 0, "inbox_waiting": 1, "inbox_oldest_at": life.now,
        "outbox_owed": 1, "outbox_oldest_at": life.now, "doubtful": 1, "dead_replies": 1, "dead_messages": 2,
        "suspended": 1, "resume_pending": 0, "asking": 0, "sessions": 7,
    }  # fmt: skip


async def test_open_turns_say_what_they_do(life: Life) -> None:
    await busy(life)
    tool, off = await life.store.read(open_turns, 0, 9)
    assert (tool["chat"], tool["who"], tool["step"], tool["steps"]) == ("tool", "ann", "tool tool is running", 1)
    assert (off["step"], off["title"], off["state"]) == ("the model is working", "hello", "running")
    await life.die()
    rest = await life.store.read(open_turns, int(str(tool["turn"])), 9)
    assert [each["step"] for each in rest] == ["cut off"]
    ended = await life.store.read(recent_turns, 0, 2)
    more = await life.store.read(recent_turns, int(str(ended[-1]["turn"])), 9)
    assert [each["chat"] for each in ended + more] == ["sent", "doubt", "dead", "failed", "aside"]


async def test_letters_and_replies_are_listed_by_state_page_by_page(life: Life) -> None:
    await busy(life)
    (waiting,) = await life.store.read(messages, "waiting", 0, 9)
    first, second = await life.store.read(messages, "dead", 0, 9)
    assert (waiting["text"], first["why"], second["why"]) == ("wait", "set aside while it worked on: hello", "broken")
    assert await life.store.read(messages, "dead", int(str(first["id"])), 9) == [second]
    for state, chat in (("owed", "failed"), ("doubtful", "doubt"), ("dead", "dead")):
        (reply,) = await life.store.read(replies, state, 0, 9)
        assert (reply["chat"], reply["parts_out"]) == (chat, 0)


async def test_messages_are_found_by_person_and_by_words(life: Life) -> None:
    await busy(life)
    found = await life.store.read(messages, "all", 0, 2, "ANN")
    more = await life.store.read(messages, "all", int(str(found[-1]["id"])), 9, "ann")
    assert [each["chat"] for each in found + more] == [
        "sent",
        "doubt",
        "dead",
        "tool",
        "failed",
        "aside",
        "off",
        "tool",
    ]
    assert [each["chat"] for each in await life.store.read(messages, "all", 0, 9, "WHY?")] == ["failed"]
    assert [each["chat"] for each in await life.store.read(messages, "dead", 0, 9, "aside")] == ["aside"]
    assert await life.store.read(messages, "all", 0, 9, "user_name") == []


async def test_a_conversation_that_only_keeps_a_note_is_active(life: Life) -> None:
    later = replace(life, resume="on_message")
    await later.called(chat="off")
    await later.die()
    await life.called(chat="aside")
    await life.store.run(suspend_session, key_of("aside"), life.now, "operator")
    (aside,) = [each for _, each in await life.store.read(conversations, "suspended", "", Place(), 9)]
    assert (aside["why"], aside["resumable"]) == ("set aside by an operator while it worked on: hello", False)
    await life.store.run(bring_back, key_of("aside"), str(aside["session_id"]), life.now)
    assert (await keys(life, "resume_pending"), await keys(life, "active")) == ([key_of("off")], [key_of("aside")])
    seen = [each for _, each in await life.store.read(conversations, "all", "", Place(), 9)]
    assert {(each["chat"], each["state"], each["resumable"], each["note_waits"]) for each in seen} == {
        ("off", "resume_pending", True, False), ("aside", "active", False, True),
    }  # fmt: skip
    assert (await life.store.read(counts, life.now))["resume_pending"] == 1


async def test_conversations_are_found_by_state_by_words_and_by_use(life: Life) -> None:
    for chat in ("a", "b", "c_1"):
        life.clock.advance(1)
        await life.talk(f"about {chat}", chat)
    await life.store.run(suspend_session, key_of("b"), life.now)
    assert await keys(life, "all") == [key_of("c_1"), key_of("b"), key_of("a")]
    assert await keys(life, "active") == [key_of("c_1"), key_of("a")]
    assert await keys(life, "suspended") == [key_of("b")]
    assert await keys(life, "resume_pending") == []
    assert (await keys(life, "all", "ABOUT C_"), await keys(life, "suspended", "a_o")) == ([key_of("c_1")], [])
    pages = [each async for each in paged(life)]
    assert pages == await keys(life, "all")


async def keys(life: Life, state: str, words: str = "") -> list[object]:
    return [each["key"] for _, each in await life.store.read(conversations, state, words, Place(), 9)]


async def paged(life: Life) -> AsyncIterator[object]:
    place = Place()
    while found := await life.store.read(conversations, "all", "", place, 1):
        place = found[0][0]
        yield found[0][1]["key"]


# -- lives ------------------------------------------------------------------------------------------------------------


async def test_a_death_is_kept_with_what_became_of_its_turns(life: Life) -> None:
    first = replace(life, instance=await joined(life))
    await first.called(chat="a")
    await first.begun(chat="b")
    life.clock.advance(5)
    await first.die()
    second = await joined(life, "two")
    await life.twice(close_dead, first.instance, second, life.now)
    life.clock.advance(0.5)
    await life.twice(note_ready, second, life.now)
    (told,) = await life.store.read(recoveries)
    assert (told["last_life"], told["by"], told["life"]) == ("unclean", second, first.instance)
    assert (told["continued"], told["suspended"], told["returned"], told["back_after_s"]) == (1, 0, 1, 5.5)
    assert [(each["number"], each["ended"]) for each in await life.store.read(lives)] == [(2, None), (1, "unclean")]


async def test_a_planned_end_is_kept_only_if_it_cut_something_off(life: Life) -> None:
    first = replace(life, instance=await joined(life))
    await life.store.run(record_end, first.instance, "stop", life.now)
    second = replace(life, instance=await joined(life, "two"))
    assert await life.unchanged(note_planned, second.instance, life.now) is False
    begun = await second.called()
    await second.die("restart_timeout")
    await life.store.run(record_end, second.instance, "restart", life.now)
    third = await joined(life, "three")
    assert await life.twice(note_planned, third, life.now) is True
    (told,) = await life.store.read(recoveries)
    assert (told["last_life"], told["continued"], begun.attempt) == ("restart", 1, 1)


async def test_an_account_is_known_by_what_came_and_went(life: Life) -> None:
    await life.twice(note_contact, "fake", "", 5.0, None)
    await life.twice(note_contact, "fake", "", None, 6.0)
    await life.accept("hello")
    await life.talk(chat="d")
    await life.accept("hello", account="second")
    assert await life.store.read(accounts) == {
        ("fake", ""): {"received_at": 5.0, "sent_at": 6.0, "waiting": 1, "owed": 1},
        ("fake", "second"): {"received_at": None, "sent_at": None, "waiting": 1, "owed": 0},
    }


# -- figures over time ------------------------------------------------------------------------------------------------


async def test_figures_fall_into_their_step_also_those_of_turns_that_took_days(life: Life) -> None:
    long = await life.called("ask me", "long")
    life.clock.advance(3 * 86_400)
    for took in (1, 2, 30):
        begun = await life.begun(chat=str(took))
        life.clock.advance(took)
        await life.finish(begun)
    await life.finish(long)
    await life.plant("UPDATE turn SET input_tokens=10, output_tokens=5, cost=0.5 WHERE id=$1", long.turn)
    told: Any = await life.store.read(trends, 24, life.now)
    filled = [each for each in told["buckets"] if each["answered"]]
    assert (len(told["buckets"]), told["step_s"], len(filled)) == (96, 900, 1)
    assert filled[0]["at"] <= life.now < filled[0]["at"] + 900
    wanted = {"answered": 4, "messages": 3, "p50_s": 2.0, "tokens": 15, "cost": 0.5, "failed": 0}
    assert {name: filled[0][name] for name in wanted} == wanted
    assert filled[0]["p95_s"] > 86_400
    month: Any = await life.store.read(trends, 720, life.now)
    assert (sum(each["messages"] for each in month["buckets"]), len(month["buckets"])) == (4, 120)


async def test_figures_tell_what_failed_was_stopped_cut_off_and_delivered(life: Life) -> None:
    await busy(life)
    await life.command("/stop", "off")
    await life.die()
    told: Any = await life.store.read(trends, 168, life.now)
    (step_,) = [each for each in told["buckets"] if each["messages"]]
    names = ("answered", "failed", "stopped", "interrupted", "delivered", "dead", "messages")
    assert [step_[name] for name in names] == [3, 2, 1, 1, 1, 1, 8]
