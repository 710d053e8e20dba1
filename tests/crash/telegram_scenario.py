"""People who write to a bot, a Telegram with faults, and a gateway that is killed again and again; and what people then see."""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from everturn.testing.model import ModelServer, ScriptedModel
from everturn.testing.telegram import Person, Telegram, TelegramServer, person
from tests.crash.gateways import Gateway
from tests.crash.paced import GROWING, PACE_S, asking, growing_text
from tests.crash.screens import Found, found, is_whole
from tests.crash.telegrams import telegram_gateway
from tests.waiting import PATIENCE, WAIT_S

PEOPLE = 4
FINISH_S = 12 * WAIT_S  # longer than the longest pause before a retry
ROUND = 6  # after so many processes no faults for a while: one reply must not meet as many as make a dead letter
MOMENT_S = 0.3 * PATIENCE  # at the most, for the calls that a gateway makes before it dies
PROCESS_S = 3.0 * PATIENCE
ACTIVE = 0.5  # so many of the processes say something; the others die whenever it may be
SHOWN = (1, 1, 2, 4, 8)  # how much they say: the first text, or also some edits of it
CHANGES = {"sendMessage", "editMessageText"}
UNKNOWN = {"server", "reset"}  # after these nobody can know whether a message was sent
FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "flood", "method": "sendMessage"},
    {"kind": "flood", "method": "getUpdates"},
    {"kind": "flood", "method": "editMessageText"},
    {"kind": "server", "method": "sendMessage", "accepted": True},
    {"kind": "server", "method": "sendMessage"},
    {"kind": "server", "method": "getUpdates"},
    {"kind": "server", "method": "editMessageText"},
    {"kind": "reset", "method": "sendMessage", "accepted": True},
    {"kind": "reset", "method": "getUpdates"},
    {"kind": "reset", "method": "editMessageText", "accepted": True},
    {"kind": "slow", "method": "sendMessage", "seconds": 0.3},
    {"kind": "slow", "method": "editMessageText", "seconds": 0.3},
)
# A token that is refused, and then is not: a rare one, because each is waited for a minute.
REVOKED: tuple[dict[str, Any], ...] = tuple(
    {"kind": "error", "code": 401, "description": "Unauthorized", "method": method}
    for method in ("sendMessage", "getUpdates", "editMessageText")
)
OF_HOOKS: tuple[dict[str, Any], ...] = (
    *(each for each in FAULTS if each["method"] != "getUpdates"),
    {"kind": "flood", "method": "setWebhook"},
    {"kind": "server", "method": "setWebhook"},
    {"kind": "reset", "method": "setWebhook", "accepted": True},
)
PUBLIC = "https://bot.example.org"


@dataclass
class TelegramScenario:
    """People, faults and kills, and their outcome. `hooked`: Telegram calls a public address that outlives each process."""

    telegram: Telegram
    gateway: Gateway
    seed: int
    kinds: tuple[dict[str, Any], ...] = FAULTS
    hooked: bool = False
    asked: list[tuple[Person, str]] = field(default_factory=list)
    kills: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)

    def write(self) -> None:
        """Somebody says something that nobody said before."""
        who = person(self.telegram, f"P{self.random.randrange(PEOPLE)}")
        text = growing_text(len(self.asked))
        self.asked.append((who, text))
        who.says(text)

    def misbehave(self) -> None:
        """Something goes wrong with the next call of a kind; updates come again, or in the wrong order."""
        self.telegram.fail(**self.random.choice(self.kinds))
        self.telegram.queue.reorder = self.random.random() < 0.3
        self.bring_again(self.random.randrange(3))

    def bring_again(self, count: int) -> None:
        """The newest that are answered come once more. What is not answered may be lost, and must not be saved by this."""
        answered = {text for _, text in self.asked} - {text for _, text in self.unanswered()}
        state = self.telegram.state
        known = [each for each in state.confirmed if each.update.get("message", {}).get("text") in answered]
        state.again += known[len(known) - min(count, len(known)) :]
        self.telegram.queue.notify()

    async def die(self, kills: int) -> None:
        """Run and kill the gateway so often; the last process answers everybody."""
        for kill in range(kills):
            await self.ready()
            if kill and not kill % ROUND:
                await self.answered()
            await self.talk()
            await self.killed()
            self.write()
            await self.gateway.start()
        await self.ready()
        await self.answered()

    async def ready(self) -> None:
        """It listens; on another port than before."""
        await self.gateway.ready()
        self.telegram.webhook_urls[PUBLIC] = self.gateway.url or ""

    async def killed(self) -> None:
        """Kill it with whatever is being sent to it. Its port may be another program's soon."""
        self.gateway.kill()
        self.telegram.webhook_urls[PUBLIC] = ""
        await self.gateway.killed()
        self.kills += 1

    async def talk(self) -> None:
        """Let one process run. Some do not end before they said something, or some more."""
        enough = self.shown() + self.random.choice(SHOWN)
        for _ in range(4):
            self.write()
            self.misbehave()
            calls = len(self.telegram.calls) + self.random.randint(0, 6)
            with suppress(TimeoutError):  # it may have nothing to call for
                await self.telegram.until(lambda calls=calls: len(self.telegram.calls) >= calls, MOMENT_S)  # type: ignore[misc]
        if self.random.random() < ACTIVE:
            with suppress(TimeoutError):
                await self.telegram.until(lambda: self.shown() >= enough, PROCESS_S)

    def shown(self) -> int:
        """How often the gateway sent or changed something."""
        return sum(each.method in CHANGES for each in self.telegram.calls)

    async def answered(self) -> None:
        """Wait until everybody is, whole and without a cursor, with nothing more going wrong."""
        self.telegram.faults.clear()
        try:
            await self.telegram.until(lambda: not self.unanswered(), FINISH_S)
        except TimeoutError:
            screens = {who.id: self.telegram.texts(who.id)[-3:] for who, _ in self.unanswered()}
            text = [text for _, text in self.unanswered()]
            raise AssertionError(f"no answer to {text}; {screens}\n{self.gateway.output}") from None

    def unanswered(self) -> list[tuple[Person, str]]:
        """The messages without a whole answer, and their senders."""
        return [each for each in self.asked if not is_whole(self.telegram.texts(each[0].id), f"answer to {each[1]}")]

    # -- what people see in the end ------------------------------------------------------------------------------------

    def screens(self) -> dict[int, Found]:
        """What is found in each chat."""
        answers: dict[int, list[str]] = {}
        for who, text in self.asked:
            answers.setdefault(who.id, []).append(f"answer to {text}")
        return {chat: found(self.telegram.texts(chat), each) for chat, each in answers.items()}

    def found(self) -> Found:
        """The same of all of them together."""
        return sum(self.screens().values(), Found())

    def marked_too_often(self) -> list[str]:
        """The chats with more marks than there is reason for: of each conversation one message at most is in flight at a death,
        and the delivery of one is unknown after a fault that leaves it so.
        """
        unknown = Counter(
            int(each.given["chat_id"])
            for each in self.telegram.calls
            if each.method == "sendMessage" and each.fault in UNKNOWN
        )
        return [
            f"{chat}: {each.marked} marks, {self.kills} kills, {unknown[chat]} unknown sends: {self.telegram.texts(chat)}"
            for chat, each in self.screens().items()
            if each.marked > self.kills + unknown[chat]
        ]

    def grew(self) -> int:
        """How many edits of their answers people saw, at the least."""
        edits = [each.given for each in self.telegram.calls if each.method == "editMessageText" and not each.fault]
        return len({(each["chat_id"], each["message_id"], each["text"]) for each in edits})

    def met(self) -> Counter[str]:
        """The faults that the gateway really met."""
        return Counter(each.fault for each in self.telegram.calls if each.fault)

    def totals(self, engine: str) -> str:
        """The run in numbers."""
        seen, met = self.found(), self.met()
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(met.items()))
        return (
            f"telegram{' by webhook' if self.hooked else ''} on {engine}: {self.kills} kills, {met.total()} faults met ({kinds}), {len(self.asked)}"
            f" messages, {self.grew()} edits of growing answers: {seen.lost} lost, {seen.doubled} doubled without a mark,"
            f" {seen.marked} repeated with a mark, {seen.left} messages left over"
        )

    def check(self) -> None:
        """Check: nothing lost, nothing doubled without a mark, nothing left over, and no more marked than there is reason for."""
        screens = {who.id: self.telegram.texts(who.id) for who, _ in self.asked}
        seen = self.found()
        assert (seen.lost, seen.doubled, seen.left) == (0, 0, 0), f"{screens}"
        assert not self.marked_too_often()


async def kill_telegram(
    folder: Path, url: str, kills: int, seed: int, kinds: tuple[dict[str, Any], ...] = FAULTS, *, hooked: bool = False
) -> str:
    """Kill a gateway so often while answers stream and Telegram misbehaves; the run in numbers. By webhook, what was not taken
    is sent again to the same address, and what was taken without our response is recognised.
    """
    hook = {"EVERTURN_PLATFORMS_TELEGRAM_WEBHOOK": "true", "EVERTURN_SERVER_PUBLIC_URL": PUBLIC} if hooked else {}
    async with TelegramServer() as server, ModelServer(ScriptedModel(pace_s=PACE_S)) as model:
        settings = {"EVERTURN_STORE_URL": url, **GROWING, **asking(model), **hook}
        scenario = TelegramScenario(server.telegram, telegram_gateway(folder, server, **settings), seed, kinds, hooked)
        async with scenario.gateway:
            await scenario.gateway.start()
            await scenario.die(kills)
            assert await scenario.gateway.stopped() == 0, scenario.gateway.output
    scenario.check()
    assert scenario.grew() > scenario.kills
    assert not hooked or (scenario.telegram.state.hook and scenario.telegram.queue.polls == 0)
    return scenario.totals(url.partition(":")[0])
