"""The operator's endpoints over real HTTP: lists, actions, scopes, and repeats after a lost response."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from everturn.agent.interface import Answer, TurnContext
from everturn.turns.rows.recovery import suspend_session
from everturn.web.events import MOST_OF_ONE
from tests.scenes import until_read
from tests.web.composition import SHARED, Held, Watcher, Web, running

LISTS = ["turns", "sessions", "inbox", "outbox", "trends", "overview"]


class Moody:
    """Fails on `fail`, the first time; waits on `hold`."""

    def __init__(self) -> None:
        self.held = Held()
        self._failed: set[str] = set()

    async def run(self, turn: TurnContext) -> Answer:
        if turn.text.startswith("hold"):
            return await self.held.run(turn)
        if turn.text.startswith("fail") and turn.text not in self._failed:
            self._failed.add(turn.text)
            raise RuntimeError("the model is not there")
        return Answer(f"echo: {turn.text}")


@pytest.fixture
def agent() -> Moody:
    return Moody()


@pytest.fixture
async def web(tmp_path: Path, agent: Moody) -> AsyncIterator[Web]:
    async with running(tmp_path, agent, heartbeat_s=0.2) as started:
        yield started


async def get(web: Web, path: str, **query: object) -> Any:
    answer = await web.client.get(f"/ops/api/{path}", params={name: str(value) for name, value in query.items()})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def act(web: Web, what: str, **body: str) -> httpx.Response:
    return await web.client.post(f"/ops/api/{what}/act", json=body)


async def post_and_wait(web: Web, text: str, until: str = "reply", chat: str = "a", message_id: str = "m1") -> None:
    async with web.events(chat) as watcher:
        await web.post(chat, message_id, text)
        await watcher.until(until)


KEY = "agent:main:api:dm:a"


async def test_the_overview_shows_the_state_of_everything(web: Web) -> None:
    await post_and_wait(web, "hello")
    told = await until_read(lambda: get(web, "overview"), lambda seen: seen["platforms"][0]["sent_at"])
    assert told["counts"]["sessions"] == 1
    assert told["counts"]["running"] == told["counts"]["dead_messages"] == 0
    (instance,) = told["instances"]
    assert (instance["alive"], instance["ended"], told["gateway"]["state"]) == (True, None, "running")
    api, page = (each for each in told["platforms"] if each["name"] != "v1")
    assert (api["name"], api["state"], page["name"], page["received_at"]) == ("api", "open", "web", None)
    assert 0 <= told["now"] - api["received_at"] < 60
    assert 0 <= told["now"] - api["sent_at"] < 60


async def test_a_message_without_an_answer_is_explained_and_run_again(web: Web) -> None:
    await post_and_wait(web, "fail now", "notice")
    (letter,) = (await get(web, "inbox", state="dead"))["messages"]
    assert (letter["text"], letter["chat"]) == ("fail now", "a")
    assert "RuntimeError" in letter["why"]
    (message,) = (await get(web, "explain", message=letter["message"]))["messages"]
    assert {each["kind"] for each in message["timeline"]} == {"in", "turn", "step", "out", "trouble"}
    async with web.events("a") as watcher:
        done = await act(web, "inbox", inbox=letter["id"], action="run", id="once")
        heard = await watcher.until("reply")
    assert (done.status_code, heard[-1].data["text"], heard[-1].data["to"]) == (200, "echo: fail now", "m1")
    again = await act(web, "inbox", inbox=letter["id"], action="run", id="once")
    assert (again.status_code, again.json()) == (200, done.json())
    assert (await get(web, "inbox", state="dead"))["messages"] == []
    assert len((await get(web, "explain", message="m1"))["messages"]) == 2


async def test_a_running_turn_is_seen_and_stopped(web: Web, agent: Moody) -> None:
    await web.post("a", "m1", "hold on")
    await agent.held.began.wait()
    (turn,) = (await get(web, "turns"))["turns"]
    assert (turn["key"], turn["state"], turn["step"], turn["message"]) == (KEY, "running", "the model is working", "m1")
    async with web.events("a") as watcher:
        assert (await act(web, "sessions", key=KEY, action="stop", id="1")).json()["done"] is True
        assert (await watcher.until("turn"))[-1].data["state"] == "stopped"
    await web.world.gateway.turns.quiet()
    refused = await act(web, "sessions", key=KEY, action="stop", id="2")
    assert (refused.status_code, "nothing" in refused.json()["error"]) == (409, True)
    (recent,) = (await get(web, "turns", state="recent"))["turns"]
    assert (recent["state"], recent["why"]) == ("stopped", "operator")


async def test_a_suspended_conversation_is_found_and_resumed(web: Web) -> None:
    await post_and_wait(web, "hello")
    await web.world.store.run(suspend_session, KEY, 2_000_000_000.0)
    (found,) = (await get(web, "sessions", state="suspended", q="HEL"))["sessions"]
    assert (found["key"], found["title"], found["running"]) == (KEY, "hello", None)
    async with web.events("a") as watcher:
        assert (await act(web, "sessions", key=KEY, action="resume", id="1")).status_code == 200
        assert (await watcher.next()).data["reason"] == "operator"
    assert (await get(web, "overview"))["counts"]["suspended"] == 0


async def test_lists_go_on_where_the_page_before_ended(web: Web) -> None:
    for number in range(3):
        await post_and_wait(web, f"fail {number}", "notice", f"c{number}")
    for path, name, query in (
        ("sessions", "sessions", {}), ("inbox", "messages", {"state": "dead"}), ("turns", "turns", {"state": "recent"}),
    ):  # fmt: skip
        whole = await get(web, path, **query)
        found: list[Any] = []
        page: Any = {"next": None}
        while not found or page["next"]:
            page = await get(web, path, limit=1, **query, **({"after": page["next"]} if found else {}))
            found += page[name]
        assert (len(found), found) == (3, whole[name])


async def test_metrics_are_the_same_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as web:
        await post_and_wait(web, "hello")
        before = await get(web, "trends", hours=168)
    async with running(tmp_path) as web:
        after = await get(web, "trends", hours=168)
    first, then = ([each for each in told["buckets"] if each["messages"]] for told in (before, after))
    assert (sum(each["answered"] for each in after["buckets"]), len(then)) == (1, 1)
    assert first == then  # an hour may have ended between the two: then the empty ones are others


async def test_the_stream_hints_at_what_moved_and_ends_with_the_visit(web: Web) -> None:
    async with web.browser() as browser, browser.stream("GET", "/ops/api/events") as response:
        watcher = Watcher(response)
        assert "turns" in (await watcher.next()).data["what"]
        await web.post("a", "m1", "hello")
        assert (await watcher.next()).name == "changed"
        await browser.post("/logout")
        await ended(watcher)


async def test_a_key_that_watches_as_often_as_it_may_leaves_the_owners_places_alone(web: Web) -> None:
    made = await web.client.post("/control/keys", json={"name": "watch", "scopes": ["read"]})
    async with contextlib.AsyncExitStack() as windows:
        client = await windows.enter_async_context(web.stranger(Authorization=f"Bearer {made.json()['key']}"))
        for _ in range(MOST_OF_ONE):
            await windows.enter_async_context(client.stream("GET", "/ops/api/events"))
        assert (await client.get("/ops/api/events")).status_code == 429
        async with web.client.stream("GET", "/ops/api/events") as owners:
            assert owners.status_code == 200


async def ended(watcher: Watcher) -> None:
    """Wait for the end of a stream, whatever it still sends."""
    with contextlib.suppress(EOFError):
        while True:
            await watcher.next()


# -- who may -----------------------------------------------------------------------------------------------------------


@SHARED
@pytest.mark.parametrize(
    ("scope", "look", "do"), [("chat", 403, 403), ("read", 200, 403), ("ops", 200, 409), ("admin", 200, 409)]
)
async def test_a_key_looks_or_acts_by_its_scope(shared: Web, scope: str, look: int, do: int) -> None:
    made = await shared.client.post("/control/keys", json={"name": f"ops {scope}", "scopes": [scope]})
    async with shared.stranger(Authorization=f"Bearer {made.json()['key']}") as client:
        looked = [(await client.get(f"/ops/api/{path}")).status_code for path in LISTS]
        acted = await client.post("/ops/api/sessions/act", json={"key": "nobody", "action": "stop", "id": "1"})
    assert (set(looked), acted.status_code) == ({look}, do)


@SHARED
async def test_strangers_and_other_pages_do_nothing(shared: Web) -> None:
    body = {"key": KEY, "action": "reset", "id": "1"}
    async with shared.stranger() as client:
        assert [(await client.get(f"/ops/api/{path}")).status_code for path in [*LISTS, "events"]] == [401] * 7
        assert (await client.post("/ops/api/sessions/act", json=body)).status_code == 401
    async with shared.browser() as browser:
        elsewhere = await browser.post("/ops/api/sessions/act", json=body, headers={"Origin": "http://evil.example"})
        assert (elsewhere.status_code, (await browser.get("/ops/api/overview")).status_code) == (403, 200)


@SHARED
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("sessions", {"key": "k", "action": "explode", "id": "1"}),
        ("sessions", {"key": "k", "action": "stop"}),
        ("sessions", {"key": "k", "action": "stop", "id": ""}),
        ("inbox", {"inbox": "x", "action": "run", "id": "1"}),
        ("outbox", {"reply": "-1", "action": "send", "id": "1"}),
        ("outbox", {"reply": "1", "action": "send", "id": "1", "more": 1}),
    ],
)
async def test_a_bad_action_gets_an_error_text(shared: Web, path: str, body: dict[str, object]) -> None:
    answer = await shared.client.post(f"/ops/api/{path}/act", json=body)
    assert (answer.status_code, bool(answer.json()["error"])) == (400, True)


@SHARED
@pytest.mark.parametrize(
    "path", ["turns?state=x", "sessions?after=x", "sessions?limit=900", "trends?hours=1", "explain", "inbox?after=x"]
)
async def test_a_bad_query_gets_an_error_text(shared: Web, path: str) -> None:
    answer = await shared.client.get(f"/ops/api/{path}")
    assert (answer.status_code, bool(answer.json()["error"])) == (400, True)
