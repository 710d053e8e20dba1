"""Titles, models, reloads, restarts, rights, and the commands that only look; each applied once."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from everturn import __version__
from everturn.decide.rights import NO_RIGHTS, Rights, Scope
from everturn.model import Usage
from everturn.store.operations.command_choices import restarts_to_tell, tell_back
from everturn.store.operations.command_values import Terms
from everturn.store.operations.commands import apply_command
from everturn.store.operations.compaction import compaction_wanted
from everturn.store.operations.freezing import freeze, frozen
from everturn.store.operations.inbox import accept
from everturn.store.operations.instances import join, record_end
from everturn.store.operations.joining import busy_chosen
from everturn.store.operations.turns import finish, step
from tests.contracts.store import BY_EVENT, QUEUE, Life, broken, key_of, living, response

ANNS = Rights(owners=("fake:ann",))


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as life:
        yield life


async def said(life: Life, text: str, terms: Terms | None = None) -> str:
    """The answer to a command, applied twice."""
    arrival = life.arrival(text)
    await life.store.run(accept, arrival, QUEUE, None)
    terms = terms or life.terms()
    await life.twice(apply_command, arrival.id, life.sessions.next(), life.now, life.delivery, terms)
    ((answer,),) = await life.look("SELECT text FROM outbox WHERE id=$1", arrival.id)
    assert await life.store.read(broken) == {}
    return str(answer)


# -- titles and lists --------------------------------------------------------------------------------------------------


async def test_a_title_is_kept_and_found_by(life: Life) -> None:
    first = await life.talk("one")
    assert "has no title" in await said(life, "/title")
    assert await said(life, "/title  My\n Garden ") == 'This conversation is called "My Garden".'
    await life.command("/new")
    await life.talk("two")
    assert "1  My Garden: one (0 min ago)" in await said(life, "/resume")
    assert first.session_id in await said(life, "/resume my gar")
    assert await said(life, "/title") == 'This conversation is called "My Garden".'


async def test_new_takes_a_title(life: Life) -> None:
    assert 'It is called "plans"' in await said(life, "/new plans")
    begun = await life.talk("one")
    assert await life.look("SELECT title, first_words FROM session") == [("plans", "one")]
    assert 'It is called "more plans"' in await said(life, "/new more plans")
    assert begun.session_id in await said(life, "/resume PLANS")


async def test_sessions_lists_what_is_in_use_and_what_is_not(life: Life) -> None:
    assert await said(life, "/sessions") == "No conversation is in use here.\nThere is no earlier conversation here."
    await life.talk("one")
    await life.command("/new")
    life.clock.advance(7200)
    await life.talk("two")
    assert (await said(life, "/sessions")).splitlines() == [
        "In use: two (2 h ago)",
        "Earlier:",
        "1  one (2 h ago)",
        "Send /resume and a number to bring one of them back.",
    ]


async def test_a_session_that_was_compacted_is_not_listed(life: Life) -> None:
    begun = await life.talk("one")
    await life.command("/new")
    await life.plant("UPDATE session SET end_reason='compaction' WHERE session_id=$1", begun.session_id)
    assert await said(life, "/resume") == "There is no earlier conversation here."


# -- choices -----------------------------------------------------------------------------------------------------------


async def test_a_model_is_chosen_for_the_session(life: Life) -> None:
    assert "uses the configured model" in await said(life, "/model")
    assert "uses big:model-2" in await said(life, "/model big:model-2")
    begun = await life.talk("one")
    assert begun.model == "big:model-2"
    assert await life.look("SELECT session_id, model FROM session") == [(begun.session_id, "big:model-2")]
    assert "This conversation uses big:model-2" in await said(life, "/model")
    assert "uses the configured model" in await said(life, "/model default")
    assert await life.look("SELECT model FROM session") == [(None,)]


async def test_a_model_that_is_not_offered_is_refused(life: Life) -> None:
    await life.talk()
    terms = changed(life.terms(), models=("a:large", "a:small"))
    assert "Did you mean a:large? There are: a:large, a:small." in await said(life, "/model a:larg", terms)
    assert "is no name of a model" in await said(life, "/model two words")
    assert "uses a:small" in await said(life, "/model a:small", terms)


async def test_a_model_of_a_provider_that_nobody_set_up_is_refused_and_one_that_nobody_knows_is_marked(
    life: Life,
) -> None:
    await life.talk()
    terms = changed(life.terms(), providers=("openai", "anthropic"))
    for name in ("mistral:large", "gpt-5", "openai:"):
        assert "is no model of a provider that is set up here" in await said(life, f"/model {name}", terms)
    assert await life.look("SELECT model FROM session") == [(None,)]
    assert "Whether there is such a model shows only then" in await said(life, "/model openai-chat:no-such", terms)
    known = changed(terms, models=("openai:x",))
    assert "Whether there is" not in await said(life, "/model openai:x", known)


async def test_a_fresh_conversation_has_the_configured_model_and_a_branch_the_chosen(life: Life) -> None:
    await life.talk()
    await life.command("/model a:b")
    await life.command("/branch")
    assert "uses a:b" in await said(life, "/model")
    await life.command("/new")
    assert "uses the configured model" in await said(life, "/model")
    assert (await life.talk()).model is None
    await life.command("/resume 1")
    assert (await life.called()).model == "a:b"
    await life.die()
    assert (await life.began()).model == "a:b"


async def test_a_busy_mode_is_chosen_for_the_chat(life: Life) -> None:
    assert "is steer, as configured" in await said(life, "/busy")
    assert "queue, as configured" in await said(life, "/busy", changed(life.terms(), busy="queue"))
    assert "While a task runs: interrupt" in (await said(life, "/busy Interrupt")).replace("while", "While")
    assert await life.store.read(busy_chosen, key_of()) == "interrupt"
    assert "is interrupt, chosen here" in await said(life, "/busy")
    assert 'no mode named "fast"' in await said(life, "/busy fast")
    assert "steer" in await said(life, "/busy default")
    assert await life.store.read(busy_chosen, key_of()) is None
    assert (await life.entry()).session_id is None


@pytest.mark.parametrize("text", ["/steer", "/queue ", "/q"])
async def test_words_are_wanted_behind_steer_and_queue(life: Life, text: str) -> None:
    assert "Write what you want to say" in await said(life, text)


async def test_reload_thaws(life: Life) -> None:
    assert await said(life, "/reload") == "No conversation has been started here yet."
    begun = await life.talk()
    await life.store.run(freeze, begun.session_id, "old")
    assert "From the next message on" in await said(life, "/reload")
    assert await life.store.read(frozen, begun.session_id) is None
    assert await life.store.run(freeze, begun.session_id, "new") == "new"


async def test_compress_is_wanted_before_the_next_model_call(life: Life) -> None:
    assert await said(life, "/compress") == "No conversation has been started here yet."
    begun = await life.talk()
    assert "Before the next answer, the agent sums up" in await said(life, "/compact")
    assert await life.store.read(compaction_wanted, begun.session_id) is True
    await life.called("long")
    assert "the running task's next model call" in await said(life, "/compress")


# -- looking -----------------------------------------------------------------------------------------------------------


async def test_usage_is_that_of_the_last_turn_and_of_the_session(life: Life) -> None:
    assert await said(life, "/usage") == "No conversation has been started here yet."
    for number in (1, 2):
        begun = await life.called(f"m{number}")
        used = Usage(requests=1, input_tokens=100 * number, output_tokens=10, cached_tokens=50, cost=0.5)
        asked = response(begun, 1, text="thinking", at=life.now)
        await life.store.run(step, begun, asked, None, None, used, prove_it=False)
        await life.store.run(finish, begun, life.answer(begun, 2), life.delivery, 1, None, used)
    wanted = (
        "Last task: 2 model calls, 400 tokens in (100 of it from the cache), 20 out, $1.00.\n"
        "This conversation: 4 model calls, 600 tokens in (200 of it from the cache), 40 out, $2.00."
    )
    assert await said(life, "/usage") == wanted
    await life.command("/undo")
    assert await said(life, "/usage") == wanted, "what is hidden was paid for all the same"


async def test_context_counts_what_the_agent_sees(life: Life) -> None:
    assert await said(life, "/context") == "No conversation has been started here yet."
    begun = await life.talk("x" * 396)
    await life.talk("gone")
    await life.command("/undo")
    await life.store.run(freeze, begun.session_id, '{"instructions": "' + "y" * 369 + '", "tools": [{}]}')
    assert (await said(life, "/context", changed(life.terms(), context_tokens=1000))).splitlines() == [
        "The agent sees about 201 tokens, 20 % of the window of 1,000.",
        "Conversation: 1 from the agent, 1 from you: about 100 tokens.",
        "Instructions with 1 tool: about 101 tokens.",
    ]


@pytest.mark.parametrize("text", ["/help", "/help undo", "/help /reset", "/help xyz", "/whoami", "/version", "/status"])
async def test_looking_makes_no_session(life: Life, text: str) -> None:
    await said(life, text)
    assert await life.look("SELECT session_id FROM session") == []
    assert (await life.entry()).session_id is None


async def test_help_about_one_command(life: Life) -> None:
    assert (await said(life, "/help /Reset")).startswith("/new [title]: ")
    assert "Did you mean /undo?" in await said(life, "/help undoo")
    assert "/restart" not in await said(life, "/help")
    assert "/restart" in await said(life, "/help", life.terms(ANNS))
    assert __version__ in await said(life, "/version")


async def test_who_may_not_is_told_who_may_and_nothing_changes(life: Life) -> None:
    await life.talk()
    gated = Rights(scopes={"fake:dm": Scope(admins=("bob",), commands=("status",))})
    answer = await said(life, "/undo", life.terms(gated))
    assert answer == "Only the admins of this chat may use /undo. You may use /deny, /status, /whoami, /help."
    assert await life.look("SELECT count(*) FROM message WHERE hidden=1") == [(0,)]
    assert "Your id: ann" in await said(life, "/whoami", life.terms(gated))
    assert "ready" in await said(life, "/status", life.terms(gated))


# -- /restart ----------------------------------------------------------------------------------------------------------


async def asked_restart(life: Life, rights: Rights = ANNS) -> tuple[int, bool]:
    """A /restart, applied twice: its number, and whether the gateway is to restart."""
    arrival = life.arrival("/restart")
    await life.store.run(accept, arrival, QUEUE, None)
    life.clock.advance(1)
    applied = await life.twice(apply_command, arrival.id, "unused", life.now, life.delivery, life.terms(rights))
    assert applied is not None
    return arrival.id, applied.restart


async def test_who_asked_for_a_restart_is_told_once_after_it(life: Life) -> None:
    first = replace(life, delivery=BY_EVENT)
    await life.store.run(join, "one", "host", 1, life.now)
    number, restart = await asked_restart(first)
    assert restart is True
    assert await life.store.read(restarts_to_tell, 1) == []
    assert await life.store.read(restarts_to_tell, 2) == [], "the life that was asked has not ended"
    life.clock.advance(5)
    await life.store.run(record_end, 1, "restart", life.now)
    assert await life.store.read(restarts_to_tell, 2) == [(number, key_of())]
    events = await first.twice(tell_back, number, key_of(), life.ids.next(), life.now, BY_EVENT)
    assert [(event.kind, "I'm back" in event.data) for event in events] == [("notice", True)]
    assert await life.store.read(restarts_to_tell, 2) == []


async def test_only_the_owner_restarts(life: Life) -> None:
    await life.store.run(join, "one", "host", 1, life.now)
    assert (await asked_restart(life, NO_RIGHTS))[1] is False
    assert await life.look("SELECT id FROM restart") == []
    assert "Only the owner" in str(await life.look("SELECT text FROM outbox"))


async def test_a_restart_that_a_death_came_before_is_done_already(life: Life) -> None:
    """It was accepted by the last life, which died before it could apply it."""
    arrival = life.arrival("/restart")
    await life.store.run(accept, arrival, QUEUE, None)
    life.clock.advance(1)
    await life.store.run(join, "two", "host", 1, life.now)
    applied = await life.twice(apply_command, arrival.id, "unused", life.now, life.delivery, life.terms(ANNS))
    assert applied is not None
    assert applied.restart is False
    assert await life.look("SELECT text FROM outbox") == [("I'm back: the restart is done.",)]
