"""Fetches the attachments of a turn's messages: after their commit, before an agent sees them, within a time limit.

Nothing is kept in memory: the next attempt, in any process, fetches again what is not settled in the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import structlog

from everturn import points
from everturn.agent.interface import Agent, CanDescribe, TurnContext
from everturn.errors import NoRoom, OutcomeUnknown, Refused, StoreError, TooLarge, TryLater
from everturn.home.files import Media, SavedFile
from everturn.home.rules import Upload, too_large
from everturn.inbox import rules as texts
from everturn.inbox.rows.attachments import Arrived, Described, MissingFiles, descriptions, settle_attachments
from everturn.inbox.rules import FetchOutcome
from everturn.model import Attachment, Event, SettledFiles, StoredFile
from everturn.outbox.rules.text import storable
from everturn.platform.interface import CanFetch
from everturn.turns.attempt import Attempt, TurnEnvironment
from everturn.turns.rows.turn_values import Carried

log = structlog.get_logger()
T = TypeVar("T")
LEAST_WAIT_S = 0.5  # before the fetch of a file is retried


class Attachments:
    """Fetches files and adds them to the text of the messages they came with."""

    def __init__(self, env: TurnEnvironment, agent: Agent, media: Media | None) -> None:
        self._env = env
        self._media = media
        self._agent = agent

    async def settle(self, attempt: Attempt, turn: TurnContext) -> None:
        """Fetch what was not fetched yet; afterwards the turn's text names every file, or says why it is missing."""
        if not attempt.begun.carried:
            return
        if not attempt.has_files:
            await self._refetch_lost([each for each in attempt.begun.carried if each.settled is not None])
        attempt.has_files = True
        fresh = [each for each in attempt.begun.carried if each.settled is None]
        if fresh:
            found = await self._outcomes(fresh, turn)
            attempt.mark_active()
            await self._commit(attempt, fresh, found)

    async def _outcomes(self, fresh: Sequence[Carried], turn: TurnContext) -> list[list[FetchOutcome]]:
        """Fetch all files at once; returns an outcome per file for each message. What is not there in time is missing."""
        known = [await self._known(each) for each in fresh]
        few = [each.attachments[: texts.MOST_FILES] for each in fresh]
        chars = [texts.share_of(self._env.settings.media.text_chars, each) for each in few]
        work = [
            self._outcome(each.platform, one, known[place], turn, chars[place])
            for place, each in enumerate(fresh)
            for one in few[place]
        ]
        done = iter(await self._in_time(work))
        found = [[next(done) or texts.too_slow(one) for one in each] for each in few]
        left = [len(each.attachments) - len(taken) for each, taken in zip(fresh, few, strict=True)]
        return [each + [FetchOutcome(trouble=texts.TOO_MANY)] * more for each, more in zip(found, left, strict=True)]

    async def _in_time(self, work: Sequence[Coroutine[Any, Any, T]]) -> list[T | None]:
        """The results of the work; None for one that took too long, which is cancelled."""
        tasks = [asyncio.ensure_future(each) for each in work]
        timer = asyncio.ensure_future(self._env.clock.sleep(self._env.settings.media.fetch_s))
        try:
            while not timer.done() and not all(task.done() for task in tasks):
                open_tasks = [task for task in tasks if not task.done()]
                await asyncio.wait({timer, *open_tasks}, return_when=asyncio.FIRST_COMPLETED)
            return [task.result() if task.done() else None for task in tasks]
        finally:
            for task in (timer, *tasks):
                task.cancel()
            await asyncio.gather(timer, *tasks, return_exceptions=True)

    async def _outcome(
        self, platform: str, attachment: Attachment, known: Mapping[str, str], turn: TurnContext, chars: int
    ) -> FetchOutcome:
        described = known.get(attachment.unique, "")
        sees = isinstance(self._agent, CanDescribe) and self._agent.sees(turn)
        if not texts.is_wanted(attachment, described=bool(described), sees=sees):
            return FetchOutcome(described=described)
        try:
            kept = await self._fetched(platform, attachment)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  an adapter that raises anything else must not end the turn
            log.warning("attachment not fetched", turn_id=turn.id, kind=attachment.kind, error=repr(error)[:200])
            return texts.failed(attachment, str(error) if isinstance(error, Refused | TooLarge | NoRoom) else "")
        points.reached("media.fetched")
        if attachment.kind == "sticker":
            return FetchOutcome(described=await self._describe(kept, turn))
        return await self._read(kept, attachment, chars)

    async def _fetched(self, platform: str, attachment: Attachment) -> SavedFile:
        """Fetch a file into the home's folder. Raises Refused, TooLarge or NoRoom with a text for people."""
        media, source = self._media, self._env.platforms.fetchers.get(platform)
        if source is None or media is None:
            raise Refused(texts.NO_FILES)
        if attachment.size > media.most:
            raise TooLarge(too_large(media.most))
        while True:
            try:
                return await self._keep(media, source, attachment)
            except (TryLater, OutcomeUnknown) as error:  # asking again does no harm
                log.info("attachment fetch retried", kind=attachment.kind, error=str(error))
                asked_s = error.delay_s if isinstance(error, TryLater) else 0.0
                await self._env.clock.sleep(max(LEAST_WAIT_S, asked_s))

    async def _keep(self, media: Media, source: CanFetch, attachment: Attachment) -> SavedFile:
        kept = await media.keep(texts.name_of(attachment), source.fetch(attachment), by_content=True)
        if texts.is_forbidden(kept.type, self._env.settings.media.forbidden):
            await asyncio.to_thread(media.remove, kept.upload)
            raise Refused(texts.not_taken(kept.type))
        return kept

    async def _read(self, kept: SavedFile, attachment: Attachment, chars: int) -> FetchOutcome:
        """Put the content of a text document into the message, within a bound."""
        file = StoredFile(id=kept.upload.id, name=kept.upload.name, type=kept.type, size=kept.size)
        media = self._media
        if media is None or attachment.kind != "document" or not texts.is_text(kept.type) or not chars:
            return FetchOutcome(file)
        data = await asyncio.to_thread(media.beginning, kept.upload, chars * 4)
        said = texts.inlined(data, chars, whole=len(data) == kept.size)
        return FetchOutcome(file, text=storable(said[0]), chars=said[1]) if said else FetchOutcome(file)

    async def _describe(self, kept: SavedFile, turn: TurnContext) -> str:
        """Let a model describe a still sticker; empty when it cannot."""
        if kept.type not in texts.STILL or not isinstance(self._agent, CanDescribe):
            return ""
        said = await self._agent.describe(turn, texts.DESCRIBE.format(address=kept.upload.address))
        return storable(texts.description_of(said))

    async def _known(self, carried: Carried) -> Mapping[str, str]:
        stickers = [each.unique for each in carried.attachments if each.kind == "sticker" and each.unique]
        return await self._env.store.read(descriptions, carried.platform, stickers) if stickers else {}

    async def _refetch_lost(self, settled: Sequence[Carried]) -> None:
        """Fetch files that an earlier attempt settled, maybe in the home of another replica, and that are not here."""
        media, lost = self._media, []
        for each in settled:
            for attachment, file in zip(each.attachments, each.settled.files if each.settled else (), strict=False):
                if media and file and not await asyncio.to_thread(media.touch, Upload(file.id, file.name)):
                    lost.append((each.platform, attachment))
        if lost:
            await self._in_time([self._refetch(*each) for each in lost])

    async def _refetch(self, platform: str, attachment: Attachment) -> None:
        try:
            await self._fetched(platform, attachment)
        except Exception as error:  # noqa: BLE001  its line stays in the text, as for a file that has expired
            log.warning("attachment not fetched again", kind=attachment.kind, error=repr(error)[:200])

    async def _commit(
        self, attempt: Attempt, fresh: Sequence[Carried], found: Sequence[Sequence[FetchOutcome]]
    ) -> None:
        begun = attempt.begun
        pairs = list(zip(fresh, found, strict=True))
        arrived = [Arrived(each.inbox, each.seq, _settled(each, outcomes)) for each, outcomes in pairs]
        described = [one for each, outcomes in pairs for one in _described(each, outcomes)]
        reasons = [why for each, outcomes in pairs for why in texts.missing(each.attachments, outcomes)]
        missing = (
            MissingFiles(self._env.instance.ids.next(), begun.source, texts.missing_notice(reasons))
            if reasons
            else None
        )
        delivery = self._env.platforms.delivery(begun.source.platform)
        settling = self._env.store.run(
            settle_attachments, begun, arrived, described, missing, self._env.clock.now(), delivery
        )
        # What follows the commit happens even if this task is cancelled meanwhile.
        settling.add_done_callback(partial(self._committed, attempt, arrived))
        await asyncio.shield(settling)

    def _committed(
        self, attempt: Attempt, arrived: Sequence[Arrived], settling: asyncio.Future[tuple[Event, ...]]
    ) -> None:
        if settling.cancelled() or settling.exception() is not None:
            return  # the task that settles gets the error
        attempt.add_settled({each.inbox: each.settled for each in arrived})
        points.reached("media.settled")
        self._env.hub.publish(attempt.begun.key, settling.result())
        attempt.env.deliver(attempt.begun.key)


def _settled(carried: Carried, outcomes: Sequence[FetchOutcome]) -> SettledFiles:
    text = texts.settled_text(carried.text, carried.attachments, outcomes)
    return SettledFiles(text=storable(text), files=tuple(each.file for each in outcomes))


def _described(carried: Carried, outcomes: Sequence[FetchOutcome]) -> list[Described]:
    pairs = zip(carried.attachments, outcomes, strict=True)
    return [Described(carried.platform, a.unique, o.described) for a, o in pairs if a.unique and o.described]
