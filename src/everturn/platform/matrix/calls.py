"""The calls of the client-server API that we use. https://spec.matrix.org/latest/client-server-api/"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any
from urllib.parse import quote

import msgspec
import structlog

from everturn.decide.matrix_errors import Forbidden, Missing
from everturn.errors import OutcomeUnknown, PlatformError, TryLater
from everturn.platform.matrix.requesting import Requests, read_answer
from everturn.platform.matrix.wire import Event, Known, Page, Sync

log = structlog.get_logger()


class Homeserver(Requests):
    """What one account asks of its homeserver. Each call raises PlatformError."""

    # -- the account ---------------------------------------------------------------------------------------------------

    async def whoami(self) -> Known:
        """Whose token it is, and of which device."""
        return await self.get("/account/whoami", Known)

    async def sync(self, since: str | None, wanted: str, wait_s: float, within_s: float) -> Sync:
        """What is new since then, waited for."""
        params = {"filter": wanted, "timeout": str(int(wait_s * 1000)), "set_presence": "online"}
        if since is not None:
            params["since"] = since
        return await self.get("/sync", Sync, params, within_s)

    async def joined_rooms(self) -> list[str]:
        """The rooms that we are in."""
        return (await self.get("/joined_rooms", Known)).joined_rooms

    # -- rooms ---------------------------------------------------------------------------------------------------------

    async def join(self, room: str) -> None:
        """Take an invitation; doing so again does no harm."""
        await self.request("POST", f"{_room(room)}/join", json={})

    async def leave(self, room: str, reason: str = "") -> None:
        """Leave a room, or decline an invitation."""
        await self.request("POST", f"{_room(room)}/leave", json={"reason": reason} if reason else {})

    async def state(self, room: str) -> list[msgspec.Raw]:
        """What holds in a room now."""
        return await self.get(f"{_room(room)}/state", list[msgspec.Raw])

    async def successor(self, room: str) -> str:
        """The room by which another one was replaced; empty if it was not. Raises PlatformError."""
        try:
            return (await self.get(f"{_room(room)}/state/m.room.tombstone/", Known)).replacement_room
        except (Forbidden, Missing):
            return ""

    async def is_encrypted(self, room: str) -> bool:
        """Whether a room is; of one that we may not look into, whoever writes there is told."""
        try:
            await self.request("GET", f"{_room(room)}/state/m.room.encryption/")
        except (Forbidden, Missing):
            return False
        except OutcomeUnknown as error:  # of the question; nothing was written
            raise TryLater(str(error), 0.0) from None
        return True

    async def messages(self, room: str, start: str, wanted: str, *, end: str = "") -> Page:
        """A page of a room's history, newest first, from one place back to another."""
        params = {"dir": "b", "filter": wanted, "limit": str(self.page)}
        params |= {name: value for name, value in (("from", start), ("to", end)) if value}
        return await self.get(f"{_room(room)}/messages", Page, params)

    async def event(self, room: str, event_id: str) -> Event:
        """One event."""
        return await self.get(f"{_room(room)}/event/{_quoted(event_id)}", Event)

    async def reactions(self, room: str, event_id: str) -> Page:
        """The newest emoji beneath a message."""
        path = f"/_matrix/client/v1/rooms/{_quoted(room)}/relations/{_quoted(event_id)}/m.annotation/m.reaction"
        return await self.get(path, Page, {"limit": "100"})

    # -- writing -------------------------------------------------------------------------------------------------------

    async def put(self, room: str, kind: str, content: dict[str, Any], txn: str) -> str:
        """Write an event under a transaction's id, which the server knows again for this device; the event's id."""
        path = f"{_room(room)}/send/{_quoted(kind)}/{_quoted(txn)}"
        answer = await self.request("PUT", path, json=content)
        number = read_answer(answer, Known).event_id
        if not number:
            raise OutcomeUnknown("the homeserver took a message without telling its id")
        return number

    async def redact(self, room: str, event_id: str, txn: str) -> None:
        """Take an event away."""
        await self.request("PUT", f"{_room(room)}/redact/{_quoted(event_id)}/{_quoted(txn)}", json={})

    async def receipt(self, room: str, event_id: str) -> None:
        """Show that we have read so far."""
        await self.request("POST", f"{_room(room)}/receipt/m.read/{_quoted(event_id)}", json={})

    async def typing(self, room: str, user: str, for_s: float) -> None:
        """Show that we write."""
        path = f"{_room(room)}/typing/{_quoted(user)}"
        await self.request("PUT", path, json={"typing": True, "timeout": int(for_s * 1000)})

    async def noted(self, user: str, room: str, name: str) -> bool:
        """Whether we noted something about a room on the server."""
        try:
            await self.request("GET", _note(user, room, name))
        except Missing:
            return False
        return True

    async def note(self, user: str, room: str, name: str) -> None:
        """Note something about a room on the server, where every life finds it."""
        await self.request("PUT", _note(user, room, name), json={"noted": True})


async def at_best(call: Awaitable[object]) -> None:
    """What is never worth a retry."""
    try:
        await call
    except PlatformError as error:
        log.info("matrix did not do what was nice to have", error=str(error))


def _room(room: str) -> str:
    return f"/rooms/{_quoted(room)}"


def _note(user: str, room: str, name: str) -> str:
    return f"/user/{_quoted(user)}{_room(room)}/account_data/{_quoted(name)}"


def _quoted(text: str) -> str:
    return quote(text, safe="")
