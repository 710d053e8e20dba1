"""The cost of a turn above `pydantic-ai` alone with the same model: in process, and over HTTP; alone, and 64 at once."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from bench.disk import folder
from bench.model_server import llm_settings, model_server
from bench.report import Line, at_most, say, shown
from bench.rounds import block, cpu_us, in_turn, median_ratio, rate
from bench.running import Running
from bench.scripted_model import INSTRUCTIONS, PROMPT, Alone, Bare, Looking, ScriptedAnswers, chats
from everturn.agent.llm.agent import LlmAgent
from everturn.agent.llm.library import LibraryModel
from everturn.agent.llm.providers import AgentModels
from everturn.agent.llm.settings import LlmSettings

METHOD = (
    "a turn is a response with one call, its result, and an answer, all streamed, with the same scripted model; pydantic-ai: its "
    "`Agent.run` with the conversation in memory; bare: its model requests with nothing around them; ours: the gateway's whole "
    "path, every step committed, over HTTP with our own client (SQLite, synchronous=FULL); fresh conversations every five turns; blocks of a second in turn, "
    "ratio of neighbours (their rate / ours), median"
)
SESSIONS = 64
ROUNDS = 5
BLOCK_S = 1.0


class Scripted(AgentModels):
    """Gives the scripted model of this process by whatever name."""

    def get(self, name: str) -> LibraryModel:  # noqa: ARG002
        """The one there is."""
        return LibraryModel(ScriptedAnswers(), {})


async def measure() -> list[Line]:
    """In process first, then over HTTP."""
    with folder() as path:
        settings = LlmSettings(model="scripted:model", instructions=INSTRUCTIONS)
        inside = LlmAgent(settings, [Looking()], models=Scripted(settings))
        lines = await _measured(path / "in-process.db", inside, ScriptedAnswers(), "in process")
        with model_server(path) as base_url:
            settings = llm_settings(base_url, INSTRUCTIONS)
            provider = OpenAIProvider(base_url=base_url, api_key="no-key-needed")
            model = OpenAIChatModel("scripted", provider=provider)
            lines += await _measured(path / "http.db", LlmAgent(settings, [Looking()]), model, "over HTTP")
    return lines


async def _measured(database: Path, agent: LlmAgent, model: Model[Any], how: str) -> list[Line]:
    ours = await Running.open(f"sqlite:///{database}", api=True, agent=agent)
    ours.text = PROMPT
    alone, bare = Alone(model), Bare(model)
    try:
        return [line for many in (1, SESSIONS) for line in await _compared(ours, alone, bare, many, how)]
    finally:
        await ours.close()
        await agent.close()


async def _compared(ours: Running, alone: Alone, bare: Bare, sessions: int, how: str) -> list[Line]:
    where = f"{how}, alone" if sessions == 1 else f"{how}, {sessions} at once"
    sides = {
        "pydantic-ai": partial(block, alone.turn, sessions, BLOCK_S),
        "everturn": partial(ours.measure, chats(f"{sessions}"), sessions, BLOCK_S),
        "bare": partial(block, bare.turn, sessions, BLOCK_S),
    }
    samples = await in_turn(sides, ROUNDS)
    for name, each in samples.items():
        say(f"  {where}: {name:12} {shown(rate(each)):>6} turns/s, {cpu_us(each):6.0f} us of processor time")
    theirs, least, own = samples["pydantic-ai"], samples["bare"], samples["everturn"]
    return [
        Line(name=f"a turn, everturn / pydantic-ai, {where}", value=median_ratio(theirs, own), target=at_most(1.5)),
        Line(name=f"a turn, everturn / bare requests, {where}", value=median_ratio(least, own)),
    ]
