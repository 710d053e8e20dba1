"""The settings of agents: several of them, what differs by platform and chat, routes; every mistake is named."""

from pathlib import Path

import pytest

from everturn.errors import ConfigError
from everturn.settings import RouteConfig
from everturn.settings.config import AgentConfig, Loaded, read_config


def read(home: Path, text: str, **env: str) -> Loaded:
    (home / "everturn.toml").write_text(text, encoding="utf-8")
    return read_config(home, None, env, {})


def error(home: Path, text: str, **env: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(home, text, **env)
    return str(caught.value)


def test_an_agent_takes_texts_numbers_and_lists(tmp_path: Path) -> None:
    text = '[agent]\nkind = "llm"\nmodel = "openai:big"\nfallback = ["openai:small", "anthropic:other"]\nmax_steps = 3'
    agent = read(tmp_path, text).config.agent
    assert (agent.kind, agent.model, agent.max_steps) == ("llm", "openai:big", 3)
    assert agent.fallback == ("openai:small", "anthropic:other")


def test_named_agents_take_the_same_settings_and_start_from_the_defaults(tmp_path: Path) -> None:
    text = '[agent]\nmodel = "openai:a"\n[agents.coder]\nmodel = "openai:b"\n[agents.empty]\n'
    agents = read(tmp_path, text).config.agents
    assert agents == {"coder": AgentConfig(model="openai:b"), "empty": AgentConfig()}


def test_a_chat_goes_before_its_platform_goes_before_the_agent(tmp_path: Path) -> None:
    text = """
        [agent]
        model = "openai:a"
        max_steps = 1
        instructions = "all"
        [agent.platform.telegram]
        model = "openai:b"
        max_steps = 2
        [agent.chat."telegram:-100:5"]
        model = "openai:c"
    """
    agent = read(tmp_path, text).config.agent
    assert (agent.at("api", "-100:5").model, agent.at("api", "-100:5").max_steps) == ("openai:a", 1)
    assert (agent.at("telegram", "7").model, agent.at("telegram", None).max_steps) == ("openai:b", 2)
    here = agent.at("telegram", "thread", "-100:5")
    assert (here.model, here.max_steps, here.instructions) == ("openai:c", 2, "all")


def test_a_named_agent_may_differ_by_platform_too(tmp_path: Path) -> None:
    text = '[agents.coder]\nmodel = "openai:a"\n[agents.coder.platform.api]\nmodel = "openai:b"\n'
    assert read(tmp_path, text).config.agents["coder"].at("api").model == "openai:b"


def test_routes_are_kept_in_order(tmp_path: Path) -> None:
    text = '[agents.a]\n[[routes]]\nplatform = "x"\nagent = "a"\n[[routes]]\nperson = "7"\nagent = "main"\n'
    first, second = read(tmp_path, text).config.routes
    assert first == RouteConfig(agent="a", platform="x")
    assert second == RouteConfig(agent="main", person="7")


def test_agents_can_come_from_the_environment(tmp_path: Path) -> None:
    loaded = read(
        tmp_path,
        "[agents.my_coder]\n",
        EVERTURN_AGENTS_MY_CODER_MAX_OUTPUT_TOKENS="9",
        EVERTURN_AGENT_PLATFORM_MY_CHAT_MODEL="openai:x",
    )
    assert loaded.config.agents["my_coder"].max_output_tokens == 9
    assert loaded.config.agent.at("my_chat").model == "openai:x"
    assert not loaded.warnings


def test_a_list_is_not_taken_from_the_environment_and_says_so(tmp_path: Path) -> None:
    (warning,) = read(tmp_path, "", EVERTURN_AGENT_FALLBACK="openai:x").warnings
    assert "agent.fallback is a list and can be set in the file only" in warning


ROUTES = '[agents.coder]\n[[routes]]\nplatform = "x"\nagent = "coder"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[routes]]\nagent = "codr"\n[agents.coder]\n', 'routes.1.agent is "codr", an unknown agent; the nearest'),
        ('[[routes]]\nagent = "codr"\n[agents.coder]\n', '"coder"'),
        ('[[routes]]\nplatform = "x"\n', "routes.1.agent is missing"),
        (f'{ROUTES}[[routes]]\nagent = "main"\nplatform = "x"\n', "routes.2 is for the same place as routes.1"),
        ('[[routes]]\nagnt = "main"\n', "unknown setting routes.1.agnt; the nearest known one is routes.1.agent"),
        ('[routes]\nagent = "main"\n', "write [[routes]]"),
        ("routes = 1\n", "write [[routes]]"),
        ("routes = [1]\n", "it is a table"),
        ("[agents.main]\n", 'the agent "main" is that of [agent]'),
        ("[agents.Coder]\n", "small letters"),
        ("agents = 1", "it is a table"),
        ("[agents.a]\nmodle = 1\n", "unknown setting agents.a.modle; the nearest known one is agents.a.model"),
        ("[agent.platform.api]\nmax_step = 1\n", "the nearest known one is agent.platform.api.max_steps"),
        ("[agent.platform.api]\nkind = 'demo'\n", "unknown setting agent.platform.api.kind"),
        ('[agent.chat.api]\nmodel = "openai:x"\n', 'a chat is written "PLATFORM:CHAT"'),
        ('[agent]\nkind = "llm"\n', 'agent.kind is "llm", which needs agent.model'),
        ('[agents.a]\nkind = "process"\n', 'agents.a.kind is "process", which needs agents.a.command'),
        ('[agent]\nfallback = "openai:x"\n', "but must be a list of models; it has the wrong type"),
        ("[agent]\nfallback = [1]\n", "each of its entries must be a text"),
        ('[agent]\nfallback = ["gpt"]\n', "the provider, a colon and the model's name"),
        ('[agent]\nmodel = "gpt"\n', '"PROVIDER:NAME"'),
        ('[agent]\nbase_url = "ftp://x"\n', "https://HOST"),
        ('[agent]\nobject = "thing"\n', '"MODULE:OBJECT"'),
    ],
)
def test_a_mistake_is_named_with_its_file_and_what_is_right(tmp_path: Path, text: str, said: str) -> None:
    told = error(tmp_path, text)
    assert said in told
    assert str(tmp_path / "everturn.toml") in told


def test_a_key_that_was_pasted_instead_of_its_variables_name_is_never_shown(tmp_path: Path) -> None:
    told = error(tmp_path, '[agent]\napi_key_env = "sk-very-secret"\n')
    assert "agent.api_key_env must be the name of an environment variable" in told
    assert "such as OPENAI_API_KEY; this looks like the key itself" in told
    assert "very-secret" not in told
    assert "very-secret" not in error(tmp_path, '[agent]\napi_key = "sk-very-secret"\n')


def test_urls_with_passwords_and_names_of_variables_are_not_shown(tmp_path: Path) -> None:
    loaded = read(tmp_path, '[agent]\nurl = "https://me:s3cret@host/"\napi_key_env = "THE_KEY"\n')
    told = repr(loaded) + str(list(loaded.entries()))
    assert "s3cret" not in told
    assert "THE_KEY" not in told
    assert loaded.config.agent.api_key_env == "THE_KEY"
