"""How answers are shown in a chat: its own table goes before its platform's, and that before what is set for all."""

import pytest

from everturn.model import SessionSource
from everturn.outbox.rules.streaming import Display, Look, Pace

DISPLAY = Display(
    everywhere=Pace(interval_s=1.0, min_chars=10, cursor="all"),
    look_everywhere=Look(quote="always"),
    by_platform={"telegram": {"interval_s": 2.0, "typing": False}},
    by_chat={
        "telegram:new": {"cursor": "new", "quote": "never"},
        "telegram:old": {"cursor": "old", "min_chars": 30},
        "matrix:!room": {"cursor": "room"},
    },
)


@pytest.mark.parametrize(
    ("platform", "chat", "before", "pace", "look"),
    [
        ("web", "one", None, (1.0, 10, "all"), (True, "always")),
        ("telegram", "one", None, (2.0, 10, "all"), (False, "always")),
        ("telegram", "new", None, (2.0, 10, "new"), (False, "never")),
        ("telegram", "one", "old", (2.0, 30, "old"), (False, "always")),
        ("telegram", "new", "old", (2.0, 30, "new"), (False, "never")),
        ("telegram", "new", "other", (2.0, 10, "new"), (False, "never")),
        ("matrix", "!room", None, (1.0, 10, "room"), (True, "always")),
        ("matrix", "new", None, (1.0, 10, "all"), (True, "always")),
    ],
)
def test_the_nearest_table_decides_each_setting(
    platform: str, chat: str, before: str | None, pace: tuple[float, int, str], look: tuple[bool, str]
) -> None:
    source = SessionSource(platform=platform, chat_id=chat, chat_id_alt=before)
    found, shown = DISPLAY.pace(source), DISPLAY.look(source)
    assert (found.interval_s, found.min_chars, found.cursor) == pace
    assert (shown.typing, shown.quote) == look
