"""People on a homeserver, who can be scripted: they write, edit, react, send files, make rooms, and look.

What they do is done at once, by a plain request; what they wait for, they wait for on a long poll. Each request names the
part of https://spec.matrix.org/v1.11/client-server-api/ that it follows by its path.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from tests.synapse.screen import Event, Screen
from tests.synapse.seen import Seen
from tests.waiting import WAIT_S, within

T = TypeVar("T")
POLL_MS = 100  # what a person waits for may be nothing that they receive: then it is looked at so often
TRANSACTIONS = itertools.count(1)
API = "/_matrix/client/v3"
FILTER = '{"presence":{"types":[]},"account_data":{"types":[]},"room":{"timeline":{"limit":20}}}'


class Account:
    """Somebody's access to the server: requests as them."""

    def __init__(self, url: str, user_id: str, access_token: str, device_id: str = "") -> None:
        self.url = url
        self.user_id = user_id
        self.token = access_token
        self.device_id = device_id
        self.headers = {"authorization": f"Bearer {access_token}"}
        self._client = httpx.Client(base_url=url, headers=self.headers, timeout=WAIT_S, verify=False)

    def asks(self, method: str, path: str, **more: Any) -> Any:
        """Any request of the client-server API, as this person."""
        answer = self._client.request(method, path if path.startswith("/_") else f"{API}{path}", **more)
        if answer.is_error:
            raise AssertionError(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.json()

    def uploads(self, content: bytes, mime: str, name: str = "") -> str:
        """Give the server a file; its mxc:// address."""
        headers = {"content-type": mime}
        path = "/_matrix/media/v3/upload"
        return str(self.asks("POST", path, params={"filename": name}, content=content, headers=headers)["content_uri"])

    def downloads(self, address: str) -> bytes:
        """What an mxc:// address stands for."""
        path = f"/_matrix/client/v1/media/download/{address.removeprefix('mxc://')}"
        return self._client.get(path).raise_for_status().content

    def close(self) -> None:
        """End the connections."""
        self._client.close()


class Person(Account):
    """Somebody with an account. `room` is always the id of a room."""

    def __init__(self, url: str, user_id: str, access_token: str, device_id: str = "") -> None:
        super().__init__(url, user_id, access_token, device_id)
        self.seen = Seen()

    # -- writing -------------------------------------------------------------------------------------------------------

    def says(
        self,
        room: str,
        text: str,
        *,
        thread: str | None = None,
        reply_to: str | None = None,
        txn: str = "",
        **more: Any,
    ) -> str:
        """Write; the event's id. `more` goes into the content (msgtype, formatted_body, m.mentions, ...)."""
        content = {"msgtype": "m.text", "body": text, **more}
        if relation := related(thread, reply_to):
            content["m.relates_to"] = relation
        return self.sends(room, "m.room.message", content, txn)

    def edits(self, room: str, event_id: str, text: str) -> str:
        """Edit a message."""
        new = {"msgtype": "m.text", "body": text}
        relation = {"rel_type": "m.replace", "event_id": event_id}
        old = {**new, "body": f"* {text}", "m.new_content": new, "m.relates_to": relation}
        return self.sends(room, "m.room.message", old)

    def reacts(self, room: str, event_id: str, key: str) -> str:
        """Put an emoji on a message."""
        relation = {"rel_type": "m.annotation", "event_id": event_id, "key": key}
        return self.sends(room, "m.reaction", {"m.relates_to": relation})

    def redacts(self, room: str, event_id: str) -> str:
        """Redact a message."""
        path = f"/rooms/{quote(room)}/redact/{quote(event_id)}/{new_transaction()}"
        return str(self.asks("PUT", path, json={})["event_id"])

    def sends(self, room: str, kind: str, content: Event, txn: str = "") -> str:
        """Any event; the same `txn` twice is one event."""
        path = f"/rooms/{quote(room)}/send/{kind}/{quote(txn or new_transaction())}"
        return str(self.asks("PUT", path, json=content)["event_id"])

    def sends_file(self, room: str, content: bytes, name: str, mime: str, msgtype: str = "m.file", **more: Any) -> str:
        """Write a message that is a file."""
        info = {"mimetype": mime, "size": len(content)}
        return self.says(room, name, msgtype=msgtype, url=self.uploads(content, mime, name), info=info, **more)

    # -- rooms ---------------------------------------------------------------------------------------------------------

    def makes_room(
        self, name: str = "", invite: Sequence[str] = (), *, direct: bool = False, encrypted: bool = False
    ) -> str:
        """A private room; its id."""
        wanted: Event = {"preset": "private_chat", "invite": list(invite), "is_direct": direct}
        if name:
            wanted["name"] = name
        if encrypted:
            algorithm = {"algorithm": "m.megolm.v1.aes-sha2"}
            wanted["initial_state"] = [{"type": "m.room.encryption", "content": algorithm}]
        return str(self.asks("POST", "/createRoom", json=wanted)["room_id"])

    def direct(self, other: str) -> str:
        """A chat with one other person, as clients make it: trusted, and marked as direct for us."""
        room = self.makes_room(invite=[other], direct=True)
        path = f"/user/{quote(self.user_id)}/account_data/m.direct"
        self.asks("PUT", path, json={other: [room]})
        return room

    def invites(self, room: str, user_id: str) -> None:
        self.asks("POST", f"/rooms/{quote(room)}/invite", json={"user_id": user_id})

    def joins(self, room: str) -> None:
        self.asks("POST", f"/rooms/{quote(room)}/join", json={})

    def leaves(self, room: str) -> None:
        self.asks("POST", f"/rooms/{quote(room)}/leave", json={})

    def kicks(self, room: str, user_id: str) -> None:
        self.asks("POST", f"/rooms/{quote(room)}/kick", json={"user_id": user_id})

    # -- looking -------------------------------------------------------------------------------------------------------

    def screen(self, room: str) -> Screen:
        """What this person sees in a room now."""
        self._take(self.asks("GET", "/sync", params=self._where(0)))
        return self.seen.screen(room)

    async def until(self, true: Callable[[], T], within_s: float = WAIT_S) -> T:
        """Wait until this is true, and return what it said; looked at again whenever this person receives something. A failure tells
        what is on their screens.
        """
        transport = httpx.AsyncHTTPTransport(verify=False)
        client = httpx.AsyncClient(base_url=self.url, headers=self.headers, timeout=within_s, transport=transport)
        async with client, within(within_s, lambda: f"{self.user_id} sees {self.seen.texts()}"):
            while not (found := true()):
                since = self.seen.since
                answer = await client.get(f"{API}/sync", params=self._where(POLL_MS))
                if self.seen.since == since:
                    self._take(answer.raise_for_status().json())
        return found

    def _where(self, timeout_ms: int) -> dict[str, str | int]:
        since = {"since": self.seen.since} if self.seen.since else {}
        return {**since, "timeout": timeout_ms, "filter": FILTER}

    def _take(self, answer: Event) -> None:
        for room, token in self.seen.take(answer):
            self._fill(room, token)

    def _fill(self, room: str, token: str | None) -> None:
        """Read what a limited answer left out, backwards, up to what is known."""
        while token:
            params: dict[str, Any] = {"dir": "b", "from": token, "limit": 100}
            page = self.asks("GET", f"/rooms/{quote(room)}/messages", params=params)
            token = page.get("end") if self.seen.fill(room, page["chunk"]) else None


def new_transaction() -> str:
    """A key of a request that nobody had: the same one again would be the same request."""
    return f"{os.getpid()}-{next(TRANSACTIONS)}"


def related(thread: str | None, reply_to: str | None) -> Event:
    """How a message belongs to others: the reply inside a thread is a fallback unless it is meant."""
    relation: Event = {}
    if thread is not None:
        relation |= {"rel_type": "m.thread", "event_id": thread, "is_falling_back": reply_to is None}
    if thread is not None or reply_to is not None:
        relation["m.in_reply_to"] = {"event_id": reply_to or thread}
    return relation
