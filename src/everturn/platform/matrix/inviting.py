"""Answers invitations: accepts those of approved people, declines all others. The gateway decides who is approved."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import structlog

from everturn.clock import Clock
from everturn.errors import EverturnError
from everturn.model import SessionSource
from everturn.people.rules.admission import AccessVerdict
from everturn.people.rules.people_texts import not_joined
from everturn.platform.matrix.calls import Homeserver
from everturn.platform.matrix.rules.invitations import after_failure
from everturn.platform.matrix.wire import Invited, understood

log = structlog.get_logger()
Welcome = Callable[[SessionSource], Awaitable[AccessVerdict]]
FRIENDS = 1000
STRANGERS = 200


@dataclass(frozen=True, slots=True)
class Invitation:
    """An open invitation."""

    source: SessionSource
    failures: int = 0
    not_before: float = 0.0


class InvitationQueue:
    """Open invitations, answered one after the other; bounded."""

    def __init__(self, longest: int) -> None:
        self.open: dict[str, Invitation] = {}
        self.changed = asyncio.Event()
        self._longest = longest

    def add(self, room: str, source: SessionSource) -> None:
        """Add an invitation, in place of an older one to the same room."""
        if room not in self.open and len(self.open) >= self._longest:
            log.warning("too many open invitations, one is left for the next start", room=room)
            return
        self.open[room] = Invitation(source)
        self.changed.set()

    def first(self) -> tuple[str, Invitation] | None:
        """The invitation that is due first."""
        return min(self.open.items(), key=lambda each: each[1].not_before, default=None)

    async def wait(self, longest_s: float | None) -> None:
        """Wait until there is another invitation, or the time is over."""
        self.changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                await self.changed.wait()


class Invitations:
    """Answers open invitations in the background: no message waits for the homeserver of an inviter, and approved people
    do not wait for strangers. What this process does not answer the next one does: the server shows it at
    every start.
    """

    def __init__(self, server: Homeserver, platform: str, user: str, welcome: Welcome, clock: Clock) -> None:
        self._server = server
        self._platform = platform
        self._user = user
        self._welcome = welcome
        self._clock = clock
        self._friends, self._strangers = InvitationQueue(FRIENDS), InvitationQueue(STRANGERS)
        self._answering: list[asyncio.Task[None]] = []

    async def hear(self, invited: Mapping[str, Invited]) -> None:
        """Take new invitations from a sync."""
        for room, about in invited.items():
            source = self._source(room, about)
            if source is not None:
                known = await self._welcome(source) is AccessVerdict.ALLOWED
                line, other = (self._friends, self._strangers)[:: 1 if known else -1]
                other.open.pop(room, None)  # somebody else invited us there before
                line.add(room, source)
        if not self._answering:
            self._answering = [asyncio.create_task(self._answer_all(each)) for each in (self._friends, self._strangers)]

    def close(self) -> None:
        """Stop answering."""
        for each in self._answering:
            each.cancel()

    async def _answer_all(self, line: InvitationQueue) -> None:
        while True:
            first, now = line.first(), self._clock.monotonic()
            if first is None:
                await line.wait(None)
            elif first[1].not_before > now:
                await line.wait(first[1].not_before - now)
            else:
                await self._try(line, *first)

    async def _try(self, line: InvitationQueue, room: str, invitation: Invitation) -> None:
        again = None
        try:
            await self._answer(room, invitation.source)
        except EverturnError as error:
            again = after_failure(error, invitation.failures, random.random())  # noqa: S311  not a secret
            in_s = round(again.in_s, 1) if again else None
            log.warning("invitation not answered", room=room, error=str(error), again_in_s=in_s)
        if line.open.get(room) is not invitation:
            return  # there is a newer invitation
        del line.open[room]
        if again is not None:
            until = self._clock.monotonic() + again.in_s
            line.open[room] = replace(invitation, failures=again.failures, not_before=until)

    async def _answer(self, room: str, source: SessionSource) -> None:
        verdict = await self._welcome(source)
        if verdict is AccessVerdict.ALLOWED:
            await self._server.join(room)
            log.info("joined a room", room=room, invited_by=source.user_id)
        else:
            # In a direct chat strangers get the reason, where they may request access; elsewhere no reply.
            await self._server.leave(room, not_joined(source.user_id or "") if verdict is AccessVerdict.PAIR else "")

    def _source(self, room: str, about: Invited) -> SessionSource | None:
        """The inviter: the last of these events is the invitation itself, which our homeserver has checked. Those before it
        were chosen by the inviter's server, and may say anything.
        """
        for event in reversed(understood(about.invite_state.events)):
            if event.membership_of(self._user) == "invite":
                direct = event.content.get("is_direct") is True
                return SessionSource(
                    platform=self._platform,
                    account=self._user,
                    chat_id=room,
                    chat_type="dm" if direct else "group",
                    user_id=event.sender,
                )
        return None
