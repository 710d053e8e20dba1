"""The three queues for slots: which key is next."""

from everturn.turns.scheduler import Lanes


def picks(lanes: Lanes, resumed: int = 0) -> list[tuple[str, bool]]:
    """Everything that gets a slot, with so many interrupted turns beside it."""
    found = []
    while (picked := lanes.pick(lambda: resumed)) is not None:
        found.append(picked)
    return found


def filled(slots: int = 4) -> Lanes:
    lanes = Lanes(slots)
    for key in ("a", "b"):
        lanes.add(key, resume=False)
    lanes.add("r", resume=True)
    return lanes


def test_interrupted_turns_come_first_then_new_work_in_order() -> None:
    assert picks(filled()) == [("r", True), ("a", False), ("b", False)]


def test_interrupted_turns_leave_half_of_the_slots() -> None:
    assert picks(filled(), resumed=2) == [("a", False), ("b", False)]
    assert picks(filled(slots=1), resumed=0)[0] == ("r", True)


def test_a_key_stands_in_one_queue_only() -> None:
    """Otherwise its turn would be claimed, and run, twice."""
    lanes = filled()
    lanes.add("a", resume=True)
    lanes.add("r", resume=False)
    assert sorted(picks(lanes)) == [("a", True), ("b", False), ("r", True)]
    assert not lanes.waits("a")


def test_only_one_suspect_is_unproven_at_a_time() -> None:
    lanes = Lanes(4)
    for key in ("x", "y"):
        lanes.add_suspect(key)
    assert picks(lanes) == [("x", False)]
    assert lanes.watches("x")
    lanes.clear("y")
    assert picks(lanes) == []
    lanes.clear("x")
    assert picks(lanes) == [("y", False)]


def test_in_a_crash_loop_interrupted_turns_are_delayed_then_go_one_by_one() -> None:
    lanes = filled()
    lanes.add("s", resume=True)
    lanes.delay_resumes()
    assert (picks(lanes), lanes.delayed_resumes()) == ([("a", False), ("b", False)], 2)
    lanes.resume_one_at_a_time()
    assert (lanes.pick(lambda: 0), lanes.pick(lambda: 1), lanes.delayed_resumes()) == (("r", True), None, 0)
