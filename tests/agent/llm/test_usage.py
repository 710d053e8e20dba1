"""What a call used, what it costs where the price is known, and which settings go to which provider."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage

from everturn.agent.llm.chat.client import ChatModel
from everturn.agent.llm.library import LibraryModel, call_settings, usage_of
from everturn.agent.llm.prices import Prices, TokenCounts
from everturn.agent.llm.providers import build_model
from everturn.agent.llm.settings import LlmSettings
from everturn.errors import ConfigError
from everturn.model import Attachment
from everturn.operator.rows.reading import explain
from everturn.operator.rules.timeline import timeline
from everturn.store.interface import Op, sql
from everturn.testing import FilePlatform
from everturn.turns.rules.spending import SpendingLimits
from tests.agent.llm.scenes import STALL_S, Impatient, scene
from tests.agent.llm.test_compaction import SMALL, fill_window
from tests.scenes import die

PRIVATE = LlmSettings(model="openai:x", base_url="http://127.0.0.1:1/v1", api_key="sk-private-123456")
A_DAY = SpendingLimits(person_tokens_day=1_000_000)
USED = RequestUsage(input_tokens=1000, output_tokens=100, cache_read_tokens=400)


def test_a_known_model_has_a_price_and_an_unknown_one_has_none() -> None:
    known = usage_of(ModelResponse(parts=[], usage=USED, model_name="gpt-4o", provider_name="openai"))
    unknown = usage_of(ModelResponse(parts=[], usage=USED, model_name="no-such-model", provider_name="openai"))
    assert (known.requests, known.input_tokens, known.output_tokens, known.cached_tokens) == (1, 1000, 100, 400)
    assert known.cost is not None
    assert known.cost > 0
    assert unknown.cost is None


@pytest.mark.parametrize(
    ("name", "url", "known"),
    [
        ("gpt-4o", "https://api.openai.com/v1/", True),
        ("gpt-4o", "http://127.0.0.1:1/v1", True),
        ("no-such-model", "https://api.openai.com/v1/", False),
    ],
)
async def test_our_own_client_knows_the_same_prices(name: str, url: str, known: bool) -> None:  # noqa: FBT001
    theirs = usage_of(ModelResponse(parts=[], usage=USED, model_name=name, provider_name="openai", provider_url=url))
    counts = TokenCounts(USED.input_tokens, USED.output_tokens, USED.cache_read_tokens)
    assert await Prices("openai", url, known=True).usage(name, counts) == theirs
    assert (theirs.cost is not None) is known


@pytest.mark.parametrize("name", ["gpt", ":x", "x:", "nobody:knows"])
def test_a_model_that_cannot_be_used_is_a_wrong_setting(name: str) -> None:
    with pytest.raises(ConfigError, match="model"):
        build_model(name, LlmSettings(model=name, api_key="sk-secret-123456"))


@pytest.mark.parametrize("name", ["openai:other", "openai-chat:other", "openai-responses:other"])
def test_a_private_server_gets_its_own_key_whatever_the_protocol_is_called(name: str) -> None:
    assert key_and_address(build_model(name, PRIVATE)) == ("sk-private-123456", "http://127.0.0.1:1/v1")


def test_a_private_server_without_a_key_is_sent_none_of_a_variable() -> None:
    for name in ("ollama:x", "openai:x"):
        model = build_model(name, LlmSettings(model=name, base_url="http://127.0.0.1:1/v1"))
        assert key_and_address(model) == ("no-key-needed", "http://127.0.0.1:1/v1")


def key_and_address(model: Any) -> tuple[str, str]:
    """The key that a client sends, and where it sends it."""
    if isinstance(model, ChatModel):
        return model.key, model.base_url
    assert isinstance(model, LibraryModel)
    client: Any = getattr(model.model, "client")  # noqa: B009  only some of the library's models have one
    return client.api_key, str(client.base_url).rstrip("/")


def test_a_provider_that_the_settings_do_not_name_is_never_asked() -> None:
    with pytest.raises(ConfigError, match="a provider that this agent does not use"):
        build_model("ollama:x", PRIVATE)
    allowed = replace(PRIVATE, models=("ollama:y",))
    with pytest.raises(ConfigError, match="check agent"):  # it has no address here
        build_model("ollama:x", allowed)


def test_a_settings_value_never_shows_its_key() -> None:
    assert "sk-secret" not in repr(LlmSettings(model="openai:x", api_key="sk-secret-123456"))


def test_caches_are_asked_for_where_the_provider_has_them() -> None:
    settings = LlmSettings(model="anthropic:x", max_output_tokens=5)
    assert call_settings("anthropic:x", settings)["max_tokens"] == 5
    assert "anthropic_cache" in call_settings("anthropic:x", settings)
    own = LlmSettings(model="anthropic:x", base_url="http://127.0.0.1:1/v1")
    assert "anthropic_cache_messages" in call_settings("anthropic:x", own)


def used() -> Op[tuple[int, int]]:
    rows = yield sql("SELECT sum(requests), sum(input_tokens) FROM turn")
    return int(rows[0][0]), int(rows[0][1])


async def test_an_answer_that_broke_off_and_was_asked_again_is_counted(tmp_path: Path) -> None:
    async with scene(f"sqlite:///{tmp_path}/everturn.db", agent_clock=Impatient(), stall_s=STALL_S) as it:
        it.model.fail("cut")
        assert await it.ask("hello") == "answer to hello"
        (requests, tokens) = await it.world.store.read(used)
        it.model.fail("server")
        await it.ask("hello again")
        assert (await it.world.store.read(used))[0] == requests + 1  # a server that refuses is paid nothing
    assert requests == 2
    assert tokens > 0


def spent() -> Op[tuple[int, int, int]]:
    """The tokens of all turns, of all sessions, and of the day."""
    kept = "SELECT coalesce(sum(input_tokens+output_tokens), 0) FROM"
    rows = yield sql(f"SELECT ({kept} turn), ({kept} session), (SELECT tokens FROM spending WHERE spender='all')")
    return int(rows[0][0]), int(rows[0][1]), int(rows[0][2])


@pytest.mark.parametrize(
    ("fault", "requests", "failures"),
    [("cut", 3, 3), ("error", 3, 3), ("empty", 2, 2), ("refused", 1, 1), ("denied", 0, 1), ("server", 0, 3)],
)
async def test_every_failed_call_is_counted_alike_also_the_last_one(
    store_url: str, fault: str, requests: int, failures: int
) -> None:
    """What the model had begun to answer is paid for: the turn, the session and the day count the same."""
    async with scene(store_url, agent_clock=Impatient(), stall_s=STALL_S, retries=2, limits=A_DAY) as it:
        it.model.fail(fault, times=9)
        await it.ask("hello")
        used_tokens = await it.world.store.read(spent)
        assert (await it.world.store.read(used))[0] == requests
        (told,) = await it.world.store.read(explain, "m1@one")
    assert len(set(used_tokens)) == 1
    assert bool(used_tokens[0]) is bool(requests)
    assert sum("model call failed" in text for _, text in timeline(told)) == failures


@pytest.mark.parametrize(
    ("fault", "text", "window"), [("cut", "Summarise the conversation", SMALL), ("overflow", "and now?", {})]
)
async def test_what_fails_around_a_compaction_is_counted_alike(
    store_url: str, fault: str, text: str, window: dict[str, Any]
) -> None:
    async with scene(store_url, agent_clock=Impatient(), stall_s=STALL_S, limits=A_DAY, **window) as it:
        await fill_window(it)
        it.model.fail(fault, text=text)
        assert await it.ask("and now?") == "answer to and now?"
        assert len(set(await it.world.store.read(spent))) == 1


async def test_a_picture_that_is_described_is_counted_alike(tmp_path: Path) -> None:
    sticker = Attachment(kind="sticker", ref="r1", unique="u1", text="😀")
    platform = FilePlatform(contents={"r1": b"RIFF0000WEBP pixels"})
    url, files = f"sqlite:///{tmp_path / 'everturn.db'}", tmp_path / "files"
    async with scene(url, platform=platform, limits=A_DAY, images="yes", uploads=files) as it:
        platform.attach("one", "", [sticker])
        await platform.until(lambda: bool(platform.texts("one")))
        assert (await it.world.store.read(used))[0] == len(it.seen()) == 2
        assert len(set(await it.world.store.read(spent))) == 1


async def test_a_call_that_was_cut_off_by_a_death_is_asked_again_and_told(tmp_path: Path) -> None:
    async with scene(f"sqlite:///{tmp_path}/everturn.db", agent_clock=Impatient(), stall_s=STALL_S) as it:
        it.model.fail("silent")
        it.platform.say("one", "hello")
        await it.model.until(lambda: len(it.model.seen) == 1)
        await die(it.world)
        await it.world.start()
        await it.told("answer to hello")
        (told,) = await it.world.store.read(explain, "m1@one")
    lines = [text for _, text in timeline(told)]
    assert any(line.startswith("model call lost: ") and "; repeated" in line for line in lines)
    assert any(line.startswith("used in total: 2 model requests (1 lost)") for line in lines)


async def test_what_a_turn_used_is_counted(store_url: str) -> None:
    async with scene(store_url) as it:
        await it.ask("tools 2")
        rows = await it.world.store.read(used)
    assert rows[0] == 3
    assert rows[1] > 100
