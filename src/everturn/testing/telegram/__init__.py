"""A local Telegram for tests: a faithful Bot API on this machine, with scripted people and faults on order.

    async with TelegramServer() as server:
        ann = person(server.telegram, "Ann")
        ann.says("hello")                              # the bot gets an update
        server.telegram.fail("flood", "sendMessage", retry_after=3)
        await server.telegram.until(lambda: server.telegram.texts(ann.id))

Every behaviour names the page of the documentation that it follows. Two client libraries that know nothing of it,
python-telegram-bot and aiogram, work with it in our tests. `TelegramProcess` runs it in a process of its own.
"""

from everturn.testing.telegram.people import Person, group, person, topic, upgrade
from everturn.testing.telegram.serving import TelegramServer
from everturn.testing.telegram.state import BOT_ID, TOKEN
from everturn.testing.telegram.telegram import BotFault, Telegram, TelegramProcess

__all__ = [
    "BOT_ID",
    "TOKEN",
    "BotFault",
    "Person",
    "Telegram",
    "TelegramProcess",
    "TelegramServer",
    "group",
    "person",
    "topic",
    "upgrade",
]
