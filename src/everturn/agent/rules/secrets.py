"""Removes keys from every text that leaves: errors, notices, the journal and the log."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "[hidden]"
_SHORTEST = 6  # a shorter "secret" would blank out ordinary words
_KEY_LIKE = re.compile(
    r"(?:sk|pk|rk|xai|gsk|key|ghp|gho|hf|AIza)[-_][A-Za-z0-9_\-*.]{6,}"
    r"|AIza[A-Za-z0-9_\-]{20,}"
    r"|(?i:(?<=bearer )|(?<=basic ))[A-Za-z0-9._~+/=\-*]{6,}"
    r"|(?i:(?<=api_key=)|(?<=api-key=)|(?<=apikey=)|(?<=token=)|(?<=password=)|(?<=secret=))[^\s&\"']{3,}"
)
_USER_IN_URL = re.compile(r"(?<=://)[^\s/@:]+:[^\s/@]+(?=@)")


def scrub(text: str, secrets: Iterable[str | None] = ()) -> str:
    """Replace the known secrets in a text, and what looks like one."""
    for secret in secrets:
        if secret and len(secret) >= _SHORTEST:
            text = text.replace(secret, HIDDEN)
    return _USER_IN_URL.sub(HIDDEN, _KEY_LIKE.sub(HIDDEN, text))
