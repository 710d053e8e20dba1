"""Files that come with a message, and one that a tool sends, while the gateway dies at each point of it."""

import asyncio
from pathlib import Path
from typing import Any

from everturn.agent.interface import Answer, TurnContext
from everturn.agent.toolbox import ToolFile
from everturn.model import Attachment, Effect, ToolCall
from everturn.testing import FakePlatform, FilePlatform, World
from tests.crash.gateway_process import CrashProcess

PHOTO = Attachment(kind="image", ref="cat", name="cat.png")
GONE = Attachment(kind="document", ref="gone", name="gone.txt")


class Albums(FilePlatform):
    """A platform that still has what people sent in the next process."""

    def __init__(self, **given: Any) -> None:
        super().__init__(contents={"cat": b"\x89PNG\r\n\x1a\n pixels"}, **given)


class FileAgent:
    """Sends a file of its own, then answers with the text it was given."""

    def __init__(self, _folder: Path) -> None:
        self.send: object = None
        self._world: asyncio.Future[World] = asyncio.get_running_loop().create_future()

    async def run(self, turn: TurnContext) -> Answer:
        await turn.calling()
        sending = (await self._world).gateway.sending

        async def send(call: ToolCall, _key: str) -> str:
            return str(await sending.send_file(turn, call.id, None, ToolFile("out.txt", b"bread"), "here"))

        if turn.attempt > 1:
            await turn.settle(send)
        if not any(row.role == "tool" for row in await turn.own()):
            await turn.step("", [ToolCall("c1", "send_file", effect=Effect.IDEMPOTENT)], send)
        return Answer(f"answer: {turn.text}")

    async def scenario(self, world: World, platform: FakePlatform) -> None:
        self._world.set_result(world)
        if not platform.said():
            platform.attach("one", "look", [PHOTO, GONE])
        await platform.until(lambda: any(text.startswith("answer:") for text in platform.texts("one")))
        await world.stop()


WANTED = [
    "I did not get gone.txt (the file is gone). I answer without it.",
    "<out.txt> here",
    "answer: look\n\n[image: cat.png, image/png, 15 bytes, /files/FtD49ixSHrVuixtFR97kRm/cat.png]\n\n[document gone.txt did not arrive: the file is gone]",
]


def delivered_once(process: CrashProcess, at: object) -> None:
    """What came is there with the same text, what goes out is delivered once, and the sender gets one notice of what is missing."""
    assert sorted(asyncio.run(screen_of(process))) == sorted(WANTED), at
    assert len(list((process.folder / "files").iterdir())) == 2, at


async def screen_of(process: CrashProcess) -> list[str]:
    return Albums(file=process.folder / "platform").texts("one")
