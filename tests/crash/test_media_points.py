"""Files survive a death at every point: what came is there with the same words, what goes out is delivered once, nobody is told twice."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everturn.agent.interface import Answer, TurnContext
from everturn.agent.toolbox import File
from everturn.model import Attachment, Effect, ToolCall
from everturn.testing import FakePlatform, FilePlatform, World
from tests.crash.lives import DIED, DONE, Death, Life, undisturbed
from tests.crash.processes import run_life
from tests.crash.test_points import ENGINES_BY_TURNS, Homes, hits_of, homes

__all__ = ["homes"]
PHOTO = Attachment(kind="image", ref="cat", name="cat.png")
GONE = Attachment(kind="document", ref="gone", name="gone.txt")
OWN = [("media.fetched", 1), ("media.settled", 1), ("media.copied", 1), ("message.owed", 1), ("send.after", 2)]
OTHERS = [("inbox.committed", 1), ("turn.begun", 1), ("turn.calling", 1), ("effect.committed", 1), ("send.before", 2)]
VISITED = {"sqlite": OWN, "postgres": OWN + OTHERS}  # the second one is for `make torture`


class Albums(FilePlatform):
    """What people sent is still there in the next life."""

    def __init__(self, **given: Any) -> None:
        super().__init__(contents={"cat": b"\x89PNG\r\n\x1a\n pixels"}, **given)


class Teller:
    """Sends a file of its own, then answers with the words it was given."""

    def __init__(self, _folder: Path) -> None:
        self.send: object = None
        self._world: asyncio.Future[World] = asyncio.get_running_loop().create_future()

    async def run(self, turn: TurnContext) -> Answer:
        await turn.calling()
        sending = (await self._world).gateway.sending

        async def send(call: ToolCall, _key: str) -> str:
            return str(await sending.send_file(turn, call.id, None, File("out.txt", b"bread"), "here"))

        if turn.attempt > 1:
            await turn.settle(send)
        if not any(row.role == "tool" for row in await turn.own()):
            await turn.step("", [ToolCall("c1", "send_file", effect=Effect.IDEMPOTENT)], send)
        return Answer(f"answer: {turn.words}")

    async def story(self, world: World, platform: FakePlatform) -> None:
        self._world.set_result(world)
        if not platform.said():
            platform.attach("one", "look", [PHOTO, GONE])
        await platform.until(lambda: any(text.startswith("answer:") for text in platform.texts("one")))
        await world.stop()


def seen_of(life: Life) -> list[str]:
    async def texts() -> list[str]:
        return Albums(file=life.folder / "platform").texts("one")

    return asyncio.run(texts())


@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ENGINES_BY_TURNS)
def test_files_survive_a_death_at_any_point(homes: Homes, engine: str) -> None:
    def fresh(death: Death | None) -> Life:
        made = homes.fresh("own", death)
        return Life("own", made.url, made.folder, death, agent=Teller, platform=Albums, settings=made.settings)

    first = fresh(None)
    hits = hits_of(first)
    wanted = seen_of(first)
    homes.forget(first)
    assert wanted[0].startswith("I did not get gone.txt (the file is gone)")
    assert "<out.txt> here" in wanted
    for point, hit in VISITED[engine]:
        assert hits[point] >= hit, point
        life = fresh(Death(point, hit))
        assert run_life(life) == DIED, point
        assert run_life(undisturbed(life)) == DONE, point
        assert sorted(seen_of(life)) == sorted(wanted), point
        assert len(list((life.folder / "files").iterdir())) == 2, point
        homes.forget(life)
