"""When an invitation that could not be answered is tried again."""

import pytest

from everturn.decide.matrix_errors import Forbidden
from everturn.decide.matrix_invitations import LONGEST_S, MOST_FAILURES, Again, after_failure
from everturn.errors import EverturnError, OutcomeUnknown, Refused, StoreUnavailable, TryLater


@pytest.mark.parametrize(
    ("error", "failures", "then"),
    [
        (Refused("withdrawn"), 0, None),
        (Forbidden("not yours"), 0, None),
        (TryLater("slowly", 7.0), 0, Again(7.0, 0)),
        (TryLater("slowly", 7.0), MOST_FAILURES, Again(7.0, MOST_FAILURES)),
        (TryLater("next year", 1e9), 3, Again(LONGEST_S, 3)),
        (TryLater("soon", 0.0), 0, Again(1.0, 1)),
        (OutcomeUnknown("no answer"), 0, Again(1.0, 1)),
        (OutcomeUnknown("no answer"), 3, Again(8.0, 4)),
        (OutcomeUnknown("no answer"), MOST_FAILURES - 1, Again(60.0, MOST_FAILURES)),
        (OutcomeUnknown("no answer"), MOST_FAILURES, None),
        (StoreUnavailable("full"), 0, Again(1.0, 1)),
    ],
)
def test_an_invitation_is_tried_again_unless_it_is_refused(
    error: EverturnError, failures: int, then: Again | None
) -> None:
    assert after_failure(error, failures, chance=1.0) == then
