"""People over the operations page's endpoints: each action once, no code in a response, and only with the scope `admin`."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from everturn.lifecycle.settings import Settings
from everturn.people.rules.access import PAIR, AccessPolicy, Admission
from everturn.testing import FakePlatform
from tests.web.composition import SHARED, Web, running

PAIRING = Settings(
    burst_s=0.0, admission=Admission(policies={"fake": AccessPolicy(unknown=PAIR)}, owners=("fake:boss",))
)
CODE = re.compile(r"approve ([A-Z2-9]{8})")
REFUSED = [
    ("GET", "/control/pair"), ("POST", "/control/pair/approve"), ("POST", "/control/pair/allow"),
    ("POST", "/control/pair/revoke"), ("GET", "/ops/api/people"), ("POST", "/ops/api/people/act"),
]  # fmt: skip


@pytest.fixture
def people() -> FakePlatform:
    return FakePlatform()


@pytest.fixture
async def web(tmp_path: Path, people: FakePlatform) -> AsyncIterator[Web]:
    async with running(tmp_path, settings=PAIRING, others=[people]) as started:
        yield started


async def act(web: Web, **body: object) -> httpx.Response:
    return await web.client.post("/ops/api/people/act", json=body)


async def look(web: Web) -> Any:
    answer = await web.client.get("/ops/api/people")
    assert not CODE.search(answer.text)
    return answer.json()


async def request_access(people: FakePlatform, actor: str) -> str:
    """Let a stranger write; returns their pairing code."""
    people.say(actor, "hello", user_id=actor, user_name=actor.title())
    await people.until(lambda: bool(people.texts(actor)))
    found = CODE.search(people.texts(actor)[-1])
    assert found is not None
    return found[1]


async def test_people_are_approved_by_number_or_code_and_revoked_once(web: Web, people: FakePlatform) -> None:
    code = await request_access(people, "ann")
    await request_access(people, "bob")
    asked = {each["person"]: each for each in (await look(web))["requests"]}
    assert asked["bob"].keys() == {"request", "platform", "person", "name", "asked_at", "expires_at"}
    wrong = await act(web, action="approve", code="AAAA2222", id="0")
    assert (wrong.status_code, "wrong, used" in wrong.json()["error"]) == (409, True)
    for _ in range(2):  # an answer that was lost: asked again, it says the same
        assert (await act(web, action="approve", code=f" {code.lower()}", id="1")).json()["done"]
        assert (
            await act(web, action="approve", request=asked["bob"]["request"], owner=True, id="2")
        ).status_code == 200
    people.say("ann", "again", user_id="ann")
    await people.until(lambda: "echo: again" in people.texts("ann"))
    for _ in range(2):
        assert (await act(web, action="revoke", person="fake:ann", id="3")).json()[
            "said"
        ] == "They may no longer speak."
    told = await look(web)
    stand = {each["id"]: (each["state"], each["owner"]) for each in told["people"]}
    assert stand == {"ann": ("revoked", False), "bob": ("granted", True)}
    assert (told["requests"], told["settings"][0]["owners"]) == ([], ["fake:boss"])
    assert (await act(web, action="allow", person="fake:ann", id="3")).status_code == 409  # another action, the same id


@SHARED
@pytest.mark.parametrize(
    "body",
    [
        {"action": "approve", "id": "1"},
        {"action": "approve", "id": "1", "code": "A", "request": "1"},
        {"action": "revoke", "id": "1", "code": "A"},
        {"action": "revoke", "id": "1", "person": "nobody"},
        {"action": "approve", "id": "1", "request": "one"},
        {"action": "approve", "id": "", "code": "A"},
    ],
)
async def test_what_says_nothing_is_refused(shared: Web, body: dict[str, object]) -> None:
    assert (await act(shared, **body)).status_code == 400


@SHARED
@pytest.mark.parametrize(("scope", "status"), [("chat", 403), ("read", 403), ("ops", 403), ("admin", 0)])
async def test_a_key_without_the_right_is_refused_everywhere(shared: Web, scope: str, status: int) -> None:
    made = await shared.client.post("/control/keys", json={"name": f"people {scope}", "scopes": [scope]})
    async with shared.stranger(Authorization=f"Bearer {made.json()['key']}") as client:
        answers = [
            await client.request(method, path, json={} if method == "POST" else None) for method, path in REFUSED
        ]
    allowed = [200, 400, 400, 400, 200, 400]
    assert [each.status_code for each in answers] == ([status] * len(REFUSED) if status else allowed)
    async with shared.stranger() as nobody:
        assert {(await nobody.request(method, path)).status_code for method, path in REFUSED} == {401}
