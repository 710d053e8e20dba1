"""Real gateways that talk to a real Synapse, through a proxy that runs in the test and so outlives every one of them."""

from pathlib import Path

from tests.crash.gateways import BREAKERS_OFF, Gateway
from tests.synapse import Person

CONFIG = """
[platforms.matrix]
enabled = true
allow = ["*"]
homeserver = "{homeserver}"
user = "{user}"
"""


def matrix_gateway(folder: Path, homeserver: str, bot: Person, **settings: str) -> Gateway:
    """A gateway that reads this account. The secret comes from the environment."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    (home / "everturn.toml").write_text(CONFIG.format(homeserver=homeserver, user=bot.user_id))
    own = {
        "EVERTURN_PLATFORMS_MATRIX_TOKEN": bot.token,
        "EVERTURN_SESSIONS_BURST_S": "0",
        "EVERTURN_SESSIONS_BUSY": "queue",
    }
    return Gateway(home, settings=BREAKERS_OFF | own | settings)


async def invited(who: Person, bot: Person) -> str:
    """A chat of two that a running gateway has joined; it reads what is said there from then on."""
    room = who.direct(bot.user_id)
    await who.until(lambda: who.seen.membership(room, bot.user_id) == "join")
    return room
