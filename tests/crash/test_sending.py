"""A message that a tool sends is delivered once, wherever the process dies."""

import itertools

import pytest

from everturn.decide.delivery import Surety
from everturn.testing import FakePlatform
from tests.crash.lives import DIED, DONE, SENT, Death, Life, undisturbed
from tests.crash.processes import run_life
from tests.crash.test_points import ENGINES_BY_TURNS, Homes, hits_of, homes

__all__ = ["homes"]


def sent(life: Life) -> int:
    platform = FakePlatform(file=life.folder / "platform", surety=Surety.KEYED)
    return platform.texts("two").count(SENT)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ENGINES_BY_TURNS)
def test_a_tools_message_is_delivered_once(homes: Homes) -> None:
    """Promises 5 and 6: the call is repeated, the message is not."""
    first = homes.fresh("sends")
    hits = hits_of(first)
    homes.forget(first)
    assert "message.owed" in hits
    for point in hits:
        for hit in itertools.count(1):
            life = homes.fresh("sends", Death(point, hit))
            code = run_life(life)
            assert code in {DIED, DONE}, (point, hit, code)
            if code == DIED:
                assert run_life(undisturbed(life)) == DONE, (point, hit)
            assert sent(life) == 1, (point, hit)
            homes.forget(life)
            if code == DONE:
                break
