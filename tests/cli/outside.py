"""A program that posts messages to a gateway over HTTP, as others would."""

import json
import urllib.request
from pathlib import Path
from typing import Any

from everturn.home.folder import Home, holder
from tests.waiting import WAIT_S, poll


def post(home: Path, chat: str, message_id: str, text: str) -> Any:
    """Post a message; returns the decoded answer."""
    return call(home, f"/api/chats/{chat}/messages", {"id": message_id, "text": text})


def call(home: Path, path: str, body: object = None) -> Any:
    """One request with the home's token."""
    process = holder(Home(home))
    assert process is not None
    headers = {"Authorization": f"Bearer {(home / 'api_token').read_text().strip()}"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(process.url + path, data, headers)
    with urllib.request.urlopen(request, timeout=WAIT_S) as response:
        return json.load(response)


def rows(home: Path, chat: str) -> list[dict[str, Any]]:
    """What was said in a chat."""
    found: list[dict[str, Any]] = call(home, f"/api/chats/{chat}/transcript")["messages"]
    return found


async def answered(home: Path, chat: str, message_id: str, text: str) -> str:
    """Post it and wait until the turn has ended; the last thing that was said."""
    post(home, chat, message_id, text)
    await poll(lambda: bool(ended(home, message_id)), seen=lambda: rows(home, chat))
    assert ended(home, message_id) == "answered"
    return str(rows(home, chat)[-1]["content"])


def state_of(home: Path, message_id: str) -> str:
    """How the turn of a message stands; empty before there is one."""
    (message,) = call(home, f"/control/explain/{message_id}")["messages"]
    return str((message.get("turn") or {}).get("state", ""))


def ended(home: Path, message_id: str) -> str:
    """How the turn of a message ended; empty before it has."""
    state = state_of(home, message_id)
    return state if state not in {"running", "interrupted", "awaiting_approval"} else ""


def answers(home: Path) -> list[Any]:
    """What the agent has said in the chat `ann` so far."""
    rows = call(home, "/api/chats/ann/transcript")["messages"]
    return [row["content"] for row in rows if row["role"] == "assistant"]
