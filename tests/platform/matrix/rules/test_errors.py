"""Each error response of a homeserver, by the reaction that it demands."""

import pytest

from everturn.errors import OutcomeUnknown, PlatformError, Refused, TryLater
from everturn.pauses import asked_s
from everturn.platform.matrix.rules import Forbidden, MatrixNotFound, error_of


@pytest.mark.parametrize(
    ("status", "code", "kind", "told"),
    [
        (400, "M_BAD_JSON", Refused, "M_BAD_JSON"),
        (401, "M_UNKNOWN_TOKEN", TryLater, "everturn connect matrix"),
        (401, "M_MISSING_TOKEN", TryLater, "everturn connect matrix"),
        (401, "", TryLater, "everturn connect matrix"),
        (403, "M_FORBIDDEN", Forbidden, "still in the room"),
        (301, "", TryLater, "in front of the homeserver"),
        (400, "", TryLater, "HTTP 400"),
        (403, "", TryLater, "HTTP 403"),
        (403, "M_GUEST_ACCESS_FORBIDDEN", Refused, "not allowed"),
        (403, "M_RESOURCE_LIMIT_EXCEEDED", TryLater, "restricts the account"),
        (403, "M_USER_SUSPENDED", TryLater, "restricts the account"),
        (404, "", TryLater, "HTTP 404"),
        (413, "", Refused, "larger"),
        (404, "M_NOT_FOUND", MatrixNotFound, "M_NOT_FOUND"),
        (404, "M_UNRECOGNIZED", MatrixNotFound, "M_UNRECOGNIZED"),
        (405, "M_UNRECOGNIZED", MatrixNotFound, "M_UNRECOGNIZED"),
        (408, "", OutcomeUnknown, "HTTP 408"),
        (413, "M_TOO_LARGE", Refused, "larger"),
        (414, "", MatrixNotFound, "longer"),
        (429, "M_LIMIT_EXCEEDED", TryLater, "asks us to wait"),
        (429, "", TryLater, "HTTP 429"),
        (500, "M_UNKNOWN", OutcomeUnknown, "M_UNKNOWN"),
        (502, "", OutcomeUnknown, "HTTP 502"),
        (504, "", OutcomeUnknown, "HTTP 504"),
    ],
)
def test_a_no_is_named_by_the_reaction(status: int, code: str, kind: type[PlatformError], told: str) -> None:
    error = error_of(status, code, "words of the server")
    assert type(error) is kind
    assert told in str(error)


@pytest.mark.parametrize(
    ("ms", "header", "delay_s"),
    [
        (None, "", 1.0),
        (2500.0, "", 2.5),
        (2500.0, "7", 7.0),
        (0.0, "", 1.0),
        (-1.0, "", 1.0),
        (None, "²", 1.0),
        (None, "9" * 11, 86_400.0),
        (None, "9" * 400, 1.0),
        (1e30, "", 86_400.0),
        (None, "Wed, 21 Oct 2026 07:28:00 GMT", 1.0),
    ],
)
def test_the_servers_own_delay_is_kept(ms: float | None, header: str, delay_s: float) -> None:
    error = error_of(429, "M_LIMIT_EXCEEDED", "", retry_after_ms=ms, retry_after=header)
    assert isinstance(error, TryLater)
    assert error.delay_s == delay_s


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(TryLater("soon", 5.0), 5.0), (TryLater("tomorrow", 86_400.0), 600.0), (OutcomeUnknown("?"), 0.0)],
)
def test_reading_does_not_wait_for_ever_whatever_a_server_asks_for(error: PlatformError, seconds: float) -> None:
    assert asked_s(error) == seconds
