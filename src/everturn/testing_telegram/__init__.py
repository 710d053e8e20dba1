"""A Telegram for tests: a faithful Bot API on this machine, with people who can be scripted and faults on order.

    async with TelegramServer() as server:
        ann = person(server.telegram, "Ann")
        ann.says("hello")                              # the bot gets an update
        server.telegram.fail("flood", "sendMessage", retry_after=3)
        await server.telegram.until(lambda: server.telegram.texts(ann.id))

Every behaviour names the page of the documentation that it follows. Two client libraries that know nothing of it,
python-telegram-bot and aiogram, take it for the real one in our tests. `TelegramProcess` runs it apart.
"""

from everturn.testing_telegram.elsewhere import TelegramProcess
from everturn.testing_telegram.people import Person, group, person, topic, upgrade
from everturn.testing_telegram.serving import TelegramServer
from everturn.testing_telegram.state import BOT_ID, TOKEN
from everturn.testing_telegram.telegram import Fault, Telegram

__all__ = [
    "BOT_ID",
    "TOKEN",
    "Fault",
    "Person",
    "Telegram",
    "TelegramProcess",
    "TelegramServer",
    "group",
    "person",
    "topic",
    "upgrade",
]
