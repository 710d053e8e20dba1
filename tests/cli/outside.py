"""A program that posts messages to a gateway over HTTP, as others would."""

import json
import urllib.request
from pathlib import Path
from typing import Any

from everturn.home import Home, holder


def post(home: Path, chat: str, message_id: str, text: str) -> Any:
    """Post a message; returns the decoded answer."""
    return call(home, f"/api/chats/{chat}/messages", {"id": message_id, "text": text})


def call(home: Path, path: str, body: object = None) -> Any:
    """One request with the home's token."""
    who = holder(Home(home))
    assert who is not None
    headers = {"Authorization": f"Bearer {(home / 'api_token').read_text().strip()}"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(who.url + path, data, headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)
