"""An agent in the owner's Python: an object, a class or a function; what is not an agent is named."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from everturn.agent.python_object import load
from everturn.errors import ConfigError
from everturn.testing import FakePlatform, World
from tests.house import ROOT

MODULE = """
from everturn.agent.interface import Answer

class Kind:
    async def run(self, turn):
        return Answer("from a class")

class Holder:
    inner = Kind()

async def function(turn):
    return "from a function"

thing = 5
def broken():
    raise RuntimeError
class Broken:
    def __init__(self):
        raise RuntimeError("no")
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "their_module.py").write_text(MODULE)
    (tmp_path / "their_broken_module.py").write_text("import no_such_thing")
    sys.path += [str(tmp_path), str(ROOT / "examples")]
    yield
    del sys.path[-2:]
    for name in ("their_module", "their_broken_module", "python_agent"):
        sys.modules.pop(name, None)


async def answer(url: str, name: str, words: str = "hello") -> str:
    platform = FakePlatform()
    async with World(url, load(name), [platform]):
        platform.say("one", words)
        await platform.until(lambda: bool(platform.screen))
    return platform.screen[0].text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("their_module:Kind", "from a class"),
        ("their_module:Holder.inner", "from a class"),
        ("their_module:function", "from a function"),
        ("python_agent:Greeter", "You wrote 5 letters."),
    ],
)
async def test_what_is_an_agent_answers(store_url: str, name: str, said: str) -> None:
    assert await answer(store_url, name) == said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_module:thing", "ModuleNotFoundError"),
        ("their_broken_module:thing", "no_such_thing"),
        ("their_module:nothing", "AttributeError"),
        ("their_module:Broken", "RuntimeError: no"),
        ("their_module:thing", "is not an agent"),
        ("their_module:broken", "is not an agent"),
    ],
)
def test_what_is_none_is_named_with_the_reason(name: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(name)
    assert name in str(caught.value)
    assert said in str(caught.value)


def test_the_example_is_short() -> None:
    assert len((ROOT / "examples" / "python_agent.py").read_text().splitlines()) <= 15
