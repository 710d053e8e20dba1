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
        "How many seconds the gateway waits for the files of a message. If one is missing then, the sender gets a notice, and"
        " the agent answers without it.",
        between=(0.1, 3_600),
    )
    keep_hours: float = setting(
        24.0,
        "How many hours the gateway keeps files that came with messages or were sent. Files dropped into the page stay.",
        between=(0.1, 100_000),
    )
    text_chars: int = setting(
        20_000,
        "How many characters of all text documents of a message stand in the message itself. 0: none, the agent's tools read them.",
        between=(0, 1_000_000),
    )
    forbidden: tuple[str, ...] = setting(
        ("application/x-executable",),
        "File types that the gateway refuses, as the file's bytes show them.",
        form='types such as "application/zip", or "video/*"',
        check=_type_problem,
    )
