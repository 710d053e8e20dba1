"""Messages that a program posts, and a death at every point between the request and its answer: each is answered once."""

import asyncio
import json
import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import uvloop

from everturn import points
from tests.crash import recorded
from tests.crash.gateway_process import DIED, DONE, Death, die_at
from tests.crash.processes import run_process
from tests.web.composition import Heard, running

SCENARIO = "api"
POSTED = ("one", "two")
ACCEPTED = {200, 202}


@dataclass(frozen=True)
class Posting:
    """A process with a web server, and the program that posts to it; it repeats what it got no answer for."""

    url: str
    folder: Path
    death: Death | None = None


def run_to_exit(posting: Posting) -> None:
    """Run the whole process."""
    hits: Counter[str] = Counter()
    points.install(die_at(posting.death) if posting.death else lambda name: hits.update([name]))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(post_all(posting))
    (posting.folder / "hits").write_text(json.dumps(hits))
    os._exit(DONE)


async def post_all(posting: Posting) -> None:
    """Post everything that was not acknowledged, and write down every event until the last answer."""
    async with running(posting.url) as web:
        for number in POSTED:
            if not (posting.folder / number).exists():
                answer = await web.post("chat", number, f"say {number}")
                assert answer.status_code in ACCEPTED, answer.text
                (posting.folder / number).touch()
        seen: list[Heard] = []
        async with web.events("chat", after=0) as events:
            while sum(each.name == "reply" for each in seen) < len(POSTED):
                seen.append(await events.next())
    (posting.folder / "replies").write_text(json.dumps([each.data for each in seen if each.name == "reply"]))


def check(posting: Posting) -> None:
    """Each message has one answer, in order."""
    replies = json.loads((posting.folder / "replies").read_text())
    assert [(each["to"], each["text"]) for each in replies] == [(number, f"echo: say {number}") for number in POSTED]


@pytest.mark.prove
def test_a_posted_message_passes_the_points_that_were_recorded(store_url: str, tmp_path: Path) -> None:
    posting = Posting(store_url, tmp_path)
    assert run_process(run_to_exit, posting) == DONE
    check(posting)
    recorded.check(SCENARIO, json.loads((tmp_path / "hits").read_text()))


@pytest.mark.prove
@pytest.mark.parametrize("hit", [1, 2])
@pytest.mark.parametrize("point", ["inbox.before", "inbox.committed", "inbox.acknowledged"])
def test_a_death_between_a_request_and_its_answer_loses_and_doubles_nothing(
    store_url: str, tmp_path: Path, point: str, hit: int
) -> None:
    """Promises 1 and 2."""
    posting = Posting(store_url, tmp_path, Death(point, hit))
    assert run_process(run_to_exit, posting) == DIED
    assert run_process(run_to_exit, replace(posting, death=None)) == DONE
    check(posting)
