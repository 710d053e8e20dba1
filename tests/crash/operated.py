"""An operator who acts while the gateway dies between the commit and the loops that it wakes: each action is done once."""

from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from everturn.agent.interface import Answer, TurnContext
from everturn.model import SessionSource
from everturn.operator.rows.actions import Acted
from everturn.operator.rows.overview import messages
from everturn.operator.rules import operator_texts
from everturn.outbox.rows.outbox import end_unsent
from everturn.outbox.rows.replies import notify_key
from everturn.outbox.rules.delivery import Delivery
from everturn.store.interface import Op
from everturn.testing import FakePlatform, World, key_of
from tests.crash.gateway_process import CrashProcess, answer_to
from tests.scenes import until_read

LOST = "a reply that was not delivered"
REPLY = 5


class Operated:
    """Fails at the first message it ever sees; in its scenario an operator repeats each action after every death."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.send: object = None

    async def run(self, turn: TurnContext) -> Answer:
        """Answer, but fail the first time."""
        await turn.calling()
        await self._once("failed", self._fail)
        return Answer(answer_to(turn.text))

    async def scenario(self, world: World, platform: FakePlatform) -> None:
        """A message is run again, a reply sent again, a conversation suspended and resumed; then it goes on."""
        key = key_of(platform, "one")
        platform.say_once("one", "hello")
        message = await self._once("message", lambda: _dead_letter(world))
        await _act(world, "message", "run", message)
        await platform.until(lambda: answer_to("hello") in platform.texts("one"))
        await self._once("reply", lambda: _dead_reply(world, key))
        await _act(world, "reply", "send", str(REPLY))
        await platform.until(lambda: LOST in platform.texts("one"))
        await _act(world, "session", "suspend", key)
        await _act(world, "session", "resume", key)
        platform.say_once("one", "after")
        await platform.until(lambda: answer_to("after") in platform.texts("one"))
        await platform.until(lambda: operator_texts.TELL_RESUMED in platform.texts("one"))
        await world.stop()

    async def _fail(self) -> str:
        (self._folder / "failed").write_text("yes")
        raise RuntimeError("the model is not there")

    async def _once(self, name: str, find: Callable[[], Awaitable[str]]) -> str:
        """What an earlier process found, or find it now; the operator's own memory outlives the gateway."""
        file = self._folder / name
        if not file.exists():
            file.write_text(await find())
        return file.read_text()


async def _dead_letter(world: World) -> str:
    found = await until_read(lambda: world.store.read(messages, "dead", 0, 9), bool)
    return str(found[0]["id"])


async def _dead_reply(world: World, key: str) -> str:
    to, now = SessionSource(platform="fake", chat_id="one", user_id="ann"), world.clock.now()
    await world.store.run(lose, key, to, now)
    return str(REPLY)


def lose(key: str, to: SessionSource, now: float) -> Op[None]:
    """Queue a reply and make it a dead letter, in one commit: the lane of this chat may be looking for its next reply."""
    yield from notify_key(key, REPLY, to, LOST, "test", now, Delivery(by_event=False))
    yield from end_unsent(REPLY, now, "refused")


async def _act(world: World, what: str, action: str, target: str) -> None:
    done = await world.gateway.operator.act(what, action, target, f"{what} {action}", "owner")
    assert isinstance(done, Acted), done


SETTLED = (answer_to("hello"), LOST, operator_texts.TELL_SUSPENDED, operator_texts.TELL_RESUMED, answer_to("after"))


def seen_once(process: CrashProcess, at: object) -> None:
    """Check that the next process finds the rows; the operator, who got no answer, repeats the action with the same id."""
    seen = Counter(FakePlatform(file=process.folder / "platform").texts("one"))
    assert [seen[text] for text in SETTLED] == [1] * len(SETTLED), (at, seen)
