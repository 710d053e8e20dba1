"""`[media]`: files that come with messages and files that are sent. How large they may be is in `[limits]`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from everturn.settings.rules import setting


def _type_problem(kind: str) -> str | None:
    return (
        None
        if re.fullmatch(r"[a-z0-9.+-]+/([a-z0-9.+-]+|\*)", kind)
        else 'types look like "application/zip" or "video/*"'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaConfig:
    """`[media]`."""

    fetch_s: float = setting(
        30.0,
        "How many seconds the files of a message are waited for. Who sent one that is not there by then is told, and the"
        " message is answered without it.",
        between=(0.1, 3_600),
    )
    keep_hours: float = setting(
        24.0,
        "How long files are kept that came with messages or were sent. What was dropped into the page stays.",
        between=(0.1, 100_000),
    )
    text_chars: int = setting(
        20_000,
        "How much of text documents stands in the message itself, of all that it brings together. 0: nothing, the agent's tools read it.",
        between=(0, 1_000_000),
    )
    forbidden: tuple[str, ...] = setting(
        ("application/x-executable",),
        "Types that are not taken, as a file's bytes show them.",
        form='types such as "application/zip", or "video/*"',
        check=_type_problem,
    )
