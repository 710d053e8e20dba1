"""The walk as docs/architecture.md prints it: the files of the plain message in order, and the counts of all walks."""

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.house import ROOT
from tests.turn_costs import PACKAGE
from tests.walk import SCENES, Walk

PAGE = ROOT / "docs" / "architecture.md"
BEGIN = "<!-- From here to the end of the walk: measured and written by scripts/walk.py --page (`make docs`). -->"
END = "<!-- The end of the walk. -->"


def said_of(file: str) -> str:
    """The first sentence of a file's docstring, on one line."""
    docstring = ast.get_docstring(ast.parse((Path(PACKAGE) / file).read_text(encoding="utf-8"))) or ""
    sentence = " ".join(docstring.split("\n\n")[0].split()).split(". ")[0]
    return sentence.rstrip(".").replace("|", "\\|")


def rows_of(walked: Walk) -> list[str]:
    """One line for each file of a walk, in order."""
    return [f"1. [`{file}`](../src/everturn/{file}): {said_of(file)}." for file in walked.files]


def count_rows(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """One line for each walk."""
    return [
        f"| `{name}` | {str(SCENES[name].__doc__).rstrip('.')} | {each['files']} | {each['functions']} |"
        for name, each in counts.items()
    ]


def page_part(walks: Mapping[str, Walk]) -> str:
    """What stands between the marks."""
    head = ["| walk | what happens | files | functions |", "| --- | --- | --- | --- |"]
    counts = count_rows({name: walked.counts for name, walked in walks.items()})
    return "\n".join([BEGIN, "", *rows_of(walks["plain"]), "", *head, *counts, "", END])


def printed() -> Sequence[str]:
    """The lines that stand between the marks now."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    part, end, _ = rest.partition(END)
    assert end, "the marks of the walk are missing"
    return [line for line in part.splitlines() if line.startswith(("1. ", "| `"))]


def write(walks: Mapping[str, Walk]) -> bool:
    """Write the part into the page; whether it changed."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    changed = f"{before}{page_part(walks)}{rest.partition(END)[2]}"
    PAGE.write_text(changed, encoding="utf-8")
    return changed != text
