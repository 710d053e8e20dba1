"""A real gateway is killed while it fetches an album from Telegram: the next one fetches it, and a model that sees is given it once."""

from pathlib import Path

import pytest

from everturn.testing.model import ModelServer
from everturn.testing.telegram import TelegramServer, person
from tests.crash.telegrams import telegram_gateway

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.prove
async def test_an_album_survives_kill_nine_while_it_is_fetched(tmp_path: Path) -> None:
    async with TelegramServer() as server, ModelServer() as model:
        own = {"KIND": "llm", "MODEL": "openai:scripted", "BASE_URL": model.base_url, "IMAGES": "yes"}
        settings = {f"EVERTURN_AGENT_{name}": value for name, value in own.items()}
        telegram, ann = server.telegram, person(server.telegram, "Ann")
        async with telegram_gateway(tmp_path, server, **settings) as gateway:
            await gateway.up()
            telegram.fail("slow", "file", seconds=20, times=2)
            ann.sends_album([PNG + b"first", PNG + b"second"], "what is this?")
            await telegram.until(lambda: any(each.method == "file" for each in telegram.calls))
            await gateway.killed()
            telegram.faults.clear()
            await gateway.up()
            await telegram.until(lambda: any("answer to" in text for text in telegram.texts(ann.id)))
    (request,) = [each.body for each in model.model.seen]
    assert request.count("data:image/png;base64,") == 2
    assert request.count("what is this?") == 1
    stored = [path.name for path in (tmp_path / "home" / "files").iterdir()]
    assert sorted(name.partition(".")[2] for name in stored) == ["image.jpg", "image.jpg"]
