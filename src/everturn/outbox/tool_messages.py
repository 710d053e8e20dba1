"""Messages that tools send: queued in the outbox with the tool call, then delivered like every reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from msgspec.structs import replace

from everturn import points
from everturn.agent.interface import TurnContext
from everturn.agent.toolbox import ToolFile
from everturn.errors import NoRoom
from everturn.home.files import Media
from everturn.home.rules import clean_file_name
from everturn.ids import Instance
from everturn.lifecycle.settings import Settings
from everturn.model import SessionSource, StoredFile
from everturn.outbox.hub import Hub
from everturn.outbox.rows.outbox import Posted, ToolMessage, post, was_posted
from everturn.outbox.rules.text import linked
from everturn.outbox.sender import ReplySender
from everturn.platform.connected import Platforms
from everturn.platform.interface import CanSendFiles
from everturn.store.interface import Store


class ToolMessages:
    """Queues messages and files for the send tool."""

    def __init__(
        self,
        store: Store,
        instance: Instance,
        settings: Settings,
        platforms: Platforms,
        *,
        hub: Hub,
        outbox: ReplySender,
        media: Media | None,
    ) -> None:
        self._store = store
        self._instance = instance
        self._clock = instance.clock
        self._settings = settings
        self._platforms = platforms
        self._hub = hub
        self._outbox = outbox
        self._media = media

    async def send(self, turn: TurnContext, call_id: str, to: SessionSource | None, text: str) -> bool:
        """Queue a message, to the turn's own chat where none is named; False when nobody can be reached there yet.

        The same call again sends nothing more.
        """
        return await self._post(self._tool_message(turn, call_id, to, text))

    async def send_file(
        self, turn: TurnContext, call_id: str, to: SessionSource | None, file: ToolFile, text: str
    ) -> bool | None:
        """Queue a file: it is copied first, so that it is there whatever becomes of the original. None when nobody can
        be reached there yet, False when only its name can be sent there. Raises TooLarge or NoRoom.
        """
        media, target = self._media, turn.source if to is None else to
        if media is None:
            raise NoRoom("this gateway has no folder for files")
        by_event = self._platforms.delivery(target.platform).by_event
        kept = await media.keep(clean_file_name(file.name), _whole(file.content), by_content=not by_event)
        points.reached("media.copied")
        message = self._tool_message(turn, call_id, to, linked(kept.upload, kept.type, text) if by_event else text)
        if not by_event:
            own = StoredFile(id=kept.upload.id, name=kept.upload.name, type=kept.type, size=kept.size)
            message = replace(message, file=own)
        return (by_event or self._takes_files(target.platform)) if await self._post(message) else None

    async def was_sent(self, turn: TurnContext, call_id: str) -> bool:
        """Whether an earlier attempt of the turn queued the message of this call."""
        return turn.attempt > 1 and await self._store.read(was_posted, int(turn.id), call_id)

    def _takes_files(self, platform: str) -> bool:
        return isinstance(self._platforms.adapters.get(platform), CanSendFiles)

    async def _post(self, message: ToolMessage) -> bool:
        posting = self._store.run(post, message)
        # What follows the commit happens even if this task is cancelled meanwhile.
        posting.add_done_callback(partial(self._posted, message))
        return await asyncio.shield(posting) is not None

    def _tool_message(self, turn: TurnContext, call_id: str, to: SessionSource | None, text: str) -> ToolMessage:
        target = turn.source if to is None else to
        return ToolMessage(
            key=turn.key,
            turn=int(turn.id),
            attempt=turn.attempt,
            call_id=call_id,
            number=self._instance.ids.next(),
            to_key=turn.key if to is None else self._settings.key_of(target),
            to=target,
            text=text,
            at=self._clock.now(),
            delivery=self._platforms.delivery(target.platform),
            instance=self._instance.number,
        )

    def _posted(self, message: ToolMessage, posting: asyncio.Future[Posted | None]) -> None:
        if posting.cancelled() or posting.exception() is not None:
            return  # the caller gets the error
        posted = posting.result()
        if posted is None:
            return
        points.reached("message.queued")
        if message.delivery.by_event:
            self._hub.publish(message.to_key, posted.events)
        elif posted.reply is not None:
            self._outbox.send(posted.reply, message.at)
        else:
            self._outbox.wake(message.to_key)


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    yield content
