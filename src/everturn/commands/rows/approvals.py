"""/approve and /deny: commands that answer an approval request."""

from __future__ import annotations

from everturn.commands.rows.values import CommandCall, CommandResult
from everturn.commands.rules import command_texts
from everturn.commands.rules.registry import Command, number_in
from everturn.store.interface import Op, sql
from everturn.turns.rows.approvals import ApprovalAnswer, answer_request
from everturn.turns.rules.approvals import ApprovalScope, approver_of

ANSWERS = frozenset({"approve", "deny"})


def approve(call: CommandCall) -> Op[CommandResult]:
    """Approve a tool call: once, for the session, or always."""
    number, rest = split_answer(call.command.argument)
    scope = rest.strip().lower() or ApprovalScope.ONCE
    if scope not in set(ApprovalScope):
        return CommandResult(command_texts.approve_how())
    return (yield from _answer(call, number, allow=True, scope=ApprovalScope(scope)))


def deny(call: CommandCall) -> Op[CommandResult]:
    """Deny a tool call, with a reason."""
    number, rest = split_answer(call.command.argument)
    return (yield from _answer(call, number, allow=False, text=rest))


def _answer(
    call: CommandCall, number: int | None, *, allow: bool, scope: ApprovalScope = ApprovalScope.ONCE, text: str = ""
) -> Op[CommandResult]:
    answer = ApprovalAnswer(
        allow=allow, at=call.at, by=approver_of(call.source), id=number, scope=scope, text=text,
        approvers=call.terms.approvers,
    )  # fmt: skip
    answered, facts = yield from answer_request(call.entry, answer)
    return CommandResult(answered.text, tuple(facts))


def split_answer(argument: str) -> tuple[int | None, str]:
    """The number of the approval request, if one is named, and the rest."""
    first, _, rest = argument.strip().partition(" ")
    number = number_in(first)
    return (None, argument.strip()) if number is None else (number, rest)


def key_of_request(command: Command) -> Op[str | None]:
    """The key whose turn goes on after an answer from another chat."""
    number, _ = split_answer(command.argument) if command.name in ANSWERS else (None, "")
    if number is None:
        return None
    rows = yield sql("SELECT key FROM approval WHERE id=$1", number)
    return str(rows[0][0]) if rows else None
