"""The house rules, as tests: sizes, names, imports, and how tests may be written."""

import statistics

import pytest

from tests import house
from tests.house import Source

EVERYWHERE = ("src", "tests", "bench", "scripts", "examples")
LARGER_FILES = ("src/everturn/store/", "src/everturn/platform/", "tests/", "bench/")

# Files that may import inside a function, each with the reason.
LATE_IMPORTS = {
    "src/everturn/__main__.py": "the command line loads only what the command needs",
    "src/everturn/agents.py": "what an agent's kind needs is loaded when the settings name it",
    "src/everturn/platforms.py": "a platform and its library are loaded when the settings switch it on",
    "src/everturn/toolsets.py": "a tool and its libraries are loaded when the settings switch it on",
    "src/everturn/app.py": "engines and optional libraries are loaded when the configuration names them",
    "src/everturn/agent/llm/providers.py": "a model library is loaded when a model of its provider is asked for",
    "src/everturn/telemetry.py": "the library for traces is loaded when the settings name a collector",
    "src/everturn/store/open.py": "an engine and its library are loaded when its url is asked for",
    "src/everturn/cli/": "subcommands load lazily: `everturn --help` stays fast",
}
# Files of the tests that may sleep, each with the reason.
SLEEPERS = {
    "tests/waiting.py": "polls a condition of another process, with a time limit",
}


def expect_none(findings: list[list[str]]) -> None:
    found = [line for lines in findings for line in lines]
    assert not found, "\n".join(["", *found])


def allowed(path: str, reasons: dict[str, str]) -> bool:
    return path.startswith(tuple(reasons))


def test_no_function_outgrows_a_screen() -> None:
    expect_none([house.long_functions(source, 60) for source in house.sources(*EVERYWHERE)])


def test_functions_are_short_as_a_rule() -> None:
    lengths = [house.length(function) for source in house.sources("src") for function in source.functions]
    assert statistics.median(lengths) <= 8
    assert statistics.quantiles(lengths, n=20)[-1] <= 45


def test_test_functions_are_short() -> None:
    expect_none([house.long_functions(source, 25, "test_") for source in house.sources("tests")])


def test_no_file_outgrows_its_limit() -> None:
    limits = [(source, 600 if source.path.startswith(LARGER_FILES) else 500) for source in house.sources(*EVERYWHERE)]
    expect_none([house.long_files(source, limit) for source, limit in limits])


def test_no_class_has_more_than_twenty_methods() -> None:
    expect_none([house.big_classes(source, 20) for source in house.sources(*EVERYWHERE)])


def test_every_module_says_what_it_is_for() -> None:
    expect_none([house.missing_docstring(source) for source in house.sources(*EVERYWHERE)])


def test_no_module_has_a_name_that_says_nothing() -> None:
    expect_none([house.vague_names(source.path) for source in house.sources(*EVERYWHERE)])


def test_imports_stand_at_the_top() -> None:
    others = [source for source in house.sources(*EVERYWHERE) if not allowed(source.path, LATE_IMPORTS)]
    expect_none([house.late_imports(source) for source in others])


def test_tests_touch_public_names_only() -> None:
    expect_none([house.private_uses(source) for source in house.sources("tests")])


def test_tests_use_real_parts_not_mocks() -> None:
    expect_none([house.mocks(source) for source in house.sources("tests")])


def test_no_test_is_skipped_or_expected_to_fail() -> None:
    expect_none([house.skips(source) for source in house.sources("tests")])


def test_tests_wait_for_conditions_and_do_not_sleep() -> None:
    others = [source for source in house.sources("tests") if not allowed(source.path, SLEEPERS)]
    expect_none([house.sleeps(source) for source in others])


def test_no_file_names_a_machine_path() -> None:
    expect_none([house.lines_matching(house.MACHINE_PATHS, *file) for file in house.text_files()])


def test_no_file_names_a_package_registry() -> None:
    expect_none([house.lines_matching(house.REGISTRY_HOSTS, *file) for file in house.text_files()])


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
    ],
)
def test_no_rule_forbids_what_is_fine(rule: house.Rule, text: str) -> None:
    assert rule(Source("sample.py", text)) == []


def test_the_size_rules_count_lines_and_methods() -> None:
    source = Source("sample.py", "class A:\n    def f(self):\n        x = 1\n        return x\n    def g(self): ...\n")
    assert house.long_functions(source, 2) == ["sample.py:2 f has 3 lines"]
    assert house.big_classes(source, 1) == ["sample.py:1 A has 2 methods"]
    assert house.long_files(source, 4) == ["sample.py has 5 lines"]


def test_vague_names_are_seen_in_every_part_of_a_path() -> None:
    assert house.vague_names("src/everturn/utils/x.py")
    assert house.vague_names("src/everturn/base.py")
    assert not house.vague_names("src/everturn/database.py")
