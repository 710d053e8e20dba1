"""What a call used, what it costs where the price is known, and which settings go to which provider."""

import pytest
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage

from everturn.agent.llm.calls import usage_of
from everturn.agent.llm.providers import build_model, call_settings
from everturn.agent.llm.settings import LlmSettings
from everturn.errors import ConfigError
from everturn.store.interface import Op, sql
from tests.agent.llm.scenes import scene

USED = RequestUsage(input_tokens=1000, output_tokens=100, cache_read_tokens=400)


def test_a_known_model_has_a_price_and_an_unknown_one_has_none() -> None:
    known = usage_of(ModelResponse(parts=[], usage=USED, model_name="gpt-4o", provider_name="openai"))
    unknown = usage_of(ModelResponse(parts=[], usage=USED, model_name="no-such-model", provider_name="openai"))
    assert (known.requests, known.input_tokens, known.output_tokens, known.cached_tokens) == (1, 1000, 100, 400)
    assert known.cost is not None
    assert known.cost > 0
    assert unknown.cost is None


@pytest.mark.parametrize("name", ["gpt", ":x", "x:", "nobody:knows"])
def test_a_model_that_can_not_be_used_is_a_wrong_setting(name: str) -> None:
    with pytest.raises(ConfigError, match="model"):
        build_model(name, LlmSettings(model=name, api_key="sk-secret-123456"))


def test_a_settings_value_never_shows_its_key() -> None:
    assert "sk-secret" not in repr(LlmSettings(model="openai:x", api_key="sk-secret-123456"))


def test_caches_are_asked_for_where_the_provider_has_them() -> None:
    settings = LlmSettings(model="anthropic:x", max_output_tokens=5)
    assert call_settings("anthropic:x", settings, "s")["max_tokens"] == 5
    assert "anthropic_cache" in call_settings("anthropic:x", settings, "s")
    assert call_settings("openai:y", settings, "s").get("openai_prompt_cache_key") == "s"
    own = LlmSettings(model="openai:x", base_url="http://127.0.0.1:1/v1")
    assert call_settings("openai:x", own, "s") == {"max_retries": 0}


def used() -> Op[tuple[int, int]]:
    rows = yield sql("SELECT sum(requests), sum(input_tokens) FROM turn")
    return int(rows[0][0]), int(rows[0][1])


async def test_what_a_turn_used_is_counted(store_url: str) -> None:
    async with scene(store_url) as it:
        await it.ask("tools 2")
        rows = await it.world.store.read(used)
    assert rows[0] == 3
    assert rows[1] > 100
