"""Pairing codes: how they look, how they are kept, who gets one, and how many guesses there are."""

import random

import pytest

from everturn.people.rules.access import (
    ALPHABET,
    PairingOffer,
    PairingRequest,
    PairingState,
    clean_code,
    hashed,
    lock_after,
    make_code,
    matching,
    offer,
)


def test_a_code_has_eight_letters_that_nobody_mistakes() -> None:
    code = make_code(random.Random(1).choice)
    assert len(code) == 8
    assert set(code) <= set(ALPHABET)
    assert len(set(ALPHABET)) == 32
    assert not set("OI01") & set(ALPHABET)


@pytest.mark.parametrize("typed", ["ABCD2345", " abcd2345\n", "ABCD-2345", "abcd 2345"])
def test_a_code_is_read_as_people_type_it(typed: str) -> None:
    assert clean_code(typed) == "ABCD2345"


def test_a_code_is_found_by_its_salted_hash_alone() -> None:
    kept = [PairingRequest(1, "s1", hashed("ABCD2345", "s1")), PairingRequest(2, "s2", hashed("WXYZ2345", "s2"))]
    assert kept[0].hash != hashed("ABCD2345", "s2")
    assert [matching(code, kept) for code in ("ABCD2345", "WXYZ2345", "ABCD2346", "")] == [1, 2, None, None]


@pytest.mark.parametrize(
    ("theirs_at", "open_", "told", "locked", "expected"),
    [
        (None, 0, 0, 0.0, PairingOffer.CODE),
        (None, 2, 0, 0.0, PairingOffer.CODE),
        (None, 3, 0, 0.0, PairingOffer.FULL),
        (None, 3, 3, 0.0, PairingOffer.NOTHING),
        (None, 0, 0, 1001.0, PairingOffer.FULL),
        (None, 0, 0, 1000.0, PairingOffer.CODE),
        (401.0, 0, 0, 0.0, PairingOffer.NOTHING),
        (400.0, 0, 0, 0.0, PairingOffer.CODE),
        (2000.0, 0, 0, 0.0, PairingOffer.CODE),  # the clock was set back
    ],
)
def test_what_a_stranger_gets(
    theirs_at: float | None, open_: int, told: int, locked: float, expected: PairingOffer
) -> None:
    asked = PairingState(theirs_at=theirs_at, open=open_, full_notices=told, locked_until=locked)
    assert offer(asked, 1000.0) is expected


def test_five_wrong_codes_lock_for_an_hour() -> None:
    assert [lock_after(wrong, 10.0) for wrong in (1, 4, 5)] == [0.0, 0.0, 3610.0]
