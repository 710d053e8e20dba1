"""The hand on one bubble: the only way its parts are added and changed, by who shows it grow and by who delivers it.

A new part is written, sent, written: a death in between is seen in the row, and decided by the platform's class.
"""

from __future__ import annotations

import hashlib
from typing import NoReturn

from msgspec.structs import replace

from everturn import points
from everturn.decide.delivery import Doubtful, Surety
from everturn.decide.display import answering
from everturn.decide.streaming import given_up, part_key, resolved
from everturn.errors import EverturnError, OutcomeUnknown, Refused, StoreError, TryLater
from everturn.gateway.parts import Parts
from everturn.gateway.screens import Screen, look
from everturn.model import Bubble, SessionSource
from everturn.platform.interface import CanSend
from everturn.store.operations.outbox import record_bubble


class Held(EverturnError):
    """A part may be out, and the owner's policy is not to send it again: to ask, or to drop it."""

    def __init__(self, action: Doubtful) -> None:
        super().__init__("a part of it may have been sent")
        self.action = action


class InDoubt(OutcomeUnknown):
    """A new part may be out."""


def digest(text: str) -> str:
    """What a part shows, short enough for a row."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _without_end(out: tuple[str, ...]) -> tuple[str, ...]:
    """The parts up to the last that is there."""
    return out[: max((place + 1 for place, part in enumerate(out) if part), default=0)]


class Hand:
    """What is out of one bubble, and what each part of it shows as far as we know."""

    def __init__(
        self,
        parts: Parts,
        to: SessionSource,
        platform: CanSend,
        screen: Screen,
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
        """The bubble, with what its parts show."""
        return replace(self.bubble, shown=tuple(self._shown), said=self.said)

    def shows(self, place: int, piece: str) -> bool:
        """Whether a part is known to show this."""
        return self._shown[place] == digest(piece)

    async def change(self, place: int, piece: str) -> None:
        """Replace what a part shows, unless it shows it."""
        if not self.shows(place, piece):
            self._shown[place] = ""
            await self.screen.change(self.to, self.out[place], piece)
            self._shown[place] = digest(piece)

    async def end(self, place: int, piece: str) -> None:
        """A part's last shape; a card is closed whatever it shows."""
        if self.screen.closes:
            await self.screen.end(self.to, self.out[place], piece)
            self._shown[place] = digest(piece)
        else:
            await self.change(place, piece)

    async def remove(self, place: int) -> bool:
        """Take a part away that the answer does not need; False where it has to stay."""
        if not await self.screen.remove(self.to, self.out[place]):
            return False
        points.reached("preview.removed")
        self.out = _without_end((*self.out[:place], "", *self.out[place + 1 :]))
        await self._keep(self.bubble)
        return True

    async def add(self, place: int, piece: str) -> None:
        """A new part, or one in the place of a part that is gone."""
        if self.bubble.sending != place:
            await self._keep(replace(self.bubble, sending=place))
            points.reached("preview.opened")
        repeats = self.bubble.repeats
        number = await self._sent(place, piece)
        points.reached("preview.sent")
        self.out = (*self.out[:place], number, *self.out[place + 1 :])
        self._shown[place:] = ["" if repeats else digest(piece), *self._shown[place + 1 :]]
        # From now on it may show something else: what it shows is known to this hand alone.
        await self._keep(replace(self.bubble, sending=None, repeats=False, said=self.said, shown=()))
        points.reached("preview.committed")

    async def find(self, place: int, piece: str) -> None:
        """The next part may be out: then it is known from now on. Where looking proves nothing, it is sent under its key."""
        key = part_key(self.bubble.name, place, self.bubble.replaces)
        found = await look(self.platform, self.to, key, piece)
        if found is None and self.platform.surety is Surety.KEYED:
            await self.add(place, piece)
            return
        if found is not None:
            self.out, self._shown = (*self.out, found), [*self._shown, ""]
        await self._keep(replace(self.bubble, repeats=False))

    async def _sent(self, place: int, piece: str) -> str:
        key = part_key(self.bubble.name, place, self.bubble.replaces)
        try:
            found = await look(self.platform, self.to, key, piece) if self.bubble.repeats else None
            to = answering(self.to, self._parts.settings.display.look(self.to), place)
            return found or await self.screen.show(to, piece, key)
        except (TryLater, Refused):
            await self._keep(replace(self.bubble, sending=None))
            raise
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  whatever an adapter raises, it may be out
            await self._doubt(error)

    async def _doubt(self, error: Exception) -> NoReturn:
        await self.resolve()
        raise InDoubt(f"{type(error).__name__}: {error}") from error

    async def resolve(self) -> None:
        """A part may be out: by the platform's class it is repeated, looked for, marked; or, by policy, Held is raised."""
        if self.bubble.sending is not None:
            await self._keep(resolved(self.bubble, self._parts.doubtful(self.to.platform)))
        if (hold := self.bubble.hold) is not None:
            raise Held(Doubtful(hold))

    async def give_up(self) -> None:
        """The owner's policy leaves it; should somebody send it after all, it is marked."""
        await self._keep(given_up(self.bubble, len(self.out)))

    async def lose(self, place: int) -> None:
        """A part can not be changed any more: another one replaces it, and says so."""
        self.out = (*self.out[:place], "", *self.out[place + 1 :])
        self._shown[place] = ""
        await self._keep(replace(self.bubble, replaces=(*self.bubble.replaces, place)))

    async def _keep(self, bubble: Bubble) -> None:
        self.bubble = bubble
        await self._parts.store.run(record_bubble, self.row, self.claim, self.out, bubble)
