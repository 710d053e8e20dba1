"""Who may speak: lists, owners, chats, rows of people; everybody else requests access in a direct chat or gets nothing."""

from dataclasses import replace

import pytest

from everturn.model import SessionSource
from everturn.people.rules.access import (
    CLOSED,
    NOBODY,
    OPEN,
    AccessPolicy,
    AccessVerdict,
    Admission,
    Standing,
    is_person,
    standing_of,
    verdict,
)

POLICY = AccessPolicy(allow=("ann",), chats=("-100",), unknown="pair")
ADMISSION = Admission(policies={"telegram": POLICY, "matrix": OPEN, "quiet": NOBODY}, owners=("telegram:owen",))


def source(
    user: str | None, *, chat: str = "1", kind: str = "dm", platform: str = "telegram", alt: str | None = None
) -> SessionSource:
    return SessionSource(platform=platform, chat_id=chat, chat_type=kind, user_id=user, user_id_alt=alt)


@pytest.mark.parametrize(
    ("said", "standing", "expected"),
    [
        (source("ann"), Standing.UNKNOWN, AccessVerdict.ALLOWED),
        (source("ann", kind="group"), Standing.UNKNOWN, AccessVerdict.ALLOWED),
        (source("x", alt="ann"), Standing.UNKNOWN, AccessVerdict.ALLOWED),
        (source("owen"), Standing.UNKNOWN, AccessVerdict.ALLOWED),
        (source("bob"), Standing.GRANTED, AccessVerdict.ALLOWED),
        (source("bob"), Standing.OWNER, AccessVerdict.ALLOWED),
        (source("bob"), Standing.UNKNOWN, AccessVerdict.PAIR),
        (source("bob", kind="group"), Standing.UNKNOWN, AccessVerdict.SILENT),
        (source("bob", kind="group", chat="-100"), Standing.UNKNOWN, AccessVerdict.ALLOWED),
        (source(None, kind="channel", chat="-100"), Standing.UNKNOWN, AccessVerdict.ALLOWED),
        (source("bob", chat="-100"), Standing.UNKNOWN, AccessVerdict.PAIR),
        (source(None), Standing.UNKNOWN, AccessVerdict.SILENT),
        (source("ann"), Standing.REVOKED, AccessVerdict.SILENT),
        (source("owen"), Standing.REVOKED, AccessVerdict.SILENT),
        (source("bob", kind="group", chat="-100"), Standing.REVOKED, AccessVerdict.SILENT),
        (source("bob", platform="matrix"), Standing.UNKNOWN, AccessVerdict.ALLOWED),
        (source("bob", platform="matrix"), Standing.REVOKED, AccessVerdict.SILENT),
        (source("ann", platform="quiet"), Standing.UNKNOWN, AccessVerdict.SILENT),
        (source("ann", platform="quiet"), Standing.GRANTED, AccessVerdict.ALLOWED),
        (source("owen", platform="quiet"), Standing.UNKNOWN, AccessVerdict.SILENT),
        (source("ann", platform="unheard-of"), Standing.UNKNOWN, AccessVerdict.SILENT),
        (source(None, platform="api"), Standing.UNKNOWN, AccessVerdict.ALLOWED),
        (source("owner", platform="web"), Standing.REVOKED, AccessVerdict.ALLOWED),
        (source("bot", platform="v1", kind="group"), Standing.UNKNOWN, AccessVerdict.ALLOWED),
    ],
)
def test_who_may_speak(said: SessionSource, standing: Standing, expected: AccessVerdict) -> None:
    assert verdict(ADMISSION, said, standing) is expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (AccessPolicy(unknown="auto"), AccessVerdict.PAIR),
        (AccessPolicy(unknown="auto", allow=("ann",)), AccessVerdict.SILENT),
        (AccessPolicy(unknown="auto", chats=("-100",)), AccessVerdict.SILENT),
        (AccessPolicy(unknown="pair", allow=("ann",), chats=("-100",)), AccessVerdict.PAIR),
        (AccessPolicy(unknown="ignore"), AccessVerdict.SILENT),
        (AccessPolicy(), AccessVerdict.SILENT),
    ],
)
def test_a_stranger_is_offered_a_code_only_where_nobody_is_listed_unless_it_is_said(
    policy: AccessPolicy, expected: AccessVerdict
) -> None:
    """Users 9337: codes were sent to every stranger although there was a list. Owners are no list."""
    admission = Admission(policies={"telegram": policy}, owners=("telegram:owen",))
    assert verdict(admission, source("bob"), Standing.UNKNOWN) is expected
    assert verdict(admission, source("bob", kind="group"), Standing.UNKNOWN) is AccessVerdict.SILENT
    assert verdict(admission, source("bob"), Standing.GRANTED) is AccessVerdict.ALLOWED


def test_without_a_policy_nobody_may_speak() -> None:
    """Promise 11."""
    assert verdict(CLOSED, source("ann"), Standing.UNKNOWN) is AccessVerdict.SILENT
    assert (
        verdict(replace(CLOSED, policies={"telegram": AccessPolicy()}), source("ann"), Standing.UNKNOWN)
        is AccessVerdict.SILENT
    )


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], Standing.UNKNOWN),
        ([("granted", False)], Standing.GRANTED),
        ([("granted", False), ("granted", True)], Standing.OWNER),
        ([("granted", True), ("revoked", False)], Standing.REVOKED),
        ([("a state of a later version", False)], Standing.REVOKED),
    ],
)
def test_what_rows_say_of_a_person(rows: list[tuple[str, bool]], expected: Standing) -> None:
    assert standing_of(rows) is expected


@pytest.mark.parametrize(
    ("platform", "user", "expected"),
    [
        ("telegram", "23456", True),
        ("telegram", "-100123", True),  # an admin who stays unnamed speaks as the group
        ("telegram", "@ann", False),
        ("matrix", "@ann:x.example", True),
        ("matrix", "ann", False),
        ("own", "U0123ABC", True),
        ("own", "a b", True),
        ("own", "a\x1b[2J", False),
        ("own", "", False),
        ("", "ann", False),
        ("api", "ann", False),  # who comes there has a key
        ("web", "owner", False),
    ],
)
def test_whose_name_can_be_approved_or_revoked(platform: str, user: str, *, expected: bool) -> None:
    """What was done to nobody must not look as if it was done."""
    assert is_person(platform, user) is expected
