"""When an invitation that could not be answered is retried."""

import pytest

from everturn.errors import EverturnError, OutcomeUnknown, Refused, StoreUnavailable, TryLater
from everturn.platform.matrix.rules import LONGEST_WAIT_S, MOST_FAILURES, Forbidden, RetryInvitation, after_failure


@pytest.mark.parametrize(
    ("error", "failures", "then"),
    [
        (Refused("withdrawn"), 0, None),
        (Forbidden("not yours"), 0, None),
        (TryLater("slowly", 7.0), 0, RetryInvitation(7.0, 0)),
        (TryLater("slowly", 7.0), MOST_FAILURES, RetryInvitation(7.0, MOST_FAILURES)),
        (TryLater("next year", 1e9), 3, RetryInvitation(LONGEST_WAIT_S, 3)),
        (TryLater("soon", 0.0), 0, RetryInvitation(1.0, 1)),
        (OutcomeUnknown("no answer"), 0, RetryInvitation(1.0, 1)),
        (OutcomeUnknown("no answer"), 3, RetryInvitation(8.0, 4)),
        (OutcomeUnknown("no answer"), MOST_FAILURES - 1, RetryInvitation(60.0, MOST_FAILURES)),
        (OutcomeUnknown("no answer"), MOST_FAILURES, None),
        (StoreUnavailable("full"), 0, RetryInvitation(1.0, 1)),
    ],
)
def test_an_invitation_is_tried_again_unless_it_is_refused(
    error: EverturnError, failures: int, then: RetryInvitation | None
) -> None:
    assert after_failure(error, failures, chance=1.0) == then
