"""The only writer of a streaming message, for previews and final delivery.

A new part is recorded, sent, recorded: a crash in between is seen in the row, and decided by the platform's class.
"""

from __future__ import annotations

import hashlib
from typing import NoReturn

from msgspec.structs import replace

from everturn import points
from everturn.errors import EverturnError, OutcomeUnknown, Refused, StoreError, TryLater
from everturn.lifecycle.parts import Parts
from everturn.model import Bubble, SessionSource
from everturn.outbox.rows.outbox import record_bubble
from everturn.outbox.rules.delivery import Surety, UnknownAction
from everturn.outbox.rules.display import answering
from everturn.outbox.rules.streaming import part_key, resolved, with_resend_mark
from everturn.outbox.screens import MessageScreen, find_sent
from everturn.platform.interface import CanSend


class DeliveryHeld(EverturnError):
    """The delivery of a part is unknown, and the owner's policy is not to repeat it: to ask, or to drop it."""

    def __init__(self, action: UnknownAction) -> None:
        super().__init__("a part of the message may have been sent")
        self.action = action


class DeliveryUnknown(OutcomeUnknown):
    """The delivery of a new part is unknown."""


def digest(text: str) -> str:
    """A short hash of the text of a part."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _without_end(out: tuple[str, ...]) -> tuple[str, ...]:
    """The parts up to the last that was sent."""
    return out[: max((place + 1 for place, part in enumerate(out) if part), default=0)]


class MessageWriter:
    """Writes the parts of one bubble; knows their ids and, where possible, the text that each shows."""

    def __init__(
        self,
        parts: Parts,
        to: SessionSource,
        platform: CanSend,
        screen: MessageScreen,
        *,
        row: int,
        claim: int,
        out: tuple[str, ...],
        bubble: Bubble,
    ) -> None:
        self.row = row
        self.claim = claim  # the number under which the row is ours to write
        self.to = to
        self.out = out
        self.bubble = bubble
        self.screen = screen
        self.platform = platform
        self.said = bubble.said
        self._parts = parts
        known = bubble.shown[: len(out)]
        self._shown = [*known, *[""] * (len(out) - len(known))]

    @property
    def known(self) -> Bubble:
        """The bubble, with the hashes of what its parts show."""
        return replace(self.bubble, shown=tuple(self._shown), said=self.said)

    def shows(self, place: int, piece: str) -> bool:
        """Whether a part is known to show this text."""
        return self._shown[place] == digest(piece)

    async def change(self, place: int, piece: str) -> None:
        """Replace the text of a part, unless it shows it already."""
        if not self.shows(place, piece):
            self._shown[place] = ""
            await self.screen.change(self.to, self.out[place], piece)
            self._shown[place] = digest(piece)

    async def end(self, place: int, piece: str) -> None:
        """Set the final text of a part; a card is closed whatever it shows."""
        if self.screen.closes:
            await self.screen.end(self.to, self.out[place], piece)
            self._shown[place] = digest(piece)
        else:
            await self.change(place, piece)

    async def remove(self, place: int) -> bool:
        """Delete a part that the answer does not need; False where it has to stay."""
        if not await self.screen.remove(self.to, self.out[place]):
            return False
        points.reached("preview.removed")
        self.out = _without_end((*self.out[:place], "", *self.out[place + 1 :]))
        await self._keep(self.bubble)
        return True

    async def add(self, place: int, piece: str) -> None:
        """Send a new part, or one in the place of a part that is gone."""
        if self.bubble.sending != place:
            await self._keep(replace(self.bubble, sending=place))
            points.reached("preview.opened")
        repeats = self.bubble.repeats
        number = await self._sent(place, piece)
        points.reached("preview.sent")
        self.out = (*self.out[:place], number, *self.out[place + 1 :])
        self._shown[place:] = ["" if repeats else digest(piece), *self._shown[place + 1 :]]
        # From now on it may show something else: only this writer knows what.
        await self._keep(replace(self.bubble, sending=None, repeats=False, said=self.said, shown=()))
        points.reached("preview.committed")

    async def find(self, place: int, piece: str) -> None:
        """Look for the next part, which may be out, and record it. Where looking proves nothing, it is sent under its key."""
        key = part_key(self.bubble.name, place, self.bubble.replaces)
        found = await find_sent(self.platform, self.to, key, piece)
        if found is None and self.platform.surety is Surety.KEYED:
            await self.add(place, piece)
            return
        if found is not None:
            self.out, self._shown = (*self.out, found), [*self._shown, ""]
        await self._keep(replace(self.bubble, repeats=False))

    async def _sent(self, place: int, piece: str) -> str:
        key = part_key(self.bubble.name, place, self.bubble.replaces)
        try:
            found = await find_sent(self.platform, self.to, key, piece) if self.bubble.repeats else None
            to = answering(self.to, self._parts.settings.display.look(self.to), place)
            return found or await self.screen.show(to, piece, key)
        except (TryLater, Refused):
            await self._keep(replace(self.bubble, sending=None))
            raise
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  whatever an adapter raises, the part may be out
            await self._mark_unknown(error)

    async def _mark_unknown(self, error: Exception) -> NoReturn:
        await self.resolve()
        raise DeliveryUnknown(f"{type(error).__name__}: {error}") from error

    async def resolve(self) -> None:
        """Decide about a part whose delivery is unknown: repeat, look for or mark it; or, by policy, raise DeliveryHeld."""
        if self.bubble.sending is not None:
            await self._keep(resolved(self.bubble, self._parts.unknown_action(self.to.platform)))
        if (hold := self.bubble.hold) is not None:
            raise DeliveryHeld(UnknownAction(hold))

    async def mark_for_resend(self) -> None:
        """Record that the held part is marked as a possible repetition, should somebody send it after all."""
        await self._keep(with_resend_mark(self.bubble, len(self.out)))

    async def lose(self, place: int) -> None:
        """Record that a part cannot be edited any more: another one replaces it, and says so."""
        self.out = (*self.out[:place], "", *self.out[place + 1 :])
        self._shown[place] = ""
        await self._keep(replace(self.bubble, replaces=(*self.bubble.replaces, place)))

    async def _keep(self, bubble: Bubble) -> None:
        self.bubble = bubble
        await self._parts.store.run(record_bubble, self.row, self.claim, self.out, bubble)
