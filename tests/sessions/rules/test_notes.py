"""The one note an attempt may get: which, with which text, and never twice for the same tail."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.model import ACTIVE, Message, ResumePending, SessionEntry, State, Suspended, ToolCall
from everturn.sessions.rules.notes import Note, Undone, choose_note, tail_acknowledged, tail_key, with_note

NOW = 1_760_000_000.0
HOUR = 3600.0
CALL = Message(role="assistant", content="", calls=(ToolCall("c1", "shell"),))
WORDS = "and what about tomorrow?"


def tool(content: str = "ok", call_id: str = "c1", at: float = NOW - 5, seq: int = 3) -> Message:
    return Message(role="tool", content=content, call_id=call_id, at=at, seq=seq)


def entry(state: State = ACTIVE, tail: str | None = None) -> SessionEntry:
    return SessionEntry(key="k", session_id="s", state=state, tail_key=tail)


def chosen(state: State, *history: Message) -> Note:
    note = choose_note(entry(state), history, NOW, HOUR)
    assert note is not None
    return note


TAIL = (CALL, tool())


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("restart_timeout", "gateway restart"),
        ("", "gateway restart"),
        ("shutdown_timeout", "gateway shutdown"),
        ("restart_interrupted", "gateway interruption"),
        ("dirty_shutdown", "gateway interruption"),
    ],
)
def test_the_resume_note_names_the_reason(reason: str, said: str) -> None:
    note = chosen(ResumePending(reason, NOW))
    every = {"gateway restart", "gateway shutdown", "gateway interruption"}
    assert {words for words in every if words in note.text} == {said}
    assert note.kind == f"resume:{reason or 'restart_timeout'}"


def test_what_was_taken_back_and_what_was_cut_off_are_one_note() -> None:
    state = ResumePending("restart_interrupted", NOW)
    note = choose_note(entry(state), (), NOW, HOUR, undone=[Undone("send", "{}", known=True)])
    assert note is not None
    assert (note.text.count("[System note: "), note.text.count("]"), note.text[-1]) == (1, 1, "]")
    assert "gateway interruption" in note.text
    assert "send({})" in note.text


def test_the_note_precedes_the_user_text() -> None:
    note = chosen(ResumePending("restart_timeout", NOW))
    assert with_note(note, WORDS) == f"{note.text}\n\n{WORDS}"


@pytest.mark.parametrize("last", ["user", "assistant", "system"])
def test_the_resume_note_needs_no_tool_tail(last: str) -> None:
    note = chosen(ResumePending("restart_timeout", NOW), Message(role=last, content="hm"))
    assert note.kind == "resume:restart_timeout"
    assert note.tail_key is None


def test_the_resume_note_replaces_the_tool_tail_note_and_covers_its_tail() -> None:
    note = chosen(ResumePending("restart_timeout", NOW), *TAIL)
    tail_note = chosen(ACTIVE, *TAIL)
    assert "tool result" not in note.text
    assert note.text.count("[System note:") == 1
    assert note.tail_key == tail_note.tail_key == tail_key(TAIL)


def test_the_resume_note_fires_even_for_an_acknowledged_tail() -> None:
    pending = entry(ResumePending("restart_timeout", NOW), tail=tail_key(TAIL))
    note = choose_note(pending, TAIL, NOW, HOUR)
    assert note is not None
    assert note.kind == "resume:restart_timeout"


@pytest.mark.parametrize("marked_at", [None, NOW - 30 * 24 * HOUR, NOW + HOUR])
def test_the_resume_note_is_given_at_any_age_of_the_mark(marked_at: float | None) -> None:
    """The reference drops the note of an old marker; here age stops only the automatic resume."""
    assert chosen(ResumePending("shutdown_timeout", marked_at)).kind == "resume:shutdown_timeout"


def test_without_a_mark_a_tool_tail_gets_its_own_note() -> None:
    note = chosen(ACTIVE, *TAIL)
    assert note.kind == "tool_tail"
    assert "tool result" in note.text
    assert "gateway" not in note.text


@pytest.mark.parametrize(
    "history", [(), (Message(role="user", content="hi"),), (*TAIL, Message(role="assistant", content="done"))]
)
def test_with_nothing_to_resume_the_text_is_unchanged(history: tuple[Message, ...]) -> None:
    note = choose_note(entry(), history, NOW, HOUR)
    assert note is None
    assert with_note(note, WORDS) == WORDS


def test_an_acknowledged_tail_gets_no_second_note() -> None:
    assert choose_note(entry(tail=tail_key(TAIL)), TAIL, NOW, HOUR) is None


def test_a_different_tail_gets_a_note_after_an_acknowledged_one() -> None:
    note = choose_note(entry(tail=tail_key(TAIL)), (*TAIL, CALL, tool("other")), NOW, HOUR)
    assert note is not None
    assert note.tail_key != tail_key(TAIL)


@pytest.mark.parametrize(
    ("at", "fresh_s", "fires"),
    [
        (NOW - HOUR, HOUR, True),
        (NOW - HOUR - 1, HOUR, False),
        (0.0, HOUR, True),
        (NOW - 99 * HOUR, 0, True),
        (NOW - 99 * HOUR, -1, True),
        (NOW + HOUR, HOUR, True),
    ],
)
def test_an_old_tail_is_left_alone(at: float, fresh_s: float, *, fires: bool) -> None:
    note = choose_note(entry(), (CALL, tool(at=at)), NOW, fresh_s)
    assert (note is not None) is fires


def test_a_suspended_session_gets_no_resume_note() -> None:
    assert choose_note(entry(Suspended()), (), NOW, HOUR) is None


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("suspended", "suspended"),
        ("idle", "inactive"),
        ("daily", "daily schedule"),
        ("resume_pending_expired", "too long ago to be resumed"),
        ("compaction", "was reset"),
    ],
)
def test_the_reset_note_tells_the_true_reason(reason: str, said: str) -> None:
    note = choose_note(entry(ResumePending("restart_timeout", NOW)), TAIL, NOW, HOUR, reset_reason=reason)
    assert note is not None
    assert note.kind == f"reset:{reason}"
    assert said in note.text
    assert "fresh conversation" in note.text
    assert note.tail_key is None


@pytest.mark.parametrize(
    ("previous", "active", "named"), [("old-1", True, True), ("old-1", False, False), (None, True, False)]
)
def test_the_reset_note_points_to_a_previous_session_that_had_activity(
    previous: str | None, *, active: bool, named: bool
) -> None:
    fresh = SessionEntry(key="k", session_id="s", previous_session_id=previous, reset_had_activity=active)
    note = choose_note(fresh, (), NOW, HOUR, "idle")
    assert note is not None
    assert ("old-1" in note.text) is named
    assert ("/resume" in note.text) is named


def every_note() -> list[Note]:
    reasons = ("restart_timeout", "shutdown_timeout", "other")
    resets = [choose_note(entry(), (), NOW, HOUR, reason) for reason in ("idle", "suspended", "x")]
    notes = [chosen(ResumePending(reason, NOW)) for reason in reasons]
    return [*notes, chosen(ACTIVE, *TAIL), *(note for note in resets if note)]


def test_every_note_is_one_marked_paragraph() -> None:
    for note in every_note():
        assert note.text.startswith("[System note:")
        assert note.text.endswith("]")
        assert "\n" not in note.text


def test_recovery_notes_say_what_to_do() -> None:
    for note in every_note()[:4]:
        assert "history is intact" in note.text
        assert "left open" in note.text
        assert "accomplished" in note.text
        assert "answer" in note.text.split("accomplished")[1]


def test_a_resume_without_new_text_is_never_a_blank_message() -> None:
    note = chosen(ResumePending("restart_timeout", NOW))
    assert with_note(note, "") == note.text
    assert "Continue the work" in note.text


def test_a_note_may_be_given_as_text() -> None:
    assert with_note("[System note: x]", WORDS) == f"[System note: x]\n\n{WORDS}"
    assert with_note(None, "") == ""


def test_a_tail_has_a_stable_key() -> None:
    """The value is written down: a stored acknowledgement must still be recognised by the next version."""
    assert tail_key(TAIL) == "e0d3b6bb67775c09506cdbcf5e57d4fdbefb4f6ba7cd52d4523ebcc68d2dc4f1"
    assert tail_key([tool(seq=99, at=0.0)]) == tail_key(TAIL)


def test_only_the_trailing_results_make_the_key() -> None:
    earlier = (CALL, tool("first"), Message(role="user", content="go on"))
    assert tail_key((*earlier, *TAIL)) == tail_key(TAIL)
    assert tail_key((CALL, tool("a", "c1"), tool("b", "c2"))) != tail_key((CALL, tool("b", "c2")))


def test_a_history_without_a_tail_has_no_key() -> None:
    assert tail_key(()) is None
    assert tail_key((*TAIL, Message(role="assistant", content="done"))) is None


def test_acknowledged_means_this_very_tail() -> None:
    assert tail_acknowledged(entry(tail="a"), "a")
    assert not tail_acknowledged(entry(tail="a"), "b")
    assert not tail_acknowledged(entry(), None)


RESULTS = st.lists(st.tuples(st.none() | st.text(max_size=3), st.text(max_size=3)), min_size=1, max_size=3)


@settings(deadline=None)
@given(RESULTS, RESULTS)
def test_two_different_tails_have_different_keys(
    one: list[tuple[str | None, str]], other: list[tuple[str | None, str]]
) -> None:
    first, second = (
        tail_key([Message(role="tool", call_id=call, content=content) for call, content in results])
        for results in (one, other)
    )
    assert (first == second) is (one == other)


@settings(deadline=None)
@given(st.text())
def test_the_users_text_is_never_changed(text: str) -> None:
    note = chosen(ResumePending("restart_timeout", NOW))
    assert with_note(note, text).endswith(text)
    assert with_note(None, text) == text
