"""Every route rejects what no database can store: a NUL, and half of a surrogate pair."""

import re
from collections.abc import Iterator
from typing import Any

import httpx

from everturn.web.wire.server import FrontSettings
from tests.web.composition import running

UNKEPT = {"a NUL": ("%00", "\\u0000"), "half a pair": ("%ED%A0%80", "\\ud800")}


def requests_of(document: dict[str, Any], raw: str, escaped: str) -> Iterator[tuple[str, str, str | None]]:
    """Each operation with the character in its path, in each part of its query, and in its body."""
    for path, methods in document["paths"].items():
        plain = re.sub(r"\{\w+\}", "1", path)
        for method, operation in methods.items():
            given = operation.get("parameters", [])
            if "{" in path:
                yield method, re.sub(r"\{\w+\}", f"a{raw}b", path), None
            for each in given:
                if each["in"] == "query":
                    yield method, f"{plain}?{each['name']}=a{raw}b", None
            if "application/json" in operation.get("requestBody", {}).get("content", {}):
                yield (
                    method,
                    plain,
                    f'{{"a": "{escaped}b", "name": "{escaped}", "id": "{escaped}", "text": "{escaped}"}}',
                )


async def test_no_route_hands_it_to_the_database(store_url: str) -> None:
    async with running(store_url, front=FrontSettings(per_minute=0)) as web, web.browser() as page:
        document = (await web.client.get("/openapi.json")).json()
        wrong = []
        for raw, escaped in UNKEPT.values():
            for method, url, body in requests_of(document, raw, escaped):
                client = page if url.startswith(("/web/", "/files")) else web.client
                answer = await status(client, method, url, body)
                refused = raw == "%00" or body is not None
                if answer >= 500 or (refused and not 400 <= answer < 500):
                    wrong.append((method, url, body, answer))
    assert wrong == []


async def status(client: httpx.AsyncClient, method: str, url: str, body: str | None) -> int:
    """The response to a request; a stream is not read to its end."""
    headers = {"content-type": "application/json"} if body else {}
    async with client.stream(method, url, content=body, headers=headers) as answer:
        return answer.status_code


async def test_a_nul_is_named_as_what_is_wrong(store_url: str) -> None:
    async with running(store_url) as web:
        answers = [
            await web.client.get("/control/explain/a%00b"),
            await web.client.get("/control/sessions?after=%00"),
            await web.client.post("/control/keys", content='{"name": "\\u0000", "scopes": ["read"]}'),
        ]
        plain = await web.client.post("/control/keys", content='{"name": "a\\\\u0000", "scopes": ["read"]}')
    assert [(each.status_code, "NUL" in each.json()["error"]) for each in answers] == [(400, True)] * 3
    assert "NUL" not in plain.text  # a backslash and five characters
