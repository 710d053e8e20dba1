"""What people and operators of a simulated run do, and what they were told."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from random import Random
from typing import TYPE_CHECKING, Any

from everturn.model import Heard, Inbound, SessionSource
from tests.sim.loop import wake
from tests.sim.plan import Said
from tests.sim.platforms import ReadablePlatform

if TYPE_CHECKING:
    from tests.sim.world import SimProcess, SimWorld

PRESSED = 1000  # what people answer to approval requests has numbers above this
REQUEST = re.compile(r"/approve (\d+)\b")
OVERTAKEN = 0.1  # this share of what people say is not waited for by what they say next
RETRY_S = 15.0  # after this time a webhook is posted again


class People:
    """Brings what people say to the gateway, as the plan has it."""

    def __init__(self, world: SimWorld, chance: Random) -> None:
        self.taken: dict[int, float] = {}  # what the gateway has said it received, and when
        self.revoked: dict[str, float] = {}  # the chats whose person was revoked, and when that was confirmed
        self.approved: dict[str, set[str]] = {}  # by chat, the approval requests that its person allowed
        self._world = world
        self._loop = world.loop
        self._chance = chance
        self._pressed = PRESSED

    async def revoke(self, chat: str) -> None:
        """An operator revokes the person of a chat; whoever answers, it is asked until one does."""
        while chat not in self.revoked:
            living = [
                each for each in self._world.places if each.accepts and not each.dead and each.gateway is not None
            ]
            if living:
                process = self._chance.choice(living)
                people = process.gateway.people if process.gateway is not None else None
                if people is not None:
                    revoking = people.revoke(self._world.plan.homes[chat], f"person-{chat}")
                    if await self._answered(process, revoking):
                        self.revoked[chat] = self._loop.at
            await self._world.wait(-1.3, 0)

    async def talk(self, chat: str) -> None:
        """A person says what the plan has for this chat. Now and then something is overtaken on its way."""
        on_their_way = []
        for said in self._world.plan.said:
            if said.chat == chat:
                await self._world.until(said.at)
                self._world.trace("SAID", said)
                on_their_way.append(self._loop.create_task(self.bring(said)))
                if self._chance.random() > OVERTAKEN:
                    await on_their_way[-1]
        await asyncio.gather(*on_their_way)

    def asked(self, chat: str, text: str) -> None:
        """An approval request is on the screen of a chat: its person allows it, or not, or lets it be, now or later, once or twice."""
        found = REQUEST.search(text)
        roll = self._chance.random()
        if found is None or roll > 0.8:
            return
        answer = f"/approve {found[1]}" if roll < 0.6 else f"/deny {found[1]}"
        if roll < 0.6:
            self.approved.setdefault(chat, set()).add(found[1])
        for _ in range(1 + (self._chance.random() < 0.2)):
            self._pressed += 1
            said = Said(self._pressed, 0.0, chat, answer)
            self._world.after(10 ** self._chance.uniform(-0.5, 1.4), self._press, said)

    def _press(self, said: Said) -> None:
        self._world.trace("SAID", said)
        self._loop.create_task(self.bring(said))

    async def bring(self, said: Said) -> None:
        """The platform brings it until it is told that it was received."""
        inbound = inbound_of(said, self._world.plan.homes[said.chat])
        platform = self._world.platforms[self._world.plan.homes[said.chat]]
        if isinstance(platform, ReadablePlatform):
            platform.post(inbound)
            return
        while not await self._post(inbound):
            await self._world.wait(-1.3, 0)
        self.taken[said.number] = self._loop.at
        if self._chance.random() < 0.15:
            self._world.after(self._chance.uniform(0, 9), self._post_again, inbound)

    def _post_again(self, inbound: Inbound) -> None:
        self._loop.create_task(self._post(inbound))

    async def _post(self, inbound: Inbound) -> bool:
        """Post a webhook to some instance; True when it was answered."""
        living = [process for process in self._world.places if process.accepts and not process.dead]
        if not living:
            return False
        process = self._chance.choice(living)
        return process.gateway is not None and await self._answered(process, process.gateway.intake.take(inbound))

    async def _answered(self, process: SimProcess, work: Coroutine[Any, Any, object]) -> bool:
        """Let a process do something that was requested of it; True when it says that it is done."""
        working = self._loop.create_task(work, context=process.context.copy())
        limit: asyncio.Future[None] = self._loop.create_future()
        self._loop.call_later(RETRY_S, wake, limit)
        any_of: list[asyncio.Future[Any]] = [working, process.died, limit]
        await asyncio.wait(any_of, return_when=asyncio.FIRST_COMPLETED)
        return working.done() and not process.dead and not working.cancelled() and working.exception() is None


def inbound_of(said: Said, platform: str) -> Inbound:
    """What the platform brings."""
    number = f"{said.number}@{said.chat}"
    source = SessionSource(platform=platform, chat_id=said.chat, user_id=f"person-{said.chat}", message_id=number)
    what = Heard.SAID if said.of is None else Heard.EDITED if said.text else Heard.DELETED
    of = None if said.of is None else f"{said.of}@{said.chat}"
    return Inbound(id=number, source=source, text=said.text, what=what, of=of)
