"""Ring two with a language model: real gateways killed by SIGKILL in the middle of streams and tools, every request read."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from everturn.inbox.rules import OUTCOME_UNKNOWN
from everturn.model import Message, ToolCall
from everturn.testing.model import LoggedRequest
from tests.crash.gateways import BREAKERS_OFF, Gateway
from tests.crash.load import FINISH_S, People, Person
from tests.crash.models import ModelProcess
from tests.history import Post
from tests.model_history import model_problems
from tests.promises import repeated

CHATS = 3
MOST_SEEN = 60
PACE_S = 0.01  # so that many kills fall into a stream


class ModelScenario:
    """A gateway with a language model, the people who talk to it one message at a time, and a seed that decides when it dies."""

    def __init__(self, folder: Path, url: str, model: ModelProcess, seed: int) -> None:
        self.random = Random(seed)
        self._ledger = folder / "effects"
        settings = {
            **BREAKERS_OFF, "EVERTURN_STORE_URL": url, "EVERTURN_AGENT_KIND": "llm",
            "EVERTURN_AGENT_MODEL": "openai:scripted", "EVERTURN_AGENT_BASE_URL": model.base_url,
            "EVERTURN_TOOLS_SHELL_ENABLED": "true", "EVERTURN_TOOLS_SHELL_APPROVAL": "never",
            "EVERTURN_TOOLS_SHELL_FOLDER": str(folder),
        }  # fmt: skip
        self.gateway = Gateway(folder / "home", settings=settings)
        self.people = People(self.gateway, self.random, chats=0)
        self.talkers = [Person(self.people, f"chat-{number}", self.random) for number in range(CHATS)]
        self.killing = True
        self.requests = self.noted = 0
        self._model = model

    async def talk(self, person: Person) -> None:
        """Say something, wait for the answer, say more, until the kills are over."""
        while self.killing or not person.posts:
            number = len(person.posts) + 1
            text = self._text(f"in {person.chat}, number {number}")
            post = Post(person.chat, f"{person.chat}-{number}", text, self.people.moment())
            person.posts.append(post)
            await person.post(post)
            await self.people.changes.until(lambda: not person.open(), FINISH_S)

    def _text(self, where: str) -> str:
        """A plain message, or work whose effects leave a line each; each text is said only once."""
        calls = self.random.randint(0, 3)
        command = json.dumps({"command": f"echo '{where}, call #' >> {self._ledger.name}"})
        return f"repeat {calls} run_command {command}" if calls else f"tell me {where}"

    async def die(self, kills: int) -> None:
        """Kill the gateway so often, after some of what people see while answers stream."""
        for _ in range(kills):
            await self.gateway.ready()
            await self.people.until_seen(self.random.randint(0, MOST_SEEN))
            await self.gateway.killed()
            await self.gateway.start()
        await self.gateway.ready()
        self.killing = False

    async def found(self) -> list[str]:
        """Everything that is wrong in the end; the gateway must be running."""
        requests = self._model.news()
        self.requests, self.noted = len(requests), sum("[System note:" in seen.body for seen in requests)
        ledger = self._ledger.read_text().splitlines() if self._ledger.exists() else []
        found = repeated(ledger, "effect happened twice")
        for person in self.talkers:
            rows = [_message(line) for line in await self.gateway.transcript(person.chat)]
            found += missing_effects(ledger, rows)
            found += model_problems(of_chat(requests, person.chat), rows)
            found += wrong_answers(person, self.people.watched.replies(person.chat), rows)
        return found


def of_chat(requests: Sequence[LoggedRequest], chat: str) -> list[LoggedRequest]:
    """The requests of one chat: its name is in all that is said there."""
    return [seen for seen in requests if f"in {chat}, number 1" in seen.body]


def missing_effects(ledger: Sequence[str], rows: Sequence[Message]) -> list[str]:
    """Promise 5: of the calls that were made only those whose outcome is unknown may not have happened."""
    known = {row.call_id for row in rows if row.role == "tool" and row.content != OUTCOME_UNKNOWN}
    commands = [json.loads(call.arguments)["command"] for row in rows for call in row.calls if call.id in known]
    return [f"did not happen: {command}" for command in commands if command.split("'")[1] not in ledger]


def wrong_answers(person: Person, replies: dict[str, str], rows: Sequence[Message]) -> list[str]:
    """Check that everybody is answered once, with the right text, and the transcript agrees."""
    wanted = {post.id: f"answer to {post.text}" for post in person.posts}
    found = [] if replies == wanted else [f"{person.chat}: {replies}, wanted {wanted}"]
    said = [row.content for row in rows if row.role == "user"]
    answered = [row.content for row in rows if row.role == "assistant" and not row.calls]
    if said != [post.text for post in person.posts] or answered != list(wanted.values()):
        found.append(f"{person.chat}: the transcript says {said} and {answered}")
    return found


def _message(line: dict[str, Any]) -> Message:
    calls = tuple(ToolCall(each["id"], each["name"], each["arguments"]) for each in line["tool_calls"])
    return Message(role=line["role"], content=line["content"], calls=calls, call_id=line["tool_call_id"])


async def kill_model_turns(folder: Path, url: str, kills: int, seed: int) -> str:
    """Check promises 1 to 7 for everybody who talks to a model while the gateway dies."""
    with ModelProcess(folder, PACE_S) as model:
        scenario = ModelScenario(folder, url, model, seed)
        async with scenario.gateway:
            await scenario.gateway.up()
            watching = [asyncio.create_task(person.watch()) for person in scenario.talkers]
            talking = [asyncio.create_task(scenario.talk(person)) for person in scenario.talkers]
            try:
                await scenario.die(kills)
                await asyncio.gather(*talking)
                found = await scenario.found()
            finally:
                for task in (*watching, *talking):
                    task.cancel()
                await asyncio.gather(*watching, *talking, return_exceptions=True)
            assert await scenario.gateway.stopped() == 0, scenario.gateway.output
    summary = f"{kills} kills, {scenario.requests} requests, {scenario.noted} of them after an interruption"
    assert not found, "\n".join([summary, *found])
    return f"model on {url.partition(':')[0]}: {summary}"
