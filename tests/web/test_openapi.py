"""The OpenAPI document: it has every endpoint, and a running gateway conforms to it for all requests."""

import asyncio
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import negative_data_rejection, positive_data_acceptance
from schemathesis.core.result import Ok

from everturn.web.wire.server import FrontSettings
from tests.web.composition import AUTHORIZED, Web, running

EXAMPLES = 6
TAGS = ("access", "chats", "control", "health", "openai", "operations", "page")
REFUSALS = ["400", "401", "403", "404", "405", "409", "413", "429"]
OURS = schemathesis.Config.from_dict(
    {
        "seed": 1,  # nothing draws lots
        "generation": {"allow-extra-parameters": False},  # a parameter that is not known is ignored
        "checks": {"negative_data_rejection": {"expected-statuses": REFUSALS}},
    }
)
TOLERANT = {
    "POST /control/keys": [negative_data_rejection],  # names may have letters that no pattern can tell from others
    **{
        f"POST /ops/api/{what}/act": [negative_data_rejection] for what in ("sessions", "inbox", "outbox")
    },  # so have ids
    "POST /ops/api/people/act": [negative_data_rejection, positive_data_acceptance],  # so has this
    "POST /control/pair/allow": [positive_data_acceptance],  # how people are called depends on their platform
    "POST /control/pair/revoke": [positive_data_acceptance],
    "POST /control/pair/approve": [positive_data_acceptance],  # a code or a number, not both: a struct cannot say that
    "POST /v1/chat/completions": [positive_data_acceptance],  # the table leaves the details to the API's own documents
    "POST /v1/responses": [positive_data_acceptance],
}


async def document(web: Web) -> dict[str, Any]:
    answer = await web.client.get("/openapi.json")
    assert answer.status_code == 200
    return dict(answer.json())


def operations(schema: dict[str, Any], tag: str) -> list[APIOperation[Any, Any, Any, Any]]:
    """Endpoints whose responses end: all but event streams."""
    results = schemathesis.openapi.from_dict(schema, config=OURS).get_all_operations()
    found = [result.ok() for result in results if isinstance(result, Ok)]
    return [each for each in found if each.definition.raw["tags"] == [tag] and not each.path.endswith("/events")]


def attack(operation: APIOperation[Any, Any, Any, Any], url: str, mode: GenerationMode) -> None:
    """Send requests that the document allows, or not; every response conforms to it."""

    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Case[Any]) -> None:
        case.call_and_validate(base_url=url, headers=AUTHORIZED, session=session, excluded_checks=excluded)

    excluded = TOLERANT.get(operation.label, [])
    with requests.Session() as session:
        ask()


@pytest.mark.parametrize("tag", TAGS)
async def test_a_running_gateway_answers_as_the_document_says(tmp_path: Path, tag: str) -> None:
    async with running(tmp_path, front=FrontSettings(per_minute=0), file_bytes=1_000_000) as web:
        for operation in operations(await document(web), tag):
            await asyncio.to_thread(attack, operation, web.serving.url, GenerationMode.POSITIVE)
            if {"parameters", "requestBody"} & set(operation.definition.raw):
                await asyncio.to_thread(attack, operation, web.serving.url, GenerationMode.NEGATIVE)


async def test_every_endpoint_is_described(tmp_path: Path) -> None:
    async with running(tmp_path) as web:
        paths = (await document(web))["paths"]
    tags = {path: each["tags"][0] for path, methods in paths.items() for each in methods.values()}
    assert [path for path, tag in tags.items() if tag not in TAGS] == []
    assert {"/api/chats/{chat}/messages", "/files/{id}/{name}", "/metrics", "/ops/api/overview", "/v1/models"} <= set(
        paths
    )
