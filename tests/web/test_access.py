"""Authentication, scopes, rate limits and security headers over real HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from everturn.people.rows.credentials import log_out
from everturn.people.rules.rights import GatewayAddress
from everturn.testing import ManualClock
from everturn.web.access import LOGINS, VALID_FOR_S
from everturn.web.keys import LOGIN_S, VISIT_S
from everturn.web.wire.server import FrontSettings
from tests.turn_costs import Meter
from tests.waiting import WAIT_S, within
from tests.web.composition import SHARED, TOKEN, Watcher, Web, running

OWN_PATHS = ["/web/me", "/web/conversations", "/web/conversations/x", "/files/a/b", "/logout", "/nowhere"]


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Web]:
    async with running(tmp_path) as started:
        yield started


async def made_key(web: Web, name: str, *scopes: str) -> str:
    answer = await web.client.post("/control/keys", json={"name": name, "scopes": list(scopes)})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["key"])


def with_key(web: Web, key: str) -> httpx.AsyncClient:
    return web.stranger(Authorization=f"Bearer {key}")


@contextlib.asynccontextmanager
async def browser_of_key(web: Web, key: str) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that opened the login link of a program with a key."""
    async with with_key(web, key) as program:
        code = (await program.post("/control/login")).json()["code"]
    async with web.stranger(Origin=web.serving.url) as client:
        assert (await client.post("/login", json={"code": code})).status_code == 204
        yield client


# -- strangers ---------------------------------------------------------------------------------------------------------


@SHARED
@pytest.mark.parametrize("path", ["/api/chats/a/transcript", "/control/status", "/control/keys", *OWN_PATHS])
async def test_a_stranger_gets_nothing(shared: Web, path: str) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eA=="}, {"Cookie": "everturn=x"}):
        async with shared.stranger(**headers) as client:
            answer = await client.get(path)
            assert answer.status_code == 401, answer.text
            assert "everturn login" in answer.json()["error"]


@SHARED
@pytest.mark.parametrize("path", ["/", "/login", "/assets/main.js", "/assets/page.css", "/favicon.ico", "/offline.js"])
async def test_the_page_itself_is_open_and_checked_by_its_tag(shared: Web, path: str) -> None:
    async with shared.stranger() as client:
        answer = await client.get(path)
        again = await client.get(path, headers={"If-None-Match": answer.headers["etag"]})
    assert (answer.status_code, again.status_code, again.content) == (200, 304, b"")


@SHARED
async def test_no_file_beside_the_page_is_served(shared: Web) -> None:
    async with shared.stranger() as client:
        for name in ("package.json", "..%2fapp.py", "%2e%2e/app.py", "nothing.js"):
            assert (await client.get(f"/assets/{name}")).status_code in {401, 404}


# -- keys --------------------------------------------------------------------------------------------------------------


@SHARED
async def test_a_key_does_what_its_scope_says_and_nothing_else(shared: Web) -> None:
    key = await made_key(shared, "talker", "chat")
    async with with_key(shared, key) as bot:
        assert (await bot.post("/api/chats/talk/messages", json={"id": "1", "text": "hi"})).status_code == 202
        assert (await bot.get("/api/chats/talk/transcript")).status_code == 200
        refused = await bot.get("/control/status")
        assert (refused.status_code, "`read`" in refused.json()["error"]) == (403, True)
        assert [(await bot.get(path)).status_code for path in OWN_PATHS] == [403] * len(OWN_PATHS)


@SHARED
@pytest.mark.parametrize(
    ("scope", "post", "look", "stop", "keys"),
    [
        ("chat", 202, 403, 403, 403),
        ("read", 403, 200, 403, 403),
        ("ops", 403, 200, 202, 403),
        ("admin", 202, 200, 202, 200),
    ],
)
async def test_scopes(shared: Web, scope: str, post: int, look: int, stop: int, keys: int) -> None:
    async with with_key(shared, await made_key(shared, f"only {scope}", scope)) as client:
        posted = await client.post(f"/api/chats/{scope}/messages", json={"id": "1", "text": "hi"})
        stopped = await client.post("/control/stop", json={"kind": "stop"})
        looked, listed = await client.get("/control/status"), await client.get("/control/keys")
    assert [each.status_code for each in (posted, looked, stopped, listed)] == [post, look, stop, keys]


@SHARED
async def test_a_revoked_key_is_refused_at_once(shared: Web) -> None:
    key = await made_key(shared, "a/b c", "read")
    async with with_key(shared, key) as client:
        assert (await client.get("/control/status")).status_code == 200
        assert (await shared.client.delete("/control/keys/a%2Fb%20c")).status_code == 200
        assert (await client.get("/control/status")).status_code == 401
    assert (await shared.client.delete("/control/keys/nobody")).status_code == 404


async def test_a_browser_that_logged_in_with_a_key_has_its_rights_and_no_others(web: Web) -> None:
    async with browser_of_key(web, await made_key(web, "helper", "admin")) as client:
        codes = [(await client.get(path)).status_code for path in ("/control/keys", "/ops/api/overview", *OWN_PATHS)]
        assert codes == [200, 200] + [403] * len(OWN_PATHS)
        assert "helper" in (await client.get("/web/me")).json()["error"]
        code = (await client.post("/control/login")).json()["code"]
    async with web.stranger(Origin=web.serving.url) as second:
        assert (await second.post("/login", json={"code": code})).status_code == 204
        assert (await second.get("/web/me")).status_code == 403
        assert (await second.post("/logout")).status_code == 204
        assert (await second.get("/control/keys")).status_code == 401


async def test_a_browser_that_logged_in_with_a_key_is_logged_out_with_it(web: Web) -> None:
    key = await made_key(web, "helper", "admin")
    async with browser_of_key(web, key) as client, with_key(web, key) as program:
        late = (await program.post("/control/login")).json()["code"]
        async with client.stream("GET", "/api/chats/c/events") as stream:
            assert stream.status_code == 200
            await web.client.delete("/control/keys/helper")
            assert await Watcher(stream).over()
        await made_key(web, "helper", "admin")  # another of the same name
        assert (await client.get("/control/keys")).status_code == 401
        assert (await client.post("/login", json={"code": late})).status_code == 403


async def test_a_key_that_a_key_made_is_named_when_its_maker_is_revoked(web: Web) -> None:
    """It outlives its maker: revoking the maker names it, and `made=1` revokes both."""
    for name, query, also, left in (("one", "", [], ["one's"]), ("two", "?made=1", ["two's"], [])):
        key = await made_key(web, name, "admin")
        async with browser_of_key(web, key) as browser:
            made = await browser.post("/control/keys", json={"name": f"{name}'s", "scopes": ["chat"]})
        revoked = (await web.client.delete(f"/control/keys/{name}{query}")).json()
        assert revoked == {"revoked": name, "also": also, "left": left}
        async with with_key(web, made.json()["key"]) as client:
            assert (await client.get("/api/chats/c/transcript")).status_code == (200 if left else 401)
    makers = {key["name"]: key["made_by"] for key in (await web.client.get("/control/keys")).json()["keys"]}
    assert makers == {"one": "owner", "one's": "one", "two": "owner", "two's": "two"}


@SHARED
async def test_a_list_of_keys_holds_no_secret(shared: Web) -> None:
    key = await made_key(shared, "listed", "chat")
    text = (await shared.client.get("/control/keys")).text
    assert key[:9] in text
    assert key not in text


@SHARED
@pytest.mark.parametrize(
    "body",
    [
        {"name": "", "scopes": ["chat"]},
        {"name": "x", "scopes": []},
        {"name": "x", "scopes": ["owner"]},
        {"name": "x\n", "scopes": ["chat"]},
        {"name": "Owner", "scopes": ["ops"]},
        {"scopes": ["chat"]},
    ],
)
async def test_a_bad_key_is_refused(shared: Web, body: object) -> None:
    assert (await shared.client.post("/control/keys", json=body)).status_code == 400


@SHARED
async def test_what_a_key_writes_bears_its_name(shared: Web) -> None:
    async with with_key(shared, await made_key(shared, "writer", "chat")) as bot:
        await bot.post("/api/chats/a/messages", json={"id": "by-a-key", "text": "hi"})
    (trace,) = (await shared.client.get("/control/explain/by-a-key")).json()["messages"]
    assert trace["key"] == "agent:main:api:dm:a"


async def test_a_fast_key_is_slowed_down_alone(tmp_path: Path) -> None:
    async with running(tmp_path, front=FrontSettings(per_minute=5, clock=ManualClock())) as web:
        keys = [await made_key(web, name, "read") for name in ("fast", "calm")]
        async with with_key(web, keys[0]) as fast, with_key(web, keys[1]) as calm:
            codes = [(await fast.get("/control/status")).status_code for _ in range(7)]
            assert codes == [200] * 5 + [429] * 2
            late = await fast.get("/control/status")
            assert int(late.headers["retry-after"]) in range(1, 13)
            assert (await calm.get("/control/status")).status_code == 200
        assert (await web.client.get("/control/status")).status_code == 200


async def test_an_address_that_guesses_is_slowed_down_and_the_owner_is_not(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(tmp_path, front=FrontSettings(per_minute=5, clock=clock)) as web:
        async with web.stranger(Authorization="Bearer guess") as client:
            codes = [(await client.get("/control/status")).status_code for _ in range(7)]
        assert codes == [401] * 5 + [429] * 2
        assert (await web.client.get("/control/status")).status_code == 200
        clock.advance(60)
        async with web.stranger(Authorization="Bearer guess") as client:
            assert (await client.get("/control/status")).status_code == 401


async def status_with(web: Web, **headers: str) -> int:
    async with web.stranger(**headers) as client:
        return (await client.get("/control/status")).status_code


@pytest.mark.parametrize("headers", [{"Authorization": "Bearer guess"}, {"Cookie": "{cookie}=guess"}])
async def test_guessing_costs_no_reads_above_the_limit(tmp_path: Path, headers: dict[str, str]) -> None:
    meter = Meter()
    async with running(tmp_path, front=FrontSettings(per_minute=5, clock=ManualClock()), opened=meter.open) as web:
        wrong = {name: value.format(cookie=web.serving.app.access.cookie) for name, value in headers.items()}
        codes = [await status_with(web, **wrong) for _ in range(6)]
        before = len(meter.statements)
        codes += [await status_with(web, **wrong) for _ in range(20)]
        reads = [each for each in meter.statements[before:] if "access_key" in each or "visit" in each]
    assert codes == [401] * 5 + [429] * 21
    assert reads == []


async def test_a_right_secret_is_accepted_where_others_guess(tmp_path: Path) -> None:
    """Also one that was made after the guessing began; a revoked one is not."""
    clock = ManualClock()
    async with running(tmp_path, front=FrontSettings(per_minute=5, clock=clock)) as web, web.browser() as page:
        early = await made_key(web, "early", "read")
        guesses = [await status_with(web, Authorization="Bearer guess") for _ in range(7)]
        assert guesses[-1] == 429
        late = await made_key(web, "late", "read")
        clock.advance(VALID_FOR_S)
        for key in (early, late):
            assert await status_with(web, Authorization=f"Bearer {key}") == 200
        assert (await page.get("/web/me")).status_code == 200
        await web.client.delete("/control/keys/early")
        assert await status_with(web, Authorization=f"Bearer {early}") == 429


async def test_a_secret_that_was_just_made_is_accepted_where_others_guess(tmp_path: Path) -> None:
    """No time passes: the valid secrets were read before these were made."""
    async with running(tmp_path, front=FrontSettings(per_minute=5, clock=ManualClock())) as web:
        guesses = [await status_with(web, Authorization="Bearer guess") for _ in range(7)]
        assert guesses[-1] == 429
        assert await status_with(web, Authorization=f"Bearer {await made_key(web, 'new', 'read')}") == 200
        async with web.browser() as page:
            assert (await page.get("/web/me")).status_code == 200
        assert await status_with(web, Authorization="Bearer guess") == 429


async def test_a_stranger_at_the_owners_address_does_not_keep_the_owner_out(tmp_path: Path) -> None:
    async with running(tmp_path, front=FrontSettings(per_minute=5, clock=ManualClock())) as web:
        login = await web.serving.app.visits.make()
        async with web.stranger() as client:
            codes = [(await client.get("/control/status")).status_code for _ in range(6)]
            codes += [(await client.post("/login", json={"code": f"{n}"})).status_code for n in range(LOGINS + 1)]
        assert codes == [401] * 5 + [429] + [403] * LOGINS + [429]
        async with web.stranger(Origin=web.serving.url) as client:
            page = [await client.get(path) for path in ("/login", "/", "/ops", *["/assets/main.js"] * 20)]
            assert {answer.status_code for answer in page} == {200}
            assert (await client.post("/login", json={"code": login.code})).status_code == 204
            assert (await client.get("/web/me")).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Host": "evil.example"}, 421),
    ],
)
async def test_what_another_sites_page_lets_a_browser_ask_counts_for_nobody(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    async with (
        running(tmp_path, front=FrontSettings(per_minute=2, clock=ManualClock())) as web,
        web.stranger() as client,
    ):
        codes = [(await client.get("/control/status", headers=headers)).status_code for _ in range(5)]
        assert codes == [status] * 5
        assert (await client.get("/control/status")).status_code == 401


# -- browsers ----------------------------------------------------------------------------------------------------------


async def test_a_login_link_works_once(web: Web) -> None:
    login = await web.serving.app.visits.make()
    assert login.link("http://x/") == f"http://x/login#{login.code}"
    async with web.stranger() as first, web.stranger() as second:
        entered = await first.post("/login", json={"code": login.code})
        again = await second.post("/login", json={"code": login.code})
        assert (entered.status_code, again.status_code) == (204, 403)
        assert "used before" in again.json()["error"]
        assert [(await each.get("/web/me")).status_code for each in (first, second)] == [200, 401]
    cookie = entered.headers["set-cookie"].lower()
    assert all(part in cookie for part in ("httponly", "samesite=strict", "path=/", f"max-age={int(VISIT_S)}"))
    assert "secure" not in cookie


async def test_behind_https_the_cookie_is_for_https(tmp_path: Path) -> None:
    async with running(
        tmp_path, front=FrontSettings(place=GatewayAddress("127.0.0.1", "https://chat.example.org"))
    ) as web:
        login = await web.serving.app.visits.make()
        async with web.stranger(Host="chat.example.org", Origin="https://chat.example.org") as client:
            cookie = (await client.post("/login", json={"code": login.code})).headers
    assert cookie["set-cookie"].startswith("__Host-everturn=")
    assert "; Secure" in cookie["set-cookie"]
    assert "strict-transport-security" in cookie


async def test_links_and_visits_expire(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(tmp_path, front=FrontSettings(clock=clock)) as web:
        late = await web.serving.app.visits.make()
        async with web.browser() as client:
            clock.advance(LOGIN_S)
            answer = await client.post("/login", json={"code": late.code})
            assert (answer.status_code, "expired" in answer.json()["error"]) == (403, True)
            assert (await client.get("/web/me")).status_code == 200
            clock.advance(VISIT_S)
            client.cookies.jar.clear_expired_cookies()
            assert (await client.get("/web/me")).status_code == 401


async def test_a_visit_outlives_a_restart_and_ends_with_logging_out(store_url: str) -> None:
    async with running(store_url) as web, web.browser() as client:
        cookies = dict(client.cookies)
    async with running(store_url) as web, web.stranger(Origin=web.serving.url) as client:
        client.cookies.update(cookies)
        assert (await client.get("/web/me")).status_code == 200
        assert (await client.post("/logout")).status_code == 204
        client.cookies.update(cookies)
        assert (await client.get("/web/me")).status_code == 401


async def test_everybody_can_be_logged_out(web: Web) -> None:
    async with web.browser() as one, web.browser() as two:
        assert (await web.client.post("/control/logout")).json() == {"ended": 2}
        assert [(await each.get("/web/me")).status_code for each in (one, two)] == [401, 401]


async def test_streams_end_with_their_key_or_visit(web: Web) -> None:
    key = await made_key(web, "bot", "chat")
    async with web.browser() as page, with_key(web, key) as bot:
        for client, path, end in (
            (page, "/web/conversations/c/events", web.client.post("/control/logout")),
            (bot, "/api/chats/c/events", web.client.delete("/control/keys/bot")),
        ):
            async with client.stream("GET", path) as stream:
                assert stream.status_code == 200
                await end
                assert await Watcher(stream).over()
            assert (await client.get(path)).status_code == 401


async def test_a_stream_of_another_instance_ends_with_the_next_heartbeat(tmp_path: Path) -> None:
    path = "/web/conversations/c/events"
    async with running(tmp_path, heartbeat_s=0.05) as web, web.browser() as page, page.stream("GET", path) as stream:
        await web.world.store.run(log_out, None)
        assert await Watcher(stream).over()


async def test_guessing_codes_ends_soon_and_a_right_one_opens_all_the_same(web: Web) -> None:
    good = await web.serving.app.visits.make()
    async with web.stranger() as client:
        codes = [(await client.post("/login", json={"code": f"guess{n}"})).status_code for n in range(LOGINS + 2)]
        assert codes == [403] * LOGINS + [429] * 2
        assert (await client.post("/login", json={"code": good.code})).status_code == 204
        assert (await client.get("/web/me")).status_code == 200
        again = await client.post("/login", json={"code": good.code})
        assert (again.status_code, "everturn login" in again.json()["error"]) == (429, True)


@SHARED
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site", "Origin": ""},
    ],
)
async def test_another_sites_page_changes_nothing(shared: Web, headers: dict[str, str]) -> None:
    async with shared.browser() as client:
        posted = await client.post("/web/conversations/c/messages", json={"id": "evil", "text": "x"}, headers=headers)
        out = await client.post("/logout", headers=headers)
        assert (posted.status_code, out.status_code) == (403, 403)
        assert (await client.get("/web/me")).status_code == 200
    wrong = await shared.client.post("/api/chats/a/messages", json={"id": "evil", "text": "x"}, headers=headers)
    assert wrong.status_code == 403
    assert (await shared.client.get("/control/explain/evil")).json() == {"messages": []}


@SHARED
async def test_a_name_that_was_pointed_here_reaches_neither_page_nor_cookie(shared: Web) -> None:
    async with shared.browser() as client:
        for path in ("/", "/login", "/web/me", "/web/conversations"):
            answer = await client.get(path, headers={"Host": "evil.example"})
            assert (answer.status_code, "public_url" in answer.json()["error"]) == (421, True)
    assert (await shared.client.get("/control/status", headers={"Host": "gateway"})).status_code == 200


@SHARED
async def test_no_other_origin_may_read(shared: Web) -> None:
    asked = {"Origin": "https://other.example", "Access-Control-Request-Method": "POST"}
    answers = [await shared.client.get("/control/status", headers={"Origin": "https://other.example"})]
    answers += [await shared.client.options(path, headers=asked) for path in ("/", "/api/chats/a/messages", "/web/me")]
    assert not [name for answer in answers for name in answer.headers if name.startswith("access-control")]


# -- every answer ------------------------------------------------------------------------------------------------------


async def raw(web: Web, text: bytes) -> str:
    reader, writer = await asyncio.open_connection(web.serving.host, web.serving.port)
    writer.write(text)
    async with within(WAIT_S):
        answer = await reader.read(4096)
    writer.close()
    return answer.decode()


@SHARED
async def test_every_answer_says_what_a_browser_may_do_with_it(shared: Web) -> None:
    token = {"Authorization": f"Bearer {TOKEN}"}
    async with shared.stranger() as client:
        answers = [await client.get(path) for path in ("/", "/health", "/nowhere", "/assets/none")]
        answers += [
            await client.get("/control/status", headers=token),
            await client.post("/login", content=b"x" * 99_999),
        ]
        answers.append(await client.post("/api/chats/a/messages", json={"id": "headers", "text": "x"}, headers=token))
    for answer in answers:
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
    assert "content-security-policy" in await raw(shared, b"nonsense\r\n\r\n")


@SHARED
async def test_no_secret_is_in_an_error(shared: Web) -> None:
    async with shared.stranger(Authorization="Bearer sEcReT-guess") as client:
        texts = [
            (await client.get(path)).text for path in ("/control/status", "/web/me", "/nowhere?token=sEcReT-guess")
        ]
        texts.append((await client.post("/login", json={"code": "sEcReT-guess"})).text)
        texts.append((await client.post("/login", content=b'{"code": "sEcReT-guess"')).text)
    assert not [text for text in texts if "sEcReT" in text or TOKEN in text]
