"""The calls of the client-server API that we use. https://spec.matrix.org/latest/client-server-api/"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any
from urllib.parse import quote

import msgspec
import structlog

from everturn.errors import OutcomeUnknown, PlatformError, TryLater
from everturn.platform.matrix.requesting import MatrixRequests, read_answer
from everturn.platform.matrix.rules.errors import Forbidden, MatrixNotFound
from everturn.platform.matrix.wire import HistoryPage, MatrixEvent, SmallResponse, Sync

log = structlog.get_logger()


class Homeserver(MatrixRequests):
    """The calls of one account to its homeserver. Each raises PlatformError."""

    # -- the account ---------------------------------------------------------------------------------------------------

    async def whoami(self) -> SmallResponse:
        """The account and the device of the access token."""
        return await self.get("/account/whoami", SmallResponse)

    async def sync(self, since: str | None, wanted: str, wait_s: float, within_s: float) -> Sync:
        """Long-poll for what is new since then."""
        params = {"filter": wanted, "timeout": str(int(wait_s * 1000)), "set_presence": "online"}
        if since is not None:
            params["since"] = since
        return await self.get("/sync", Sync, params, within_s)

    async def joined_rooms(self) -> list[str]:
        """The rooms that we are in."""
        return (await self.get("/joined_rooms", SmallResponse)).joined_rooms

    # -- rooms ---------------------------------------------------------------------------------------------------------

    async def join(self, room: str) -> None:
        """Accept an invitation; a repetition succeeds."""
        await self.request("POST", f"{_room(room)}/join", json={})

    async def leave(self, room: str, reason: str = "") -> None:
        """Leave a room, or decline an invitation."""
        await self.request("POST", f"{_room(room)}/leave", json={"reason": reason} if reason else {})

    async def state(self, room: str) -> list[msgspec.Raw]:
        """The state events of a room."""
        return await self.get(f"{_room(room)}/state", list[msgspec.Raw])

    async def successor(self, room: str) -> str:
        """The room that replaced this one; empty if none did. Raises PlatformError."""
        try:
            return (await self.get(f"{_room(room)}/state/m.room.tombstone/", SmallResponse)).replacement_room
        except (Forbidden, MatrixNotFound):
            return ""

    async def is_encrypted(self, room: str) -> bool:
        """Whether a room is encrypted; False for a room that we may not look into, where sending reports it."""
        try:
            await self.request("GET", f"{_room(room)}/state/m.room.encryption/")
        except (Forbidden, MatrixNotFound):
            return False
        except OutcomeUnknown as error:  # of a read: nothing was written
            raise TryLater(str(error), 0.0) from None
        return True

    async def messages(self, room: str, start: str, wanted: str, *, end: str = "") -> HistoryPage:
        """A page of a room's history, newest first, from one place back to another."""
        params = {"dir": "b", "filter": wanted, "limit": str(self.page)}
        params |= {name: value for name, value in (("from", start), ("to", end)) if value}
        return await self.get(f"{_room(room)}/messages", HistoryPage, params)

    async def event(self, room: str, event_id: str) -> MatrixEvent:
        """One event."""
        return await self.get(f"{_room(room)}/event/{_quoted(event_id)}", MatrixEvent)

    async def reactions(self, room: str, event_id: str) -> HistoryPage:
        """The newest reactions to a message."""
        path = f"/_matrix/client/v1/rooms/{_quoted(room)}/relations/{_quoted(event_id)}/m.annotation/m.reaction"
        return await self.get(path, HistoryPage, {"limit": "100"})

    # -- writing -------------------------------------------------------------------------------------------------------

    async def put(self, room: str, kind: str, content: dict[str, Any], txn: str) -> str:
        """Send an event under a transaction id, which the server recognises for this device; returns the event's id."""
        path = f"{_room(room)}/send/{_quoted(kind)}/{_quoted(txn)}"
        answer = await self.request("PUT", path, json=content)
        number = read_answer(answer, SmallResponse).event_id
        if not number:
            raise OutcomeUnknown("the homeserver accepted a message without returning its id")
        return number

    async def redact(self, room: str, event_id: str, txn: str) -> None:
        """Redact an event."""
        await self.request("PUT", f"{_room(room)}/redact/{_quoted(event_id)}/{_quoted(txn)}", json={})

    async def receipt(self, room: str, event_id: str) -> None:
        """Send a read receipt."""
        await self.request("POST", f"{_room(room)}/receipt/m.read/{_quoted(event_id)}", json={})

    async def typing(self, room: str, user: str, for_s: float) -> None:
        """Show the typing indicator."""
        path = f"{_room(room)}/typing/{_quoted(user)}"
        await self.request("PUT", path, json={"typing": True, "timeout": int(for_s * 1000)})

    async def noted(self, user: str, room: str, name: str) -> bool:
        """Whether we saved a note about a room on the server."""
        try:
            await self.request("GET", _note(user, room, name))
        except MatrixNotFound:
            return False
        return True

    async def note(self, user: str, room: str, name: str) -> None:
        """Save a note about a room on the server, where every later process finds it."""
        await self.request("PUT", _note(user, room, name), json={"noted": True})


async def best_effort(call: Awaitable[object]) -> None:
    """Make a call that is not worth a retry; a failure is only logged."""
    try:
        await call
    except PlatformError as error:
        log.info("optional Matrix call failed", error=str(error))


def _room(room: str) -> str:
    return f"/rooms/{_quoted(room)}"


def _note(user: str, room: str, name: str) -> str:
    return f"/user/{_quoted(user)}{_room(room)}/account_data/{_quoted(name)}"


def _quoted(text: str) -> str:
    return quote(text, safe="")
