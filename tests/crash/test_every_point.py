"""Each crash point that the code names is visited by a test, and each that a test visits is named in the code."""

from everturn import points
from tests.crash import test_api_points, test_matrix, test_points, test_pressing, test_streaming_points, test_telegram
from tests.crash.noting import CALLED

# Points with a test of their own, because they are passed only after a death or a fault.
OF_THEIR_OWN = {
    "cursor.moved": test_matrix.test_a_death_when_a_new_home_has_stored_from_where_it_reads_loses_nothing,
    "delivery.asked": test_streaming_points.test_first_text_that_may_be_out_at_a_death_follows_the_policy,
    "preview.removed": test_streaming_points.test_a_death_while_shown_text_is_deleted,
    "inbox.acknowledged": test_api_points.test_a_death_between_a_request_and_its_answer_loses_and_doubles_nothing,
}


def test_every_point_is_visited() -> None:
    visited = {point for *_, point in test_points.visits()}
    modules = (test_streaming_points, test_matrix, test_pressing, test_telegram)
    visited |= {point for module in modules for *_, point in module.VISITS}
    assert sorted((visited | OF_THEIR_OWN.keys()) - {CALLED} ^ points.ALL) == []
