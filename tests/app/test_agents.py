"""The composition of agents: which agent answers which key, what differs by chat, and what is wrong with their settings."""

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from everturn.agent.cache import Cache, CacheLimits
from everturn.app.agents import AgentParts, Agents, kind_of
from everturn.app.gateway_settings import settings_of
from everturn.clock import SystemClock
from everturn.errors import ConfigError
from everturn.settings.config import AgentConfig, Config, read_config
from everturn.testing import FakePlatform, World
from everturn.testing.model import ModelServer, ScriptedModel

ECHO = """
import json, sys
for line in sys.stdin:
    what = json.loads(line)
    text = f"{what['instructions']} to {what['text']}, seen {len(what['history'])}"
    print(json.dumps({"type": "answer", "text": text}), flush=True)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "echo.py").write_text(ECHO)
    return tmp_path


def settings(home: Path, text: str) -> Config:
    program = f'kind = "process"\ncommand = ["{sys.executable}", "echo.py"]'
    (home / "everturn.toml").write_text(text.replace("ECHO", program))
    return read_config(home, None, {}, {}).config


def given(home: Path, env: Mapping[str, str] | None = None) -> AgentParts:
    return AgentParts(home=home, env=env or {}, clock=SystemClock())


@asynccontextmanager
async def running(url: str, home: Path, text: str) -> AsyncIterator[FakePlatform]:
    """A gateway with these settings."""
    config, platform = settings(home, text), FakePlatform()
    agents = Agents(config, given(home))
    await agents.open()
    async with World(url, agents, [platform], settings=settings_of(config)):
        yield platform
    await agents.close()


async def ask(platform: FakePlatform, chat: str, text: str, **about: str) -> str:
    before = len(platform.screen)
    platform.say(chat, text, text, **about)
    await platform.until(lambda: len(platform.screen) > before)
    return platform.screen[-1].text


ROUTED = """
[agent]
ECHO
instructions = "main"
[agents.coder]
ECHO
instructions = "coder"
[[routes]]
chat = "code"
agent = "coder"
[[routes]]
person = "bob"
agent = "coder"
"""


async def test_each_agent_has_conversations_of_its_own(store_url: str, home: Path) -> None:
    async with running(store_url, home, ROUTED) as platform:
        assert await ask(platform, "code", "a") == "coder to a, seen 0"
        assert await ask(platform, "talk", "b") == "main to b, seen 0"
        assert await ask(platform, "talk", "c", user_id="bob") == "coder to c, seen 0"
        assert await ask(platform, "talk", "d") == "main to d, seen 2"
        assert await ask(platform, "code", "e") == "coder to e, seen 2"


async def test_adding_an_agent_leaves_conversations_where_they_were(store_url: str, home: Path) -> None:
    async with running(store_url, home, '[agent]\nECHO\ninstructions = "main"\n') as platform:
        await ask(platform, "talk", "a")
    async with running(store_url, home, ROUTED) as platform:
        assert await ask(platform, "talk", "b") == "main to b, seen 2"


async def test_a_turn_whose_agent_is_gone_says_so(store_url: str, home: Path) -> None:
    only_main = "[agent]\nECHO\n"
    config, platform = settings(home, ROUTED), FakePlatform()
    agents = Agents(settings(home, only_main), given(home))
    await agents.open()
    async with World(store_url, agents, [platform], settings=settings_of(config)):
        said = await ask(platform, "code", "a")
    await agents.close()
    assert "belongs to the agent 'coder', which is no longer in the settings (there: main)" in said


async def test_a_platform_and_a_chat_may_have_other_instructions(store_url: str, home: Path) -> None:
    text = """
        [agent]
        ECHO
        instructions = "plain"
        [agent.platform.fake]
        instructions = "fake"
        [agent.chat."fake:special"]
        instructions = "special"
    """
    async with running(store_url, home, text) as platform:
        assert await ask(platform, "talk", "a") == "fake to a, seen 0"
        assert await ask(platform, "special", "b") == "special to b, seen 0"


async def test_instructions_may_stand_in_a_file_of_the_home(store_url: str, home: Path) -> None:
    (home / "task.md").write_text("in a file\n")
    text = '[agent]\nECHO\ninstructions = "here"\ninstructions_file = "task.md"\n'
    async with running(store_url, home, text) as platform:
        assert await ask(platform, "talk", "a") == "here\n\nin a file to a, seen 0"


KEYED = '[agent]\nmodel = "openai:x"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (KEYED, "the environment variable OPENAI_API_KEY is not set, but the agent of [agent] needs the key in it"),
        (f'{KEYED}api_key_env = "MY_KEY"\n', "the environment variable MY_KEY is not set"),
        (f'[agents.a]\n{KEYED[8:]}api_key_env = "MY_KEY"\n', "agents.a.api_key_env"),
        (f'[agent]\nkind = "demo"\n[agent.platform.api]\n[agents.b]\n{KEYED[8:]}', "the agent of [agents.b]"),
        ('[agent]\nurl = "https://x/"\napi_key_env = "MY_KEY"\n', "MY_KEY is not set"),
        ('[agent]\nECHO\ninstructions_file = "no.md"\n', "no.md cannot be read: No such file"),
        ('[agent]\nobject = "no_such_module:x"\n', "agent.object: no_such_module:x cannot be loaded"),
        ('[agent]\nmodel = "nobody:x"\n', "nobody:x"),
    ],
)
async def test_what_an_agent_lacks_is_found_at_the_start(home: Path, text: str, said: str) -> None:
    agents = Agents(settings(home, text), given(home, {"OTHER": "s3cret"}))
    with pytest.raises(ConfigError) as caught:
        await agents.open()
    await agents.close()
    assert said in str(caught.value)


MODEL = '[agent]\nmodel = "openai:gpt-5-mini"\napi_key_env = "KEY"\n'


@pytest.mark.parametrize("limit", ["turn_cost", "person_cost_day", "total_cost_day"])
async def test_a_limit_in_money_needs_the_prices(home: Path, limit: str) -> None:
    config = settings(home, f"{MODEL}[spending]\n{limit} = 1.5\n")
    without = replace(given(home, {"KEY": "sk-123456789"}), installed=lambda _: None)
    with pytest.raises(ConfigError, match=rf"spending.{limit} is an amount of money, .* install everturn\[prices\]"):
        await Agents(config, without).open()
    agents = Agents(config, given(home, {"KEY": "sk-123456789"}))
    await agents.open()
    await agents.close()


async def test_a_limit_in_tokens_needs_no_prices(home: Path) -> None:
    config = settings(home, f"{MODEL}[spending]\nturn_tokens = 1000\n")
    agents = Agents(config, replace(given(home, {"KEY": "sk-123456789"}), installed=lambda _: None))
    await agents.open()
    await agents.close()


async def test_a_key_that_is_there_is_taken_and_never_shown(home: Path) -> None:
    agents = Agents(settings(home, KEYED), given(home, {"OPENAI_API_KEY": "s3cret"}))
    await agents.open()
    await agents.close()


async def test_the_model_that_a_session_chose_is_its_own_and_kept_in_the_cache(store_url: str, home: Path) -> None:
    cache: Cache[Any] = Cache(CacheLimits(entries=1), SystemClock())
    async with ModelServer(ScriptedModel(key="k3y")) as server:
        config = settings(home, f'[agent]\nmodel = "openai:usual"\nbase_url = "{server.base_url}"\napi_key_env = "K"\n')
        platform, agents = FakePlatform(), Agents(config, replace(given(home, {"K": "k3y"}), cache=cache))
        await agents.open()
        async with World(store_url, agents, [platform], settings=settings_of(config)):
            for chat, text in (("a", "/model openai:other"), ("a", "one"), ("b", "two"), ("a", "three")):
                await ask(platform, chat, text)
            assert len(cache) == 1
            for text in ("/new", "four"):
                await ask(platform, "a", text)
        await agents.close()
        used = [seen.asked.body["model"] for seen in server.model.seen]
    assert used == ["other", "usual", "other", "usual"]
    assert len(cache) == 0


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (AgentConfig(), "local"),
        (AgentConfig(kind="demo", model="openai:x"), "demo"),
        (AgentConfig(model="openai:x"), "llm"),
        (AgentConfig(object="a:b"), "python"),
        (AgentConfig(command=("x",)), "process"),
        (AgentConfig(url="http://x"), "http"),
    ],
)
def test_auto_is_what_the_other_settings_name(config: AgentConfig, kind: str) -> None:
    assert kind_of(config, lambda: None) == kind
    assert kind_of(AgentConfig(), lambda: "xllamacpp") == "demo"
