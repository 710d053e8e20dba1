"""The pure parts of the page, in Node: Markdown, what a conversation shows, what waits to be sent."""

import re
import subprocess

from everturn.web.page_files import FOLDER
from tests.house import ROOT


def test_the_pure_parts_of_the_page() -> None:
    tests = sorted(str(path) for path in (ROOT / "tests" / "web" / "page").glob("*.test.mjs"))
    done = subprocess.run(["node", "--test", *tests], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-5000:]


def imported(name: str) -> set[str]:
    """The modules that one needs, through others too."""
    own = set(re.findall(r"^import .* from '\./(.+?)'", (FOLDER / name).read_text(), re.MULTILINE))
    return own.union(*map(imported, own))


def test_what_the_page_loads_ahead_is_what_it_needs() -> None:
    ahead = re.findall(r'modulepreload" href="/assets/(.+?)"', (FOLDER / "index.html").read_text())
    assert len(ahead) > 5
    assert set(ahead) <= imported("main.js")
