"""People under whom gateways die: each writes without waiting, repeats itself, and watches one chat over every restart.

Nobody knows of a kill but by the connection that breaks. What they saw is a `Watched` for the history checker.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random

from tests.crash.gateways import CUT_OFF, Gateway
from tests.history import Post, Seen, Watched
from tests.waiting import WAIT_S, Changes, within

OUTSTANDING = 6  # messages a person leaves unanswered before they wait
AGAIN_S = 0.05
FINISH_S = 4 * WAIT_S  # everybody's last answer, after several starts


class People:
    """Some chats, all writing at once: for as long as they may, or what the script says. `tools`: they ask for work, too."""

    def __init__(
        self, gateway: Gateway, random: Random, chats: int = 12, script: Sequence[str] = (), *, tools: bool = True
    ) -> None:
        self.gateway = gateway
        self.script = script
        self.tools = tools
        self.watched = Watched()
        self.changes = Changes(lambda: [person.where() for person in self._people if not person.content()])
        self.closing = False
        self.happened = 0  # acknowledgements and events, of everybody
        self._moments = itertools.count(1)
        self._people = [Person(self, f"chat-{number}", Random(random.random())) for number in range(chats)]
        self._watching: list[asyncio.Task[None]] = []
        self._writing: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write and watch; in the end stop writing, and wait until everybody has their answers."""
        self._watching = [asyncio.create_task(person.watch()) for person in self._people]
        self._writing = [asyncio.create_task(person.write()) for person in self._people]
        try:
            yield
            await self._finish()
        finally:
            for task in (*self._watching, *self._writing):
                task.cancel()
            await asyncio.gather(*self._watching, *self._writing, return_exceptions=True)

    async def look_back(self) -> Watched:
        """Everything that was seen, with what the gateway says of it in the end: it must be running."""
        for person in self._people:
            self.watched.kept[person.chat] = await person.kept()
            self.watched.transcripts[person.chat] = list(await self.gateway.transcript(person.chat))
        self.watched.ledger = self.gateway.ledger()
        return self.watched

    async def repeat_everything(self) -> None:
        """Post every message of everybody once more."""
        for person in self._people:
            await asyncio.gather(*(person.post(each) for each in person.posts))

    async def content(self) -> None:
        """Wait until everybody has said what they had to say and has the answers."""
        await asyncio.gather(*map(asyncio.shield, self._writing))
        await self.changes.until(lambda: all(person.content() for person in self._people), FINISH_S)

    async def refused(self) -> None:
        """Wait until somebody gets a 503: nothing can be stored now."""
        posts = self.watched.posts
        before = sum(post.answers.count(503) for post in posts.values())
        await self.changes.until(lambda: sum(post.answers.count(503) for post in posts.values()) > before)

    async def until_seen(self, more: int) -> None:
        """Wait until so much more was acknowledged or came as an event."""
        wanted = self.happened + more
        await self.changes.until(lambda: self.happened >= wanted)

    async def until_answered(self, replies: int) -> None:
        """Wait until so many more replies were seen."""
        wanted = self._replies() + replies
        await self.changes.until(lambda: self._replies() >= wanted, FINISH_S)

    def moment(self) -> int:
        """Now, as a number that never comes twice."""
        return next(self._moments)

    def _replies(self) -> int:
        return sum(len(person.answered) for person in self._people)

    async def _finish(self) -> None:
        self.closing = True
        self.changes.changed()
        async with within(FINISH_S, lambda: [*(each.where() for each in self._people), self.gateway.output]):
            await self.content()


class Person:
    """One chat: who writes in it and who watches it."""

    def __init__(self, people: People, chat: str, random: Random) -> None:
        self._people = people
        self._gateway = people.gateway
        self._random = random
        self.chat = chat
        self.posts: list[Post] = []
        self.answered: set[str] = set()
        self._events: list[Seen] = []
        self._idle = True
        people.watched.events[chat] = self._events

    async def write(self) -> None:
        """Bursts of messages, as long as not too many are unanswered; some are posted again, at once or much later."""
        for text in self._people.script:
            await self._say(text)
        while not self._people.script and not self._people.closing:
            await asyncio.gather(*(self._say(self._text()) for _ in range(self._random.randint(1, 3))))
            if self._random.random() < 0.2:
                await self.post(self._random.choice(self.posts))
            await self._people.changes.until(
                lambda: self._people.closing or len(self.posts) - len(self.answered) < OUTSTANDING, FINISH_S
            )

    async def watch(self) -> None:
        """Read the chat's events for ever, each connection from where the last one broke."""
        while True:
            try:
                async with self._gateway.stream(self.chat, self._last()) as events:
                    async for event in events:
                        self._people.happened += 1
                        self._take(event)
                        self._people.changes.changed()
            except CUT_OFF:
                pass
            await self._gateway.changes.next(AGAIN_S)

    async def kept(self) -> list[Seen]:
        """What somebody gets who asks for everything now."""
        newest, found = self._last(), []
        async with self._gateway.stream(self.chat, 0) as events:
            async for event in events:
                found.append(event)
                if event.id >= newest:
                    break
        return [event for event in found if event.id]

    async def post(self, post: Post) -> None:
        """Post it until it is accepted: without an answer nobody knows whether it was."""
        while True:
            answer = await self._gateway.post(self.chat, post.id, post.text)
            if answer is not None:
                post.answers.append(answer.status)
                self._people.happened += 1
                self._people.changes.changed()
                if answer.status in {200, 202}:
                    post.acknowledged = post.acknowledged or self._people.moment()
                    return
                assert answer.status in {429, 503}, answer
            await self._gateway.changes.next(AGAIN_S)

    def content(self) -> bool:
        """Whether everything was acknowledged and answered, and the event of the last turn's end came."""
        silent = any(post.acknowledged is None for post in self.posts)
        return not silent and not self.open() and (not self._events or self._idle)

    def open(self) -> list[str]:
        """The messages without an answer."""
        return [post.id for post in self.posts if post.id not in self.answered]

    def where(self) -> str:
        """How far it got: what is not acknowledged, what is not answered, the last events."""
        silent = [post.id for post in self.posts if post.acknowledged is None]
        return f"{self.chat}: no acknowledgement of {silent}, no answer to {self.open()}, last {self._events[-4:]}"

    async def _say(self, text: str) -> None:
        post = Post(self.chat, f"m{len(self.posts)}", text, self._people.moment())
        self.posts.append(post)
        self._people.watched.posts[self.chat, post.id] = post
        await self.post(post)
        if self._random.random() < 0.1:
            await self.post(post)

    def _text(self) -> str:
        plain = f"words {len(self.posts)} of {self.chat}, ünïcödé ✓"
        work = ["work 3 0.01", f"work {self._random.randint(1, 4)} 0.05"] if self._people.tools else []
        return self._random.choice([plain, plain, *work])

    def _take(self, event: Seen) -> None:
        if event.id or event.kind == "gap":
            self._events.append(event)
            if event.kind == "reply":
                self.answered.add(str(event.data["to"]))
            if event.kind == "turn":
                self._idle = event.data["state"] == "answered"

    def _last(self) -> int:
        return max((event.id for event in self._events[-2:]), default=0)
