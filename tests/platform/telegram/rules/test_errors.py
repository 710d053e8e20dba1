"""Each error response of Telegram, and the reaction that it demands."""

import pytest

from everturn.errors import OutcomeUnknown, PlatformError, Refused, TryLater
from everturn.pauses import LONGEST_S, pause_s
from everturn.platform.telegram.rules import AlreadyGone, ChatMoved, NoThread, NotModified, Unfit, Unparsed, error_of


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (400, "Bad Request: chat not found", Refused),
        (400, "Bad Request: message is not modified: specified new", NotModified),
        (400, "Bad Request: can't parse entities: Unsupported start tag", Unparsed),
        (400, "Bad Request: message is too long", Refused),
        (400, "Bad Request: message to delete not found", AlreadyGone),
        (400, "Bad Request: message thread not found", NoThread),
        (400, "Bad Request: TOPIC_DELETED", NoThread),
        (400, "Bad Request: PHOTO_INVALID_DIMENSIONS", Unfit),
        (400, "Bad Request: IMAGE_PROCESS_FAILED", Unfit),
        (400, "Bad Request: VOICE_MESSAGES_FORBIDDEN", Unfit),
        (401, "Unauthorized", TryLater),
        (403, "Forbidden: bot was blocked by the user", Refused),
        (404, "Not Found", TryLater),
        (409, "Conflict: terminated by other getUpdates request", TryLater),
        (413, "Request Entity Too Large", Refused),
        (429, "Too Many Requests: retry after 5", TryLater),
        (500, "Internal Server Error", OutcomeUnknown),
        (502, "Bad Gateway", OutcomeUnknown),
        (504, "", OutcomeUnknown),
    ],
)
def test_each_answer_demands_its_reaction(code: int, text: str, kind: type[PlatformError]) -> None:
    assert type(error_of(code, text)) is kind


def test_what_telegram_tells_more_is_heeded() -> None:
    later, moved = error_of(429, "slow", retry_after=7), error_of(400, "upgraded", moved_to=-100)
    assert isinstance(later, TryLater)
    assert later.delay_s == 7
    assert isinstance(moved, ChatMoved)
    assert moved.chat_id == -100
    assert "BotFather" in str(error_of(401, "Unauthorized"))
    assert "webhook" in str(error_of(409, "Conflict: can't use getUpdates method while webhook is active"))


@pytest.mark.parametrize(
    ("failures", "chance", "asked_s", "wait_s"),
    [(1, 0.0, 0.0, 0.5), (1, 1.0, 0.0, 1.0), (3, 1.0, 0.0, 4.0), (3, 0.0, 0.0, 2.0), (1, 0.0, 9.0, 9.0), (99, 1.0, 0.0, LONGEST_S)],
)  # fmt: skip
def test_pauses_grow_and_are_not_all_alike(failures: int, chance: float, asked_s: float, wait_s: float) -> None:
    assert pause_s(failures, chance, asked_s) == wait_s
