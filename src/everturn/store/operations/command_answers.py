"""Commands that answer a question: may this tool call run?"""

from __future__ import annotations

from everturn.decide import command_words
from everturn.decide.approvals import Scope, approver_of
from everturn.decide.commands import Command, number_in
from everturn.store.interface import Op, sql
from everturn.store.operations.approvals import ApprovalAnswer, answer_question
from everturn.store.operations.command_values import Asked, Done

ANSWERS = frozenset({"approve", "deny"})


def approve(asked: Asked) -> Op[Done]:
    """Yes: once, for the session, or always."""
    number, rest = split_answer(asked.command.argument)
    scope = rest.strip().lower() or Scope.ONCE
    if scope not in set(Scope):
        return Done(command_words.approve_how())
    return (yield from _answer(asked, number, allow=True, scope=Scope(scope)))


def deny(asked: Asked) -> Op[Done]:
    """No, and why."""
    number, rest = split_answer(asked.command.argument)
    return (yield from _answer(asked, number, allow=False, words=rest))


def _answer(asked: Asked, number: int | None, *, allow: bool, scope: Scope = Scope.ONCE, words: str = "") -> Op[Done]:
    answer = ApprovalAnswer(
        allow=allow, at=asked.at, by=approver_of(asked.source), id=number, scope=scope, words=words,
        approvers=asked.terms.approvers,
    )  # fmt: skip
    answered, facts = yield from answer_question(asked.entry, answer)
    return Done(answered.text, tuple(facts))


def split_answer(argument: str) -> tuple[int | None, str]:
    """The question's number, if one is named, and the rest."""
    first, _, rest = argument.strip().partition(" ")
    number = number_in(first)
    return (None, argument.strip()) if number is None else (number, rest)


def key_of_question(command: Command) -> Op[str | None]:
    """The key whose turn goes on after an answer from another chat."""
    number, _ = split_answer(command.argument) if command.name in ANSWERS else (None, "")
    if number is None:
        return None
    rows = yield sql("SELECT key FROM approval WHERE id=$1", number)
    return str(rows[0][0]) if rows else None
