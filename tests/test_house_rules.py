"""The house rules, as tests: sizes, names, imports, and how tests may be written."""

from functools import partial

import pytest

from tests import house
from tests.house import HouseRule, Source

EVERYWHERE = ("src", "tests", "bench", "scripts", "examples")

# Files that may import inside a function, each with the reason.
LATE_IMPORTS = {
    "src/everturn/app/agents.py": "what an agent's kind needs is loaded when the settings name it",
    "src/everturn/app/platforms.py": "a platform and its library are loaded when the settings switch it on",
    "src/everturn/app/toolsets.py": "a tool and its libraries are loaded when the settings switch it on",
    "src/everturn/app/composition.py": "engines and optional libraries are loaded when the configuration names them",
    "src/everturn/agent/llm/providers.py": "a model library is loaded when a model of its provider is asked for",
    "src/everturn/agent/llm/library.py": "Anthropic's library is loaded when one of its models is asked for",
    "src/everturn/telemetry/spans.py": "the library for traces is loaded when the settings name a collector",
    "src/everturn/store/open.py": "an engine and its library are loaded when its url is asked for",
    "src/everturn/cli/": "subcommands load lazily: `everturn --help` stays fast",
}
# Files of the tests that may sleep, each with the reason.
SLEEPERS = {
    "tests/waiting.py": "polls a condition of another process, with a time limit",
}
# Files of the tests that have time limits of their own. Only a number that is no wait of ours is added here.
FIXED_LIMITS = {
    "tests/platform/test_local_telegram.py": "tells the local Telegram how long its long poll lasts",
}
# Files of the tests in which something may differ from run to run, each with the reason.
CHANCE = {
    "tests/postgres.py": "free_port tries ports in an order that no other run on this machine has",
    "tests/synapse/server.py": "the homeserver's key and its secret: whoever knew them could write to it",
    "tests/sim/__main__.py": "draws where its seeds begin, and prints how to repeat each",
    "tests/torture/__main__.py": "draws seeds, and prints how to repeat each",
}
# Files of the package with names that only others use, each with the reason.
NAMED_ELSEWHERE = {
    "src/everturn/points.py": "tests of crashes die at the points",
    "src/everturn/sessions/rules/foreign_entries.py": "the import command will use it",
    "src/everturn/store/sqlite.py": "tests and benchmarks count commits",
    "src/everturn/testing/": "for those who write adapters and agents",
}
# Where the vocabulary holds, and what is history.
SPOKEN = ("src/", "docs/", "examples/", "README.md", "CONTRIBUTING.md", "AGENTS.md", "everturn.toml.example")
HISTORY = ("src/everturn/store/schema/", "docs/decisions/")
RULES = (
    HouseRule("no function outgrows a screen", partial(house.long_functions, limit=60), EVERYWHERE),
    HouseRule("no file outgrows a chapter", partial(house.long_files, limit=600), EVERYWHERE),
    HouseRule("no class has more than twenty methods", partial(house.big_classes, limit=20), EVERYWHERE),
    HouseRule("every module says what it is for", house.missing_docstring, EVERYWHERE),
    HouseRule("no module has a name that says nothing", house.vague_names, EVERYWHERE),
    HouseRule("the floors of a room point down", house.upward_imports, ["src"]),
    HouseRule("imports stand at the top", house.late_imports, EVERYWHERE, LATE_IMPORTS),
    HouseRule("tests touch public names only", house.private_uses, ["tests"]),
    HouseRule("tests use real parts, not mocks", house.mocks, ["tests"]),
    HouseRule("no test is skipped or expected to fail", house.skips, ["tests"]),
    HouseRule("tests wait for conditions and do not sleep", house.sleeps, ["tests"], SLEEPERS),
    HouseRule("every time limit of a test can be stretched", house.fixed_limits, ["tests"], FIXED_LIMITS),
    HouseRule("no test draws lots", house.chance, ["tests"], CHANCE),
)


def test_the_python_files_keep_every_house_rule() -> None:
    """One test, one pass: parsing the tree for each rule took as long as a folder of tests."""
    broken: list[str] = []
    for source in house.sources(*EVERYWHERE):
        broken += [f"{finding} ({rule.name})" for rule in RULES for finding in rule.broken_in(source)]
    broken += [f"{path} keeps the rule: take it off the list ({rule.name})" for rule in RULES for path in rule.unused]
    assert not broken, "\n".join(["", *broken])


def test_no_folder_of_the_package_is_too_full() -> None:
    paths = [path for path in house.project_files() if path.startswith("src/") and path.endswith(".py")]
    assert house.full_folders(paths, 16) == []


def test_every_class_of_the_package_has_a_name_of_its_own() -> None:
    assert house.shared_class_names(house.sources("src")) == []


def test_a_class_name_that_two_modules_use_is_seen() -> None:
    one, other = Source("a.py", "class Asked: ...\n"), Source("b.py", "class Own: ...\n\n\nclass Asked: ...\n")
    assert house.shared_class_names([one, other]) == ["Asked: a.py:1, b.py:4"]


def test_nothing_in_the_package_is_dead() -> None:
    found = house.dead_names(house.sources("src", "scripts"))
    assert [line for line in found if not line.startswith(tuple(NAMED_ELSEWHERE))] == []
    assert [path for path in NAMED_ELSEWHERE if not any(line.startswith(path) for line in found)] == []


def test_a_name_that_nothing_uses_is_seen() -> None:
    one = Source(
        "src/one.py",
        "import other.hooks\nUSED = 1\nclass Kept:\n    def done(self): return self.done()\n    def does(self): return USED\n"
        "class Hooks(other.hooks.Base):\n    def called(self): ...\ndef dead(): return dead()\n@register\ndef known(): ...\n",
    )
    two = Source("src/two.py", "from one import Kept as It\nimport one\nLEFT = It().does(), one.Hooks\n")
    assert house.dead_names([one, two]) == [
        "src/one.py:4 Kept.done is named nowhere",
        "src/one.py:8 dead is named nowhere",
        "src/two.py:3 LEFT is named nowhere",
    ]


def test_nothing_that_people_read_uses_a_banned_word() -> None:
    """Code, page and docs alike. Decisions are left out: they tell what was, and migrations are never edited."""
    found = [
        line
        for path, text in house.text_files()
        if path.startswith(SPOKEN) and not path.startswith(HISTORY)
        for line in house.lines_matching(house.BANNED_WORDS, path, text)
    ]
    assert not found, "\n".join(["", *found])


@pytest.mark.parametrize("line", ["the last life", "a reply is owed", "it can not be", "Set aside", "who is told"])
def test_a_banned_word_is_seen(line: str) -> None:
    assert house.lines_matching(house.BANNED_WORDS, "a.py", line) != []


@pytest.mark.parametrize(
    "line", ["lifecycle", "lifespan", "it is allowed", "followed", "cannot", "outdoors", "a figure"]
)
def test_a_word_that_only_contains_one_is_fine(line: str) -> None:
    assert house.lines_matching(house.BANNED_WORDS, "a.py", line) == []


def test_no_file_names_a_machine_path_or_a_package_registry() -> None:
    patterns = (house.MACHINE_PATHS, house.REGISTRY_HOSTS)
    found = [
        line for file in house.text_files() for pattern in patterns for line in house.lines_matching(pattern, *file)
    ]
    assert not found, "\n".join(["", *found])


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (house.late_imports, "def f():\n    import json\n"),
        (house.private_uses, "thing._hidden()\n"),
        (house.private_uses, "from thing import _hidden\n"),
        (house.mocks, "from unittest.mock import patch\n"),
        (house.mocks, "def test_it(monkeypatch): ...\n"),
        (house.skips, "@pytest.mark.skipif(True)\ndef test_it(): ...\n"),
        (house.sleeps, "await asyncio.sleep(0.1)\n"),
        (house.missing_docstring, "x = 1\n"),
        (house.fixed_limits, "async with asyncio.timeout(60): ...\n"),
        (house.fixed_limits, "await asyncio.wait_for(event.wait(), timeout=4 * 5)\n"),
        (house.fixed_limits, "LONGEST_S = 60.0\nawait platform.until(lambda: True, LONGEST_S)\n"),
        (house.fixed_limits, "async def until(true, within_s: float = 5): ...\n"),
        (house.fixed_limits, "subprocess.run(command, timeout=9)\n"),
        (house.fixed_limits, "process.join(10)\n"),
        (house.chance, "import random\nrandom.choice('ab')\n"),
        (house.chance, "from random import choice\n"),
        (house.chance, "Random()\n"),
        (house.chance, "import secrets\nsecrets.token_hex()\n"),
        (house.chance, "os.urandom(4)\n"),
        (house.chance, "from uuid import uuid4\n"),
    ],
)
def test_each_rule_sees_what_it_forbids(rule: house.Rule, text: str) -> None:
    assert len(rule(Source("sample.py", text))) == 1


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (house.private_uses, "class A:\n    def f(self): return self._own\n"),
        (house.private_uses, "thing.__class__\n"),
        (house.sleeps, "await asyncio.sleep(0)\n"),
        (house.skips, "reader.skip(3)\n"),
        (house.missing_docstring, '"""Says it."""\n'),
        (house.missing_docstring, ""),
        (house.fixed_limits, "async with asyncio.timeout(4 * WAIT_S): ...\n"),
        (house.fixed_limits, "LONGEST_S = 2 * WAIT_S\nprocess.join(LONGEST_S)\n"),
        (house.fixed_limits, "@pytest.mark.timeout(600)\ndef test_it(): ...\n"),
        (house.fixed_limits, "assert ', '.join(names) and not gone.wait(0)\n"),
        (house.fixed_limits, "await asyncio.wait({task}, timeout=0.002)\n"),
        (house.chance, "import random\nrandom.Random(7).choice('ab')\n"),
        (house.chance, "random = Random(7)\nrandom.choice('ab')\n"),
    ],
)
def test_no_rule_forbids_what_is_fine(rule: house.Rule, text: str) -> None:
    assert rule(Source("sample.py", text)) == []


def test_the_size_rules_count_lines_and_methods() -> None:
    source = Source("sample.py", "class A:\n    def f(self):\n        x = 1\n        return x\n    def g(self): ...\n")
    assert house.long_functions(source, 2) == ["sample.py:2 f has 3 lines"]
    assert house.big_classes(source, 1) == ["sample.py:1 A has 2 methods"]
    assert house.long_files(source, 4) == ["sample.py has 5 lines"]
    assert house.full_folders(["a/__init__.py", "a/b.py", "a/c.py", "d/e.py"], 1) == ["a has 2 files"]


@pytest.mark.parametrize(
    ("path", "imported", "broken"),
    [
        ("turns/rules/a", "turns.rules.b import X", False),
        ("turns/rules/a", "model import X", False),
        ("turns/rules/a", "turns.rows.b import X", True),
        ("turns/rules/a", "outbox.sender import X", True),
        ("turns/rules/a", "store.interface import X", True),
        ("turns/rules/a", "agent.cache import X", True),
        ("turns/rows/a", "platform.interface import X", True),
        ("turns/rows/a", "outbox.rules.b import X", False),
        ("turns/rows/a", "store.interface import X", False),
        ("turns/rows/a", "turns import runner", True),
        ("turns/a", "outbox.sender import X", False),
        ("web/a", "turns.rows.b import X", False),
        ("web/a", "turns.runner import X", True),
        ("platform/telegram/rules/a", "inbox.rows.b import X", True),
        ("app/a", "turns.runner import X", False),
    ],
)
def test_floors_are_seen(path: str, imported: str, broken: bool) -> None:  # noqa: FBT001
    source = Source(f"src/everturn/{path}.py", f"from everturn.{imported}\n")
    assert bool(house.upward_imports(source)) is broken


@pytest.mark.parametrize(
    ("path", "vague"),
    [("src/everturn/utils/x.py", True), ("src/everturn/base.py", True), ("src/everturn/database.py", False)],
)
def test_vague_names_are_seen_in_every_part_of_a_path(path: str, vague: bool) -> None:  # noqa: FBT001
    assert bool(house.vague_names(Source(path, ""))) is vague


def test_a_file_with_a_reason_may_break_a_rule_as_long_as_it_does() -> None:
    rule = HouseRule("no sleep", house.sleeps, ["tests"], {"tests/a.py": "it must", "tests/b.py": "it did"})
    sleeps = "await asyncio.sleep(1)\n"
    assert rule.broken_in(Source("tests/a.py", sleeps)) == rule.broken_in(Source("src/c.py", sleeps)) == []
    assert rule.broken_in(Source("tests/b.py", "")) == []
    assert rule.broken_in(Source("tests/c.py", sleeps)) == ["tests/c.py:1 sleeps"]
    assert rule.unused == ["tests/b.py"]
