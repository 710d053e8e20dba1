"""Promise 12 for tools: a long output is shortened in the transcript, kept whole, and read by page."""

from everturn.agent.toolbox import OutputSettings, Tool, ToolPlace, output_tools
from everturn.ids import oldest_id
from everturn.lifecycle.rows import DAY_S, forget
from everturn.lifecycle.settings import Settings
from everturn.model import Effect, Json
from everturn.store.interface import Op, sql
from everturn.testing import World
from tests.agent.tools.benches import Bench

LONG = "".join(f"line {n}\n" for n in range(500))
SMALL = Settings(output_chars=300, output_kept_chars=3_000)


async def speak(given: Json, _place: ToolPlace) -> str:
    return str(given["text"]).replace("HALF", "\ud800")


def bench(url: str) -> Bench:
    loud = Tool(name="loud", description="", parameters={"type": "object"}, run=speak, effect=Effect.PURE)
    return Bench(url, lambda b: [loud, *output_tools(OutputSettings(page_chars=200), b.store)], settings=SMALL)


def id_in(result: str) -> str:
    return result.partition("with id '")[2].partition("'")[0]


async def test_the_rest_of_a_long_output_is_read_by_page(store_url: str) -> None:
    async with bench(store_url) as tools:
        short = await tools.use("loud", text=LONG)
        assert len(short) < 500
        assert short.startswith("line 0\n")
        assert short.endswith("line 499\n")
        text, start = "", 0
        while start < 3_000:
            page = await tools.use("read_output", id=id_in(short), start=start)
            text, start = text + page.partition("\n")[2], start + 200
        assert text == LONG[:3_000]


async def test_an_output_within_the_limit_is_not_touched(store_url: str) -> None:
    async with bench(store_url) as tools:
        assert await tools.use("loud", text="x" * 300) == "x" * 300


async def test_zero_bytes_and_halves_of_characters_do_not_break_a_turn(store_url: str) -> None:
    async with bench(store_url) as tools:
        assert await tools.use("loud", text="a\x00bHALFc") == "a\ufffdb?c"


async def test_nobody_reads_the_output_of_another_conversation(store_url: str) -> None:
    async with bench(store_url) as tools:
        name = id_in(await tools.use("loud", text=LONG, chat="one"))
        assert "no such output" in await tools.use("read_output", id=name, chat="two", user="bob")
        assert (await tools.use("read_output", id=name, chat="one")).startswith("[characters 0 to 200 of 3000")
        assert "no such output" in await tools.use("read_output", id="nonsense", chat="one")


def output_rows() -> Op[int]:
    rows = yield sql("SELECT count(*) FROM output")
    return int(rows[0][0])


async def forgotten(world: World, at: float) -> int:
    while await world.store.run(forget, at):
        pass
    return await world.store.read(output_rows)


async def test_outputs_are_forgotten_after_a_month(store_url: str) -> None:
    async with bench(store_url) as tools:
        await tools.use("loud", text=LONG)
        now = tools.world.clock.now()
        assert oldest_id(now) > 0
        assert await forgotten(tools.world, now + 29 * DAY_S) == 1
        assert await forgotten(tools.world, now + 31 * DAY_S) == 0
