"""The tools `send_message` and `send_file`: to the conversation's chat, to a chat that the owner named, or to one of the
chat directory that everybody who speaks in the turn may use. The outbox delivers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Protocol

from everturn.agent.folder import Folder, parts_of
from everturn.agent.interface import TurnContext
from everturn.agent.toolbox import Arguments, Text, Tool, ToolError, ToolFile, ToolPlace, says, tool
from everturn.errors import NoRoom, TooLarge
from everturn.home.rules import upload_at
from everturn.model import Effect, SessionSource
from everturn.outbox.rules.text import keeps_secrets, will_be_sent
from everturn.people.rows.directory import Directory
from everturn.people.rules.directory import kinds, plain
from everturn.turns.rules.turns import storable

HERE = "here"
LISTED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSettings:
    """The chats that may be written to, by the names the model uses; and whether the conversation's own chat is one."""

    targets: Mapping[str, SessionSource] = field(default_factory=dict)
    own_chat: bool = True
    text_chars: int = 8_000
    directory: bool = False  # whether chats of the directory may be written to, too
    folder: Path | None = None  # whose files may be sent; None: none
    uploads: Path | None = None  # the folder of what came with messages: it can be sent by its address
    file_bytes: int = 20 * 1024 * 1024


class Places(Protocol):
    """The chats that the people of a turn may use (people/directory.py)."""

    async def usable(self, turn: TurnContext, /) -> Directory:
        """All chats that the turn may write to."""
        ...

    async def find(self, turn: TurnContext, name: str, /) -> SessionSource | str:
        """The chat of this name, or a text that says why there is none."""
        ...


class Sender(Protocol):
    """Queues a message for delivery, once for each call (outbox/tool_messages.py)."""

    async def __call__(self, turn: TurnContext, call_id: str, to: SessionSource | None, text: str, /) -> bool:
        """Queue the message; False when nobody can be reached there yet."""
        ...


class FileSender(Protocol):
    """Queues a file for delivery, once for each call (outbox/tool_messages.py)."""

    async def send_file(
        self, turn: TurnContext, call_id: str, to: SessionSource | None, file: ToolFile, query: str, /
    ) -> bool | None:
        """Queue the file; None when nobody can be reached there yet, False when the platform shows only its name."""
        ...

    async def was_sent(self, turn: TurnContext, call_id: str, /) -> bool:
        """Whether an earlier attempt has queued this call already."""
        ...


class SendMessage(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which message to send, and where."""

    to: Annotated[Text, says("The name of the chat.")]
    text: Annotated[Text, says("The message.")]


class SendFile(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which file to send, and where."""

    to: Annotated[Text, says("The name of the chat.")]
    path: Annotated[Text, says("The file: a path below the folder, or the address of one that was sent (/files/...).")]
    text: Annotated[str, says("The caption; may be empty.")] = ""


class ListChannels(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which chats to list."""

    query: Annotated[str, says("Only chats whose name or address contains these words; empty for all.")] = ""


def no_files() -> FileSender | None:
    """The FileSender of a gateway that sends no files."""
    return None


def no_places() -> Places | None:
    """The Places of a gateway without a chat directory."""
    return None


class Send:
    """The tools `send_message`, `send_file` and `list_channels`."""

    def __init__(
        self,
        settings: SendSettings,
        sender: Sender,
        places: Callable[[], Places | None],
        files: Callable[[], FileSender | None],
    ) -> None:
        self._settings = settings
        self._sender = sender
        self._files = files
        self._places = places if settings.directory else no_places
        self._names = ([HERE] if settings.own_chat else []) + sorted(settings.targets)

    def tools(self) -> list[Tool]:
        """The tools; none when there is no chat to write to, and `list_channels` only with the directory."""
        if not self._names and not self._settings.directory:
            return []
        more = ["those that list_channels shows, by name or address"] if self._settings.directory else []
        chats = ", ".join([*self._names, *more])
        description = f"Send a message besides your answer. Chats you may write to: {chats}."
        made = [tool(SendMessage, self._run, name="send_message", description=description, effect=Effect.IDEMPOTENT)]
        if self._settings.folder is not None:
            says_what = f"Send a file of your folder besides your answer. Chats you may write to: {chats}."
            made.append(
                tool(SendFile, self._run_file, name="send_file", description=says_what, effect=Effect.IDEMPOTENT)
            )
        if self._settings.directory:
            says_what = (
                "List the chats that the person you talk with may have messages sent to. Names are what others chose."
            )
            made.append(tool(ListChannels, self._list, name="list_channels", description=says_what, effect=Effect.PURE))
        return made

    async def _run(self, what: SendMessage, place: ToolPlace) -> str:
        self._check(what.text)
        target = await self._target(what.to, place.turn)
        if not await self._sender(place.turn, place.call.id, target, storable(what.text)):
            raise ToolError(f"nobody in {what.to} has written yet, so nobody can be reached there.")
        return f"The message to {what.to} will be delivered."

    async def _run_file(self, what: SendFile, place: ToolPlace) -> str:
        name = what.path.rpartition("/")[2]
        sender = self._files()
        if sender is None or self._settings.folder is None:
            raise ToolError("files cannot be sent now.")
        if await sender.was_sent(place.turn, place.call.id):  # the original may be gone by now
            return will_be_sent(name, what.to, takes_files=True)
        self._check(what.text)
        target = await self._target(what.to, place.turn)
        file = await asyncio.to_thread(self._read, what.path, self._settings.folder)
        try:
            takes = await sender.send_file(place.turn, place.call.id, target, file, storable(what.text))
        except (TooLarge, NoRoom) as error:
            raise ToolError(f"{error}.") from error
        if takes is None:
            raise ToolError(f"nobody in {what.to} has written yet, so nobody can be reached there.")
        return will_be_sent(file.name, what.to, takes_files=takes)

    def _check(self, text: str) -> None:
        if len(text) > self._settings.text_chars:
            raise ToolError(f"a message has {self._settings.text_chars} characters at most.")

    def _read(self, path: str, folder: Path) -> ToolFile:
        """Read a file below the folder, following no link. Raises ToolError for what may hold a secret, whoever asks."""
        upload = upload_at(path) if self._settings.uploads is not None else None
        if upload is not None and self._settings.uploads is not None:
            return ToolFile(upload.name, Folder(self._settings.uploads).read(upload.stored, self._settings.file_bytes))
        parts = parts_of(path)
        if keeps_secrets(parts):
            raise ToolError(f"{path} may hold a secret and is not sent.")
        return ToolFile(parts[-1] if parts else "", Folder(folder).read(path, self._settings.file_bytes))

    async def _target(self, to: str, turn: TurnContext) -> SessionSource | None:
        """The chat that is meant; None for the turn's own. Raises ToolError."""
        if to in self._names:
            return None if to == HERE and self._settings.own_chat else self._settings.targets[to]
        places = self._places()
        if places is None:
            raise ToolError(f"you may write to these chats only: {', '.join(self._names)}.")
        found = await places.find(turn, to)
        if isinstance(found, str):
            raise ToolError(found)
        return found

    async def _list(self, what: ListChannels, place: ToolPlace) -> str:
        places = self._places()
        known = await places.usable(place.turn) if places is not None else Directory((), {})
        kind, query = kinds(known.channels), plain(what.query).split()
        lines = [f"{each.label} ({each.address}, {kind(each)})" for each in known.channels]
        lines = [f"{name} ({address}, alias)" for name, address in known.aliases.items()] + lines
        fits = [line for line in lines if all(word in plain(line) for word in query)]
        more = [f"and {len(fits) - LISTED} more: ask with other words."] if len(fits) > LISTED else []
        return "\n".join([*fits[:LISTED], *more]) or "No chat was found."


def send_tools(
    settings: SendSettings,
    sender: Sender,
    places: Callable[[], Places | None] = no_places,
    files: Callable[[], FileSender | None] = no_files,
) -> list[Tool]:
    """The tools that send messages and files."""
    return Send(settings, sender, places, files).tools()
