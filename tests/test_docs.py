"""The documents are true: links lead somewhere, commands exist, pages keep their size and shape."""

import re
from pathlib import Path

import pytest

from everturn.settings.config import read_config
from tests.house import ROOT, project_files, sources

PAGES = [path for path in project_files() if path.endswith(".md")]
DECISION_INDEX = "docs/decisions/README.md"
DECISIONS = [path for path in PAGES if path.startswith("docs/decisions/") and path != DECISION_INDEX]
DECISION_ROW = re.compile(r"^\| (\d{4}) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
STATUS = re.compile(r"^Status: (accepted|rejected|superseded by \[ADR \d+\])(?![\w-])", re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
MAKE = re.compile(r"`make ([a-z-]+)|^\s*make ([a-z-]+)", re.MULTILINE)
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SETTINGS = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
NAMED_DECISION = re.compile(r"\bADR (\d+)\b|decisions/(\d{4})")
CLAIMS_PAGE = "docs/concepts/claims.md"
CLAIM_ROW = re.compile(r"^\| (D\d\.\d+|Trap \d+) \|", re.MULTILINE)
CLAIM_IN_NAME = re.compile(r"_d\d_\d+|_trap_\d+")
TEST = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py::test_\w+)`")
CLAIMS = {"D0.": 12, "D1.": 26, "D2.": 8, "D3.": 14, "D4.": 34, "Trap ": 18}  # how many there are of each family


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def anchors(text: str) -> set[str]:
    """The names by which a page's headings can be linked."""
    headings = HEADING.findall(CODE_BLOCK.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(text: str) -> list[str]:
    found: list[str] = LINK.findall(CODE_BLOCK.sub("", text))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def leads_somewhere(page: str, link: str) -> bool:
    place, _, anchor = link.partition("#")
    target = (ROOT / page).parent / place if place else ROOT / page
    if not target.exists():
        return False
    return not anchor or target.suffix != ".md" or anchor in anchors(target.read_text(encoding="utf-8"))


def every_test() -> list[str]:
    """Every test function of the project, as "path::name"."""
    return [f"{source.path}::{name}" for source in sources("tests") for name in TEST.findall(source.text)]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*## ", read("Makefile"), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES)
def test_every_relative_link_leads_somewhere(page: str) -> None:
    assert [link for link in links(read(page)) if not leads_somewhere(page, link)] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_named_exists(page: str) -> None:
    named = {first or second for first, second in MAKE.findall(read(page))}
    assert named - make_targets() == set()


@pytest.mark.parametrize(
    ("page", "limit"),
    [("README.md", 80), ("AGENTS.md", 40), ("CONTRIBUTING.md", 120), *((page, 60) for page in DECISIONS)],
)
def test_a_page_keeps_to_its_size(page: str, limit: int) -> None:
    assert read(page).count("\n") <= limit


@pytest.mark.parametrize("page", DECISIONS)
def test_a_decision_has_its_four_sections(page: str) -> None:
    sections = re.findall(r"^## (.*)$", read(page), re.MULTILINE)
    assert sections == ["Context", "Decision", "Consequences", "Rejected"]


@pytest.mark.parametrize("page", DECISIONS)
def test_a_decision_has_a_status(page: str) -> None:
    assert len(STATUS.findall(read(page))) == 1


def test_the_index_of_decisions_has_every_number_once() -> None:
    numbers = [number for number, *_ in DECISION_ROW.findall(read(DECISION_INDEX))]
    assert numbers == [f"{number:04}" for number in range(1, len(numbers) + 1)]


def test_the_index_of_decisions_has_every_page_with_its_title_and_status() -> None:
    listed = {number: (title, status) for number, title, status, _ in DECISION_ROW.findall(read(DECISION_INDEX))}
    wrong = [page for page in DECISIONS if not _is_listed(page, *listed.pop(Path(page).name[:4]))]
    assert wrong == []
    assert [number for number, (_, status) in listed.items() if not status.startswith("moved to [concepts/")] == []


def _is_listed(page: str, title: str, status: str) -> bool:
    text = read(page)
    said = STATUS.findall(text)[0].split(" [")[0]
    return title == f"[{text.splitlines()[0][7:]}]({Path(page).name})" and status.startswith(said)


def test_a_page_that_a_decision_moved_to_names_its_number() -> None:
    """So that a number in an old commit or a comment leads somewhere."""
    moved = [
        (number, links(status))
        for number, _, status, _ in DECISION_ROW.findall(read(DECISION_INDEX))
        if "moved to" in status
    ]
    assert moved
    unnamed = [
        number for number, [page] in moved if not re.search(rf"\bADR {int(number)}\b", read(f"docs/decisions/{page}"))
    ]
    assert unnamed == []


def test_every_decision_that_is_named_is_in_the_index() -> None:
    known = {int(number) for number, *_ in DECISION_ROW.findall(read(DECISION_INDEX))}
    named = {int(number) for page in PAGES for pair in NAMED_DECISION.findall(read(page)) for number in pair if number}
    assert named - known == set()


def test_each_decision_is_titled_with_its_number() -> None:
    titles = {page: read(page).splitlines()[0] for page in DECISIONS}
    assert {page: title for page, title in titles.items() if not title.startswith(f"# {Path(page).name[:4]} ")} == {}


@pytest.mark.parametrize("page", [page for page in PAGES if SETTINGS.search(read(page))])
def test_settings_that_a_page_shows_are_accepted(page: str, tmp_path: Path) -> None:
    for number, text in enumerate(SETTINGS.findall(read(page))):
        file = tmp_path / f"{number}.toml"
        file.write_text(text, encoding="utf-8")
        assert read_config(tmp_path, file, {}, {}).file == file


def test_the_changelog_has_a_place_for_what_is_not_released() -> None:
    assert re.search(r"^## \[?Unreleased\]?", read("CHANGELOG.md"), re.MULTILINE)


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/compatibility.md", "LICENSE"])
def test_the_pages_people_look_for_exist(page: str) -> None:
    assert (ROOT / page).is_file()


def test_links_and_anchors_are_recognised() -> None:
    assert links("[a](b.md#c) [d](https://example.org) ![e](f.png)") == ["b.md#c", "f.png"]
    assert anchors("# One `two`: three\n```\n# not a heading\n```\n") == {"one-two-three"}
    assert not leads_somewhere("LICENSE", "no-such-page.md")


def test_every_claim_has_one_row() -> None:
    expected = [f"{family}{number}" for family, count in CLAIMS.items() for number in range(1, count + 1)]
    assert CLAIM_ROW.findall(read(CLAIMS_PAGE)) == expected


def test_every_test_that_the_claims_name_exists() -> None:
    named = NAMED_TEST.findall(read(CLAIMS_PAGE))
    assert len(named) == read(CLAIMS_PAGE).count("::")
    assert sorted(set(named) - set(every_test())) == []


def test_no_test_name_contains_a_claim_number() -> None:
    assert [name for name in every_test() if CLAIM_IN_NAME.search(name)] == []


def test_claim_numbers_in_names_are_recognised() -> None:
    assert all(map(CLAIM_IN_NAME.search, ["test_a_d1_7", "test_b_d4_16_trap_9", "test_d1_20_c", "test_trap_3"]))
    assert not any(map(CLAIM_IN_NAME.search, ["test_add_1_to_2", "test_a_trap", "test_d_1"]))
