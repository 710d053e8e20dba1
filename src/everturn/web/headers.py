"""Headers of every answer: what a browser may do with it. One policy for the page and for everything else."""

from __future__ import annotations

from everturn.web.answers import Header

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self';"
    " frame-ancestors 'none'; base-uri 'none'; form-action 'self'; require-trusted-types-for 'script';"
    " trusted-types everturn"
)
ALWAYS: tuple[tuple[str, str], ...] = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=(), payment=()"),
)
HTTPS_ONLY = ("strict-transport-security", "max-age=31536000")


def headers(*, secure: bool) -> list[tuple[str, str]]:
    """The headers of every answer; where people come through https, they are told to stay there."""
    return [*ALWAYS, HTTPS_ONLY] if secure else list(ALWAYS)


def as_bytes(pairs: list[tuple[str, str]]) -> tuple[Header, ...]:
    """The same for the wire."""
    return tuple((name.encode(), value.encode()) for name, value in pairs)
