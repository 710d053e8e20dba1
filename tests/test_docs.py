"""The documents are true: links lead somewhere, commands exist, pages keep their size and shape."""

import re
from pathlib import Path

import pytest

from everturn.config import read_config
from tests.house import ROOT, project_files

PAGES = [path for path in project_files() if path.endswith(".md")]
DECISIONS = [path for path in PAGES if path.startswith("docs/decisions/")]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
MAKE = re.compile(r"`make ([a-z-]+)|^\s*make ([a-z-]+)", re.MULTILINE)
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SETTINGS = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


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


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [Path(page).name[:4] for page in DECISIONS]
    assert numbers == [f"{number:04}" for number in range(1, len(DECISIONS) + 1)]


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
