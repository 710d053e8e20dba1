"""The pure parts of the page, in Node: Markdown, what a conversation shows, what waits to be sent."""

import subprocess

from tests.house import ROOT


def test_the_pure_parts_of_the_page() -> None:
    tests = sorted(str(path) for path in (ROOT / "tests" / "web" / "page").glob("*.test.mjs"))
    done = subprocess.run(["node", "--test", *tests], capture_output=True, text=True, timeout=55, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
