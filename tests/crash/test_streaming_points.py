"""Streaming messages, wherever the process dies: in the end the answer is seen once, whole."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from everturn.outbox.rules.delivery import Surety
from tests.crash import recorded
from tests.crash.gateway_process import DIED, DONE, Death
from tests.crash.noting import CALLED
from tests.crash.stream_scenarios import GROWING, THREE_PIECES, check, fresh, homes, run_stream
from tests.crash.streaming import TOOL

PARTS = (*THREE_PIECES, TOOL, " golf" * 15, " hotel" * 10)
# What a growing answer adds to the points of any turn; the others are visited by test_points.
OF_AN_ANSWER = ("preview.", "turn.", "send.", "step.", "effect.", "approval.", CALLED)
GROWTHS: dict[str, dict[str, object]] = {
    **{
        f"growing {kind} {surety.value}": {"kind": kind, "surety": surety, "limit": 120, "pieces": PARTS}
        for kind in GROWING
        for surety in Surety
    },
    **{
        f"growing around an approval {surety.value}": {
            "surety": surety, "asks": True, "pieces": ("alpha bravo", TOOL, "charlie"),
        }
        for surety in (Surety.KEYED, Surety.READ_BACK)
    },
    "growing card in one piece": {"kind": "cards", "pieces": THREE_PIECES[:1]},
}  # fmt: skip
VISITS = recorded.visits({name: name for name in GROWTHS}, OF_AN_ANSWER)


@pytest.mark.prove
@pytest.mark.parametrize("name", GROWTHS)
def test_a_growing_answer_passes_the_points_that_were_recorded(tmp_path: Path, name: str) -> None:
    stream = fresh(tmp_path, "", **GROWTHS[name])
    assert check(stream) == []
    recorded.check(name, json.loads((tmp_path / "hits").read_text()))


@pytest.mark.prove
@pytest.mark.parametrize(("name", "point"), VISITS)
def test_a_death_at_a_point_of_a_growing_answer(tmp_path: Path, name: str, point: str) -> None:
    """Promise 6: where the platform can tell, nothing is doubled; elsewhere the one in flight is, and says so. Edited and deleted
    messages and cards in several parts, also right after each call of the platform; what was said before an approval request
    stands above it, the answer beneath it.
    """
    places = homes(tmp_path)
    for hit in range(1, recorded.hits_of(name)[point] + 1):
        assert check(fresh(next(places), "", **GROWTHS[name]), Death(point, hit)) == [point], (point, hit)


@pytest.mark.parametrize(("policy", "ends"), [("mark", "sent"), ("ask", "unknown"), ("drop", "dead")])
def test_first_text_that_may_be_out_at_a_death_follows_the_policy(tmp_path: Path, policy: str, ends: str) -> None:
    """Sent, and not yet committed: repeated with a mark, asked about in the chat (also if it dies then), or left."""
    stream = fresh(tmp_path, surety=Surety.NEITHER, on_unknown_delivery=policy, ends=ends)
    assert run_stream(replace(stream, death=Death("preview.sent", 1))) == DIED
    if policy == "ask":
        assert run_stream(replace(stream, death=Death("delivery.asked", 1))) == DIED
    assert run_stream(stream) == DONE
    first, *more = stream.platform().texts("one")
    assert first.startswith(THREE_PIECES[0])
    assert [policy == "mark" or "/resend" in text for text in more] == [True] * (policy != "drop")


def test_a_death_while_shown_text_is_deleted(tmp_path: Path) -> None:
    """What was shown and became silence: gone, and not yet known to be gone."""
    stream = fresh(tmp_path, kind="deleted", silent=True, pieces=(*THREE_PIECES, TOOL), limit=20)
    deaths = [Death("preview.removed", hit) for hit in (1, 2)]
    assert len(check(stream, *deaths)) == 2
    assert stream.platform().texts("one") == []
