"""Rules of approvals: whose answer counts, for how long it holds, and which messages close a request."""

import re

import pytest

from everturn.model import Effect, SessionSource, ToolCall
from everturn.people.rules.access import person_of
from everturn.sessions.rules.keys import agent_of, session_key
from everturn.turns.rules import turn_texts
from everturn.turns.rules.approvals import (
    ApprovalScope,
    approver_of,
    closes,
    may_answer,
    person_in,
    remembered,
    scope_of,
    stricter,
)

ANN, BOB, EVE, TOKEN = "fake:ann", "fake:bob", "fake:eve", "api:owner"
EVERY_TEXT = [
    *(turn_texts.request("shell", "Run ls", 7, wait, approvers=named) for wait in (60.0, 8e3, 6e5) for named in (True, False)),
    *(turn_texts.approved("shell", scope) for scope in ApprovalScope),
    turn_texts.denied("shell"),
    turn_texts.nothing_asked(),
    turn_texts.no_longer_open(),
    *(turn_texts.not_yours(approvers=named) for named in (True, False)),
    turn_texts.expired("shell"),
    turn_texts.queued("shell"),
    *(turn_texts.refused(state, why) for state in ("denied", "expired", "closed") for why in (None, "no.")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("asked_for", "by", "approvers", "may_allow", "may_deny"),
    [
        (ANN, ANN, (), True, True),
        (ANN, BOB, (), False, False),
        (ANN, None, (), False, False),
        (None, None, (), True, True),
        (None, BOB, (), True, True),
        (ANN, ANN, (BOB,), False, True),
        (ANN, BOB, (BOB,), True, True),
        (ANN, EVE, (BOB,), False, False),
        (None, None, (BOB,), False, True),
        (BOB, BOB, (BOB,), True, True),
        (TOKEN, TOKEN, (), True, True),
        (TOKEN, "web:owner", (), True, True),
        ("v1:owner", TOKEN, (), True, True),
        (TOKEN, None, (), False, False),
        (TOKEN, BOB, (), False, False),
        (TOKEN, "api:key:ci", (), False, False),
        (BOB, TOKEN, (), False, False),
        (None, TOKEN, (BOB,), False, True),
    ],
)
def test_whose_answer_counts(
    asked_for: str | None, by: str | None, approvers: tuple[str, ...], *, may_allow: bool, may_deny: bool
) -> None:
    assert may_answer(asked_for, by, allow=True, approvers=approvers) is may_allow
    assert may_answer(asked_for, by, allow=False, approvers=approvers) is may_deny


def test_what_nobody_asked_for_is_answered_in_its_own_chat_alone() -> None:
    assert may_answer(None, BOB, allow=True, approvers=(), there=True)
    assert not may_answer(None, BOB, allow=True, approvers=(), there=False)


@pytest.mark.parametrize(
    ("platform", "user", "person"),
    [("api", None, TOKEN), ("api", "key:ci", "api:key:ci"), ("web", "owner", "web:owner"), ("telegram", None, None)],
)
def test_the_holder_of_the_homes_token_has_a_name(platform: str, user: str | None, person: str | None) -> None:
    assert approver_of(SessionSource(platform=platform, user_id=user)) == person


@pytest.mark.parametrize("journaled", Effect)
@pytest.mark.parametrize("present", Effect)
def test_the_stricter_of_two_rules_decides(journaled: Effect, present: Effect) -> None:
    strictness = [Effect.PURE, Effect.IDEMPOTENT, Effect.ONCE]
    was, now = ToolCall("c", "t", "{}", journaled), ToolCall("c", "t", "{}", present, "Now?")
    assert strictness.index(stricter(was, now).effect) == max(strictness.index(journaled), strictness.index(present))
    assert (stricter(was, now).ask, stricter(now, was).ask, stricter(was, was).ask) == ("Now?", "Now?", None)


@pytest.mark.parametrize("person", [ANN, None])
def test_an_approval_is_found_again_only_where_it_was_given(person: str | None) -> None:
    for scope in (ApprovalScope.SESSION, ApprovalScope.ALWAYS):
        name = scope_of(scope, "s1", "key", person)
        assert name in remembered("s1", "key", person)
        assert (name in remembered("s2", "key", person)) is (scope is ApprovalScope.ALWAYS)
        assert name not in remembered("s1", "key", EVE)
        assert person_in(name or "") == person
    assert scope_of(ApprovalScope.ONCE, "s1", "key", person) is None


def test_a_persons_name_in_a_scope_is_whole() -> None:
    for user in ("ann:example.org", "a:b:c", "session:s1:ann"):
        for scope in (ApprovalScope.SESSION, ApprovalScope.ALWAYS):
            assert person_in(scope_of(scope, "s1", "key", f"matrix:@{user}") or "") == f"matrix:@{user}"


@pytest.mark.parametrize(
    ("busy", "closed"),
    [(None, True), ("steer", True), ("interrupt", True), ("rollback", True), ("queue", False), ("collect", False)],
)
def test_another_message_closes_an_approval_request_unless_its_mode_queues_it(
    busy: str | None, *, closed: bool
) -> None:
    assert closes(busy) is closed


def test_people_and_agents_are_named_as_in_the_settings() -> None:
    source = SessionSource(platform="fake", chat_id="c", user_id="ann")
    assert person_of(source) == ANN
    assert person_of(SessionSource(platform="api", chat_id="c")) is None
    assert agent_of(session_key(source, agent="a b")) == "a b"


@pytest.mark.parametrize("text", EVERY_TEXT)
def test_the_texts_name_only_commands_that_help_here(text: str) -> None:
    assert set(re.findall(r"/([a-z]+)", text)) <= {"approve", "deny", "stop"}
    assert text.strip() == text != ""


def test_a_request_shows_the_call_on_lines_of_its_own_and_never_cuts_it() -> None:
    call = "x" * 10_000
    assert f"May I use shell?\n\n    {call}\n\nAnswer" in turn_texts.request("shell", call, 7, 60, approvers=False)
    assert "\n    one\n    two\n" in turn_texts.request("shell", "one\ntwo", 7, 60, approvers=False)
