"""Titles, models, reloads, restarts, rights, and the commands that only look; each applied once."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from everturn import __version__
from everturn.commands.rows.commands import apply_command, notify_restarted, restarts_to_notify
from everturn.commands.rows.values import Terms
from everturn.inbox.rows.inbox import accept
from everturn.inbox.rows.steering import busy_chosen
from everturn.lifecycle.rows import join, record_end
from everturn.model import Usage
from everturn.people.rules.rights import NO_RIGHTS, ChatRights, Rights
from everturn.sessions.rows.compaction import freeze, frozen
from everturn.turns.rows.turns import finish, step
from tests.contracts.store import BY_EVENT, QUEUE, StoreProcess, broken, key_of, living, response, wants_compaction

ANNS = Rights(owners=("fake:ann",))


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process


async def said(process: StoreProcess, text: str, terms: Terms | None = None) -> str:
    """The answer to a command, applied twice."""
    arrival = process.arrival(text)
    await process.store.run(accept, arrival, QUEUE, None)
    terms = terms or process.terms()
    await process.twice(apply_command, arrival.id, process.sessions.next(), process.now, process.delivery, terms)
    ((answer,),) = await process.look("SELECT text FROM outbox WHERE id=$1", arrival.id)
    assert await process.store.read(broken) == {}
    return str(answer)


# -- titles and lists --------------------------------------------------------------------------------------------------


async def test_a_title_is_kept_and_found_by(process: StoreProcess) -> None:
    first = await process.talk("one")
    assert "has no title" in await said(process, "/title")
    assert await said(process, "/title  My\n Garden ") == 'This conversation is called "My Garden".'
    await process.command("/new")
    await process.talk("two")
    assert "1  My Garden: one (0 min ago)" in await said(process, "/resume")
    assert first.session_id in await said(process, "/resume my gar")
    assert await said(process, "/title") == 'This conversation is called "My Garden".'


async def test_new_takes_a_title(process: StoreProcess) -> None:
    assert 'It is called "plans"' in await said(process, "/new plans")
    begun = await process.talk("one")
    assert await process.look("SELECT title, first_text FROM session") == [("plans", "one")]
    assert 'It is called "more plans"' in await said(process, "/new more plans")
    assert begun.session_id in await said(process, "/resume PLANS")


async def test_sessions_lists_what_is_in_use_and_what_is_not(process: StoreProcess) -> None:
    assert await said(process, "/sessions") == "No conversation is in use here.\nThere is no earlier conversation here."
    await process.talk("one")
    await process.command("/new")
    process.clock.advance(7200)
    await process.talk("two")
    assert (await said(process, "/sessions")).splitlines() == [
        "In use: two (2 h ago)",
        "Earlier:",
        "1  one (2 h ago)",
        "Send /resume and a number to resume one of them.",
    ]


async def test_a_session_that_was_compacted_is_not_listed(process: StoreProcess) -> None:
    begun = await process.talk("one")
    await process.command("/new")
    await process.plant("UPDATE session SET end_reason='compaction' WHERE session_id=$1", begun.session_id)
    assert await said(process, "/resume") == "There is no earlier conversation here."


# -- choices -----------------------------------------------------------------------------------------------------------


async def test_a_model_is_chosen_for_the_session(process: StoreProcess) -> None:
    assert "uses the configured model" in await said(process, "/model")
    assert "uses big:model-2" in await said(process, "/model big:model-2")
    begun = await process.talk("one")
    assert begun.model == "big:model-2"
    assert await process.look("SELECT session_id, model FROM session") == [(begun.session_id, "big:model-2")]
    assert "This conversation uses big:model-2" in await said(process, "/model")
    assert "uses the configured model" in await said(process, "/model default")
    assert await process.look("SELECT model FROM session") == [(None,)]


async def test_a_model_that_is_not_offered_is_refused(process: StoreProcess) -> None:
    await process.talk()
    terms = changed(process.terms(), models=("a:large", "a:small"))
    assert "Did you mean a:large? There are: a:large, a:small." in await said(process, "/model a:larg", terms)
    assert "is not a model name" in await said(process, "/model two words")
    assert "uses a:small" in await said(process, "/model a:small", terms)


async def test_a_model_of_a_provider_that_nobody_set_up_is_refused_and_one_that_nobody_knows_is_marked(
    process: StoreProcess,
) -> None:
    await process.talk()
    terms = changed(process.terms(), providers=("openai", "anthropic"))
    for name in ("mistral:large", "gpt-5", "openai:"):
        assert "names no provider that is configured here" in await said(process, f"/model {name}", terms)
    assert await process.look("SELECT model FROM session") == [(None,)]
    assert "Whether this model exists shows only then" in await said(process, "/model openai-chat:no-such", terms)
    known = changed(terms, models=("openai:x",))
    assert "Whether there is" not in await said(process, "/model openai:x", known)


async def test_a_fresh_conversation_has_the_configured_model_and_a_branch_the_chosen(process: StoreProcess) -> None:
    await process.talk()
    await process.command("/model a:b")
    await process.command("/branch")
    assert "uses a:b" in await said(process, "/model")
    await process.command("/new")
    assert "uses the configured model" in await said(process, "/model")
    assert (await process.talk()).model is None
    await process.command("/resume 1")
    assert (await process.called()).model == "a:b"
    await process.die()
    assert (await process.began()).model == "a:b"


async def test_a_busy_mode_is_chosen_for_the_chat(process: StoreProcess) -> None:
    assert "is steer, as configured" in await said(process, "/busy")
    assert "queue, as configured" in await said(process, "/busy", changed(process.terms(), busy="queue"))
    assert "While a task runs: interrupt" in (await said(process, "/busy Interrupt")).replace("while", "While")
    assert await process.store.read(busy_chosen, key_of()) == "interrupt"
    assert "is interrupt, chosen here" in await said(process, "/busy")
    assert 'no mode named "fast"' in await said(process, "/busy fast")
    assert "steer" in await said(process, "/busy default")
    assert await process.store.read(busy_chosen, key_of()) is None
    assert (await process.entry()).session_id is None


@pytest.mark.parametrize("text", ["/steer", "/queue ", "/q"])
async def test_text_is_wanted_behind_steer_and_queue(process: StoreProcess, text: str) -> None:
    assert "Write your message after the command" in await said(process, text)


async def test_reload_thaws(process: StoreProcess) -> None:
    assert await said(process, "/reload") == "No conversation has been started here yet."
    begun = await process.talk()
    await process.store.run(freeze, begun.session_id, "old")
    assert "From the next message on" in await said(process, "/reload")
    assert await process.store.read(frozen, begun.session_id) is None
    assert await process.store.run(freeze, begun.session_id, "new") == "new"


async def test_compress_is_wanted_before_the_next_model_call(process: StoreProcess) -> None:
    assert await said(process, "/compress") == "No conversation has been started here yet."
    begun = await process.talk()
    assert "Before the next answer, the agent summarises" in await said(process, "/compact")
    assert await wants_compaction(process, begun.session_id)
    await process.called("long")
    assert "the running task's next model call" in await said(process, "/compress")


# -- looking -----------------------------------------------------------------------------------------------------------


async def test_usage_is_that_of_the_last_turn_and_of_the_session(process: StoreProcess) -> None:
    assert await said(process, "/usage") == "No conversation has been started here yet."
    for number in (1, 2):
        begun = await process.called(f"m{number}")
        used = Usage(requests=1, input_tokens=100 * number, output_tokens=10, cached_tokens=50, cost=0.5)
        asked = response(begun, 1, text="thinking", at=process.now)
        await process.store.run(step, begun, asked, None, None, used, prove_it=False)
        await process.store.run(finish, begun, process.answer(begun, 2), process.delivery, 1, None, used)
    wanted = (
        "Last task: 2 model calls, 400 tokens in (100 of it from the cache), 20 out, $1.00.\n"
        "This conversation: 4 model calls, 600 tokens in (200 of it from the cache), 40 out, $2.00."
    )
    assert await said(process, "/usage") == wanted
    await process.command("/undo")
    assert await said(process, "/usage") == wanted, "what is hidden was paid for all the same"


async def test_context_counts_what_the_agent_sees(process: StoreProcess) -> None:
    assert await said(process, "/context") == "No conversation has been started here yet."
    begun = await process.talk("x" * 396)
    await process.talk("gone")
    await process.command("/undo")
    await process.store.run(freeze, begun.session_id, '{"instructions": "' + "y" * 369 + '", "tools": [{}]}')
    assert (await said(process, "/context", changed(process.terms(), context_tokens=1000))).splitlines() == [
        "The agent sees about 201 tokens, 20 % of the window of 1,000.",
        "Conversation: 1 from the agent, 1 from you: about 100 tokens.",
        "Instructions with 1 tool: about 101 tokens.",
    ]


@pytest.mark.parametrize("text", ["/help", "/help undo", "/help /reset", "/help xyz", "/whoami", "/version", "/status"])
async def test_looking_makes_no_session(process: StoreProcess, text: str) -> None:
    await said(process, text)
    assert await process.look("SELECT session_id FROM session") == []
    assert (await process.entry()).session_id is None


async def test_help_about_one_command(process: StoreProcess) -> None:
    assert (await said(process, "/help /Reset")).startswith("/new [title]: ")
    assert "Did you mean /undo?" in await said(process, "/help undoo")
    assert "/restart" not in await said(process, "/help")
    assert "/restart" in await said(process, "/help", process.terms(ANNS))
    assert __version__ in await said(process, "/version")


async def test_a_denied_command_names_who_may_and_changes_nothing(process: StoreProcess) -> None:
    await process.talk()
    gated = Rights(scopes={"fake:dm": ChatRights(admins=("bob",), commands=("status",))})
    answer = await said(process, "/undo", process.terms(gated))
    assert answer == "Only the admins of this chat may use /undo. You may use /deny, /status, /whoami, /help."
    assert await process.look("SELECT count(*) FROM message WHERE hidden=1") == [(0,)]
    assert "Your id: ann" in await said(process, "/whoami", process.terms(gated))
    assert "ready" in await said(process, "/status", process.terms(gated))


# -- /restart ----------------------------------------------------------------------------------------------------------


async def asked_restart(process: StoreProcess, rights: Rights = ANNS) -> tuple[int, bool]:
    """A /restart, applied twice: its number, and whether the gateway is to restart."""
    arrival = process.arrival("/restart")
    await process.store.run(accept, arrival, QUEUE, None)
    process.clock.advance(1)
    applied = await process.twice(
        apply_command, arrival.id, "unused", process.now, process.delivery, process.terms(rights)
    )
    assert applied is not None
    return arrival.id, applied.restart


async def test_a_restart_request_gets_one_notice_after_it(process: StoreProcess) -> None:
    first = replace(process, delivery=BY_EVENT)
    await process.store.run(join, "one", "host", 1, process.now)
    number, restart = await asked_restart(first)
    assert restart is True
    assert await process.store.read(restarts_to_notify, 1) == []
    assert await process.store.read(restarts_to_notify, 2) == [], "the instance that was asked has not ended"
    process.clock.advance(5)
    await process.store.run(record_end, 1, "restart", process.now)
    assert await process.store.read(restarts_to_notify, 2) == [(number, key_of())]
    events = await first.twice(notify_restarted, number, key_of(), process.ids.next(), process.now, BY_EVENT)
    assert [(event.kind, "I'm back" in event.data) for event in events] == [("notice", True)]
    assert await process.store.read(restarts_to_notify, 2) == []


async def test_only_the_owner_restarts(process: StoreProcess) -> None:
    await process.store.run(join, "one", "host", 1, process.now)
    assert (await asked_restart(process, NO_RIGHTS))[1] is False
    assert await process.look("SELECT id FROM restart") == []
    assert "Only the owner" in str(await process.look("SELECT text FROM outbox"))


async def test_a_restart_that_a_death_came_before_is_done_already(process: StoreProcess) -> None:
    """It was accepted by the last process, which died before it could apply it."""
    arrival = process.arrival("/restart")
    await process.store.run(accept, arrival, QUEUE, None)
    process.clock.advance(1)
    await process.store.run(join, "two", "host", 1, process.now)
    applied = await process.twice(
        apply_command, arrival.id, "unused", process.now, process.delivery, process.terms(ANNS)
    )
    assert applied is not None
    assert applied.restart is False
    assert await process.look("SELECT text FROM outbox") == [("I'm back: the restart is done.",)]
