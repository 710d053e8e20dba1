"""Every write that sets a state of a message, a turn or a reply names in its WHERE states that its table lets it leave."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import PurePath

import pytest

from everturn.model import INBOX_MOVES, OUTBOX_MOVES, TURN_MOVES
from tests import house
from tests.house import Source

Moves = Mapping[str, frozenset[str]]
TABLES: dict[str, Moves] = {
    name: {str(state): frozenset(map(str, afters)) for state, afters in moves.items()}
    for name, moves in (("inbox", INBOX_MOVES), ("turn", TURN_MOVES), ("outbox", OUTBOX_MOVES))
}
WRITE = re.compile(rf"UPDATE ({'|'.join(TABLES)})\b(?: AS)?(?: (?!SET)\w+)? SET (.*)", re.DOTALL)
UPSERT = re.compile(rf"INSERT INTO ({'|'.join(TABLES)})\b.*\bDO UPDATE SET\b.*\bstate=", re.DOTALL)
LITERAL = re.compile(r"'(\w+)'")
CASE = re.compile(r"CASE state((?: WHEN '\w+' THEN '\w+')+) ELSE (state|'\w+') END")
WHEN = re.compile(r"WHEN '(\w+)' THEN '(\w+)'")
LIST = r"'\w+'(?:, ?'\w+')*"
CONDITION = re.compile(rf"state ?(=|<>|IN|NOT IN) ?\(?({LIST})\)?")
NAMES = re.compile(LIST)
INNERMOST = re.compile(r"\(([^()]*)\)")


# -- the rule ---------------------------------------------------------------------------------------------------------


def test_the_writes_of_a_state_are_the_moves_of_the_tables() -> None:
    """No write makes another move, and no move stands in a table that nothing makes."""
    found, made = [], set()
    for source in house.sources("src"):
        for line, text in statements(source):
            found += [f"{source.path}:{line} {fault}: {text}" for fault in faults(text)]
            made |= set() if found else {move for move in moves_in(text) if move[1] != move[2]}
    assert not found, "\n".join(["", *found])
    assert made == {
        (table, before, after)
        for table, moves in TABLES.items()
        for before, afters in moves.items()
        for after in afters
    }


def faults(text: str) -> list[str]:
    """What is wrong with one statement; an upsert would set a state whatever the row's was."""
    if UPSERT.search(text):
        return ["sets a state without a condition"]
    try:
        moves = moves_in(text)
    except ValueError as error:
        return [str(error)]
    return [
        f"{table}: {before} -> {after} is not in the table"
        for table, before, after in moves
        if before != after and after not in TABLES[table][before]
    ]


def moves_in(text: str) -> list[tuple[str, str, str]]:
    """The moves that a statement allows, as (table, before, after), for each state that its WHERE names."""
    found = WRITE.search(text)
    if found is None:
        return []
    table, rest = found.groups()
    assignments, _, condition = top_level(rest).partition(" WHERE ")
    value = next((each for each in split(assignments) if each.startswith("state=")), "").removeprefix("state=")
    if not value:
        return []
    return [(table, before, after_of(value, before)) for before in sources_of(condition, set(TABLES[table]))]


def sources_of(condition: str, states: set[str]) -> list[str]:
    """The states that a WHERE lets a row have."""
    if " OR " in condition:
        raise ValueError("has an OR beside its state")
    named = CONDITION.findall(condition)
    if not named:
        raise ValueError("sets a state without a condition")
    for sign, text in named:
        listed = set(LITERAL.findall(text))
        states = states & listed if sign in {"=", "IN"} else states - listed
    return sorted(states)


def after_of(value: str, before: str) -> str:
    """The state that is set where the row has this one."""
    if literal := LITERAL.fullmatch(value):
        return literal[1]
    if case := CASE.fullmatch(value):
        named: dict[str, str] = dict(WHEN.findall(case[1]))
        return named.get(before, before if case[2] == "state" else case[2].strip("'"))
    raise ValueError(f"sets a state that cannot be read from it ({value})")


def split(assignments: str) -> list[str]:
    return [each.strip() for each in assignments.split(",")]


def top_level(text: str) -> str:
    """The text without what stands in parentheses, but for lists of names: those of a condition are read."""
    names: list[str] = []
    while found := INNERMOST.search(text):
        kept = f"[{len(names)}]" if NAMES.fullmatch(found[1]) else ""
        names += [found[0]] if kept else []
        text = text[: found.start()] + kept + text[found.end() :]
    return re.sub(r"\[(\d+)\]", lambda place: names[int(place[1])], text)


# -- the statements ---------------------------------------------------------------------------------------------------


def statements(source: Source) -> Iterator[tuple[int, str]]:
    """The texts of a module that write, as they are at run time: its constants, and what its functions say in place."""
    if not WRITE.search(source.text) and not UPSERT.search(source.text):
        return
    module = vars(import_module(".".join(PurePath(source.path).with_suffix("").parts[1:])))
    for name, value in module.items():
        for text in value.values() if isinstance(value, dict) else [value]:
            if isinstance(text, str) and (WRITE.search(text) or UPSERT.search(text)):
                yield 0, f"{text}  ({name})"
    for function in source.functions:
        names = {**module, **assigned(function, module)}
        inside = {part for node in ast.walk(function) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in {*ast.walk(function)} - inside:
            if isinstance(node, ast.Constant | ast.JoinedStr) and WRITE.search(text := rendered(node, names)):
                yield node.lineno, text


def assigned(function: house.Function, module: Mapping[str, object]) -> dict[str, str]:
    """The texts that a function gives names."""
    return {
        target.id: rendered(node.value, module)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.JoinedStr)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def rendered(node: ast.expr, names: Mapping[str, object]) -> str:
    """A text with the values of its names; one that is not known at import stays as it is written."""
    if isinstance(node, ast.JoinedStr):
        return "".join(rendered(each, names) for each in node.values)
    if isinstance(node, ast.FormattedValue):
        value = names.get(node.value.id) if isinstance(node.value, ast.Name) else None
        return str(value) if isinstance(value, str) else f"{{{ast.unparse(node.value)}}}"
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


# -- the rule sees what it forbids ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE inbox SET state='done', ended_at=$2 WHERE id=$1",
        "UPDATE inbox SET state='done'",
        "UPDATE inbox SET ended_at=$2, state=$3 WHERE id=$1 AND state='queued'",
        "UPDATE turn SET state='answered' WHERE id=$1 AND state IN ('running','interrupted')",
        "UPDATE turn SET state='running' WHERE id=$1 AND state<>'answered'",
        "UPDATE outbox SET state='sending' WHERE id=$1 AND state='dead'/*did*/",
        "UPDATE outbox SET state='sent' WHERE id=$1 AND id IN (SELECT id FROM outbox WHERE state='sending')",
        "UPDATE outbox SET state='sent' WHERE id=$1 AND (state='sending' OR kind='x')",
        "UPDATE outbox SET state='sent' WHERE id=$1 AND state='sending' OR kind='x'",
        "UPDATE outbox AS o SET text=$2, state=CASE state WHEN 'sent' THEN 'dead' ELSE state END WHERE state IN ('open','sent')",
        "UPDATE outbox SET state='{state}' WHERE id=$1 AND state='sending'",
        "INSERT INTO outbox (id, state) VALUES ($1, 'open') ON CONFLICT (id) DO UPDATE SET state='open'",
    ],
)
def test_a_write_that_is_no_move_is_seen(text: str) -> None:
    assert faults(text) != []


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE inbox SET ended_at=$2, why=CASE state WHEN 'queued' THEN 'a' ELSE 'b' END WHERE id=$1",
        "UPDATE inbox SET state='done', ended_at=coalesce(ended_at, $2) WHERE id=$1 AND state='claimed'",
        "UPDATE turn SET state='suspended' WHERE id=$1 AND state NOT IN ('answered','failed','stopped','rolled_back')",
        "UPDATE outbox SET state=CASE state WHEN 'sent' THEN 'pending' ELSE state END WHERE state IN ('open','sent')",
        "UPDATE entry SET state='active' WHERE key=$1",
        "SELECT 1 FROM outbox WHERE state='open'",
    ],
)
def test_a_write_that_is_a_move_is_fine(text: str) -> None:
    assert faults(text) == []


def test_statements_are_found_wherever_they_stand() -> None:
    text = """
def f(by):
    part = "ended_at=$2"
    yield sql(f"UPDATE inbox SET state='done', {part} WHERE id=$1 AND {by}")
"""
    source = Source("src/everturn/model.py", text)
    assert list(statements(source)) == [(4, "UPDATE inbox SET state='done', ended_at=$2 WHERE id=$1 AND {by}")]
