"""Real gateways that talk to the local Telegram, which runs in the test and so outlives every one of them."""

from pathlib import Path

from everturn.testing.telegram import TOKEN, TelegramServer
from tests.crash.gateways import BREAKERS_OFF, Gateway

CONFIG = """
[platforms.telegram]
enabled = true
allow = ["*"]
"""


def telegram_gateway(folder: Path, server: TelegramServer, **settings: str) -> Gateway:
    """A gateway that reads this Telegram. The secret comes from the environment."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    (home / "everturn.toml").write_text(CONFIG)
    own = {
        "EVERTURN_PLATFORMS_TELEGRAM_TOKEN": TOKEN,
        "EVERTURN_PLATFORMS_TELEGRAM_API_URL": server.url,
        "EVERTURN_SESSIONS_BURST_S": "0",
        "EVERTURN_SESSIONS_BUSY": "queue",
    }
    return Gateway(home, settings=BREAKERS_OFF | own | settings)
