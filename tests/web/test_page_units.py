"""Unit tests of the page, in Node: Markdown, conversations, messages that are not sent yet."""

import json
import re
import subprocess

from everturn.web.messages import FOLDER, read_page
from tests.house import ROOT
from tests.waiting import WAIT_S


def test_the_pure_parts_of_the_page() -> None:
    """Run in one process: `node --test` would start one for each file."""
    tests = sorted((ROOT / "tests" / "web" / "page").glob("*.test.mjs"))
    command = [
        "node",
        "--input-type=module",
        "--eval",
        "".join(f"import {json.dumps(path.as_uri())};" for path in tests),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert re.search(r"^. pass (\d+)$", done.stdout, re.MULTILINE), done.stdout[-5000:]


def test_the_copy_for_reloads_holds_every_file_of_the_pages() -> None:
    listed = set(re.findall(r"'([\w/]+\.\w+)'", (FOLDER / "offline.js").read_text()))
    named = {"index.html", "ops/ops.html"}  # by their addresses
    assert listed == set(read_page()) - named - {"login.html", "login.js", "offline.js"}


def imported(name: str) -> set[str]:
    """The modules that one imports, also indirectly."""
    own = set(re.findall(r"^import .* from '\./(.+?)'", (FOLDER / name).read_text(), re.MULTILINE))
    return own.union(*map(imported, own))


def test_what_the_page_loads_ahead_is_what_it_needs() -> None:
    ahead = re.findall(r'modulepreload" href="/assets/(.+?)"', (FOLDER / "index.html").read_text())
    assert len(ahead) > 5
    assert set(ahead) <= imported("main.js")
