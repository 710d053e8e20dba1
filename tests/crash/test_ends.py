"""Ring two, one end at a time: what a signal, a planned stop, a restart or a kill leaves behind, as outsiders see it."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.gateways import READY, Gateway, command, sessions
from tests.crash.held import HELD, install_in
from tests.waiting import WAIT_S, poll

WAIT_FOR_MESSAGE = {"EVERTURN_RECOVERY_RESUME": "on_message"}
CUT_OFF = {"EVERTURN_DRAIN_TIMEOUT_S": "0.3"} | HELD  # before their turns end
MARKED = ("state", "reason", "marked_at", "unclean_ends", "session_id")


async def busy(gateway: Gateway, chat: str, text: str, effects: int = 1) -> None:
    """A chat whose turn has begun so many effects."""
    await gateway.says(chat, f"{chat}-long", text)
    turn = str((await gateway.event(chat, "turn", state="running")).data["turn"])
    await poll(lambda: sum(line.startswith(f"{turn} ") for line in gateway.ledger()) >= effects)


async def held(gateway: Gateway, chat: str, steps: int = 3) -> None:
    """A chat whose turn is in the middle of its second effect, and stays there until it is cut off."""
    install_in(gateway.home)
    await gateway.up()
    await busy(gateway, chat, f"work {steps}", effects=2)


async def answered(gateway: Gateway, chat: str, text: str = "hello") -> str:
    """A chat that was answered and is idle."""
    await gateway.says(chat, f"{chat}-{text}", text)
    return await gateway.reply(chat, f"{chat}-{text}")


async def test_sigterm_is_a_planned_end_that_lets_turns_finish(tmp_path: Path) -> None:
    async with Gateway(tmp_path) as gateway:
        await gateway.up()
        await busy(gateway, "one", "work 3 0.2")
        assert await gateway.stopped() == 0
        assert "finished=True" in gateway.output
        await gateway.up()
        assert await gateway.reply("one", "one-long") == "done: 3 steps"
        assert len((await gateway.explain("one-long"))["turn"]["attempts"]) == 1


@pytest.mark.prove
async def test_a_restart_notifies_waiting_chats_and_resumes_where_it_was(tmp_path: Path) -> None:
    async with Gateway(tmp_path, "--supervise", settings=CUT_OFF) as gateway:
        await held(gateway, "one", steps=4)
        assert await answered(gateway, "two") is not None
        assert (await command("restart", home=tmp_path)).code == 0
        assert (await gateway.reply("one", "one-long")).startswith("done: 4 steps")
        banner = str((await gateway.event("one", "notice")).data["text"])
        assert "restarting" in banner
        assert "try to resume" in banner
        attempts = (await gateway.explain("one-long"))["turn"]["attempts"]
        assert [each["note"] for each in attempts] == [None, "resume:restart_timeout"]
        assert max(Counter(gateway.ledger()).values()) == 1
        assert [row["role"] for row in await gateway.transcript("two")] == ["user", "assistant"]
        assert await gateway.stopped() == 0


@pytest.mark.prove
async def test_a_chat_that_asks_for_a_restart_gets_one_notice_afterwards(tmp_path: Path) -> None:
    """A client with the home's token is the owner. A turn that runs resumes afterwards."""
    async with Gateway(tmp_path, "--supervise", settings=CUT_OFF) as gateway:
        await held(gateway, "one", steps=4)
        await gateway.says("two", "ask", "/restart")
        await gateway.ready(times=2)
        assert "restarts now" in await gateway.reply("two", "ask")
        assert "I'm back:" in str((await gateway.event("two", "notice", reason="restarted")).data["text"])
        assert (await gateway.reply("one", "one-long")).startswith("done: 4 steps")
        gateway.kill_inner()
        await gateway.ready(times=3)
        seen = await gateway.events("two", "reply", to=await said_after(gateway, "two"))
        assert sum("I'm back:" in str(event.data.get("text")) for event in seen) == 1
        assert await gateway.stopped() == 0


async def said_after(gateway: Gateway, chat: str) -> str:
    """The id of something that was just answered."""
    await answered(gateway, chat)
    return f"{chat}-hello"


@pytest.mark.parametrize(("kind", "reason"), [("restart", "restart_timeout"), ("stop", "shutdown_timeout")])
@pytest.mark.prove
async def test_a_turn_that_outlasts_the_drain_is_marked_with_the_true_reason(
    tmp_path: Path, kind: str, reason: str
) -> None:
    """A lane that finished just before the drain is neither marked nor suspended."""
    async with Gateway(tmp_path, settings=CUT_OFF | WAIT_FOR_MESSAGE) as gateway:
        await held(gateway, "long")
        await answered(gateway, "finished")
        assert (await command(kind, home=tmp_path)).code == 0
        if kind == "restart":
            await gateway.ready(times=2)
            assert (await sessions(tmp_path))["long"]["reason"] == reason
            await gateway.stopped()
        assert await gateway.ended() == 0
        found = await sessions(tmp_path)
        assert (found["long"]["state"], found["long"]["reason"]) == ("resume_pending", reason)
        assert found["long"]["marked_at"] is not None
        assert (found["finished"]["state"], found["finished"]["unclean_ends"]) == ("active", 0)


@pytest.mark.prove
async def test_what_a_stop_cut_off_is_finished_by_the_next_process(tmp_path: Path) -> None:
    async with Gateway(tmp_path, settings=CUT_OFF) as gateway:
        await held(gateway, "one")
        assert (await command("stop", home=tmp_path)).code == 0
        assert await gateway.ended() == 0
        assert (await sessions(tmp_path))["one"]["reason"] == "shutdown_timeout"
        await gateway.up()
        assert (await gateway.reply("one", "one-long")).startswith("done: 3 steps")
        session = await gateway.session("one")
        assert (session["state"], session["reason"], session["unclean_ends"]) == ("active", None, 0)
        assert max(Counter(gateway.ledger()).values()) == 1


@pytest.mark.prove
async def test_an_idle_session_survives_kills_untouched(tmp_path: Path) -> None:
    """After kill -9 an idle session, however recent, is active with its id and its whole history."""
    async with Gateway(tmp_path) as gateway:
        await gateway.up()
        await answered(gateway, "one")
        before = await gateway.session("one")
        for number in range(4):
            await gateway.killed()
            await gateway.up()
            now = await gateway.session("one")
            assert {name: now[name] for name in MARKED} == {name: before[name] for name in MARKED}
            assert await answered(gateway, "one", f"word {number}") == (
                f"I see {2 + 2 * number} earlier messages of this conversation. You said: word {number}"
            )
            assert (await gateway.explain(f"one-word {number}"))["turn"]["note"] is None
        assert (before["state"], before["unclean_ends"], before["auto_reset_reason"]) == ("active", 0, None)
        assert len(await gateway.transcript("one")) == 10
        seen = await gateway.events("one", "reply", to="one-word 3")
        assert {event.kind for event in seen} == {"message", "turn", "reply"}


@pytest.mark.prove
async def test_a_kill_leaves_a_session_that_is_marked_already_as_it_is(tmp_path: Path) -> None:
    """Nothing was running there, so neither its mark, nor its time, nor its count changes; nobody is suspended."""
    async with Gateway(tmp_path, settings=CUT_OFF | WAIT_FOR_MESSAGE) as gateway:
        await held(gateway, "one")
        await gateway.stopped()
        before = (await sessions(tmp_path))["one"]
        for _ in range(3):
            await gateway.up()
            await gateway.killed()
        after = (await sessions(tmp_path))["one"]
        assert before["state"] == "resume_pending"
        assert {name: after[name] for name in MARKED} == {name: before[name] for name in MARKED}


def is_back(gateway: Gateway, ends: int) -> bool:
    """Whether it is ready after so many unclean ends, no more and no less. A kill may come before it says that it is ready."""
    ended = [place for place, line in enumerate(gateway.lines) if "the gateway ended unexpectedly" in line]
    return len(ended) == ends and any(READY in line for line in gateway.lines[ended[-1] :])


@pytest.mark.prove
async def test_only_the_conversation_that_kills_the_gateway_is_suspended(tmp_path: Path) -> None:
    """Promise 9: its third unclean end in a row is the last; its user gets a notice how to resume it, the others finish."""
    others = ["left", "right", "far"]
    async with Gateway(tmp_path, "--supervise") as gateway:
        await gateway.up()
        await asyncio.gather(*(busy(gateway, chat, "work 8 0.4") for chat in others))
        await gateway.says("bad", "m1", "crash always")
        await gateway.changes.until(lambda: is_back(gateway, 3), 4 * WAIT_S)
        notice = await gateway.event("bad", "notice")
        assert "/resume" in str(notice.data["text"])
        replies = await asyncio.gather(*(gateway.reply(chat, f"{chat}-long") for chat in others))
        assert [reply[:13] for reply in replies] == ["done: 8 steps"] * 3
        states = {chat: (await gateway.session(chat))["state"] for chat in [*others, "bad"]}
        assert states == dict.fromkeys(others, "active") | {"bad": "suspended"}
        assert max(Counter(gateway.ledger()).values()) == 1
        assert is_back(gateway, 3)
        assert await gateway.stopped() == 0
