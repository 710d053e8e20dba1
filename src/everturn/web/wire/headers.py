"""Security headers of every response: one policy for the page and for everything else."""

from __future__ import annotations

from everturn.web.wire.answers import Header

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
    """Return the headers of every response; with https, also Strict-Transport-Security."""
    return [*ALWAYS, HTTPS_ONLY] if secure else list(ALWAYS)


def as_bytes(pairs: list[tuple[str, str]]) -> tuple[Header, ...]:
    """Return the headers as bytes."""
    return tuple((name.encode(), value.encode()) for name, value in pairs)
