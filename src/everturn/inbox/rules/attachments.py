"""Texts about attachments: a line for each file for the model, and a notice about missing files for the sender."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from everturn.home.rules.files import PROGRAM, TEXT, Upload, clean_file_name, size_text, without_addresses
from everturn.model import Attachment, StoredFile

MOST_FILES = 20  # of one message; the rest is left
STILL = frozenset({"image/webp", "image/png", "image/jpeg"})
_ENDINGS = {"image": "jpg", "voice": "ogg", "audio": "mp3", "video": "mp4", "sticker": "webp"}
TOO_SLOW = "it could not be fetched in time"
NOT_FETCHED = "it could not be fetched"
TOO_MANY = f"a message may have {MOST_FILES} files at most"
NO_FILES = "I cannot receive files on this platform"
DESCRIBE = (
    "This is a sticker that somebody sent in a chat: {address}\n"
    "Say in one short sentence what it shows and which feeling it expresses. Nothing else."
)
DESCRIPTION_CHARS = 300
WHY_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaRules:
    """The settings for files that come with messages."""

    fetch_s: float = 30.0  # how long to wait for them
    keep_s: float = 86_400.0  # how long they are kept
    text_chars: int = 20_000  # how much of a text document is put into the message
    forbidden: tuple[str, ...] = (PROGRAM,)


@dataclass(frozen=True, slots=True)
class FetchOutcome:
    """The outcome of fetching one file: it is here, it is not needed, or `trouble` says why it is missing."""

    file: StoredFile | None = None
    trouble: str = ""
    text: str | None = None  # what a text document says, within the bound
    chars: int = 0  # how long it is as a whole; 0: not known
    described: str = ""  # what a sticker shows


def placeholders(attachments: Sequence[Attachment]) -> str:
    """The text of a message that has only files, such as [image] or [document: name]."""
    return " ".join(_placeholder(each) for each in attachments)


def _placeholder(attachment: Attachment) -> str:
    what = attachment.text or attachment.name
    return f"[{attachment.kind}: {what}]" if what else f"[{attachment.kind}]"


def is_wanted(attachment: Attachment, *, described: bool, sees: bool) -> bool:
    """Whether the bytes of a file are needed. A sticker is its picture's description; one that moves is its emoji."""
    return attachment.kind != "sticker" or not (described or attachment.moving or not sees)


def share_of(chars: int, attachments: Sequence[Attachment]) -> int:
    """How many characters of each text document are put into a message: all documents share one limit."""
    return chars // max(1, sum(each.kind == "document" for each in attachments))


def name_of(attachment: Attachment) -> str:
    """The file name of an attachment: from its sender, or from its kind."""
    ending = _ENDINGS.get(attachment.kind)
    return clean_file_name(attachment.name or (f"{attachment.kind}.{ending}" if ending else attachment.kind))


def is_forbidden(kind: str, forbidden: Sequence[str]) -> bool:
    """Whether a file type is forbidden: named itself, or by its first half (`video/*`)."""
    return any(kind == each or (each.endswith("/*") and kind.startswith(each[:-1])) for each in forbidden)


def failed(attachment: Attachment, why: str) -> FetchOutcome:
    """The outcome of a failed fetch; for a sticker its emoji is enough."""
    return (
        FetchOutcome()
        if attachment.kind == "sticker"
        else FetchOutcome(trouble=" ".join(why.split())[:WHY_CHARS] or NOT_FETCHED)
    )


def too_slow(attachment: Attachment) -> FetchOutcome:
    """The outcome of a fetch that took too long."""
    return failed(attachment, TOO_SLOW)


def not_taken(kind: str) -> str:
    """Why a file of a forbidden type is missing."""
    return f"files of the type {kind} are not accepted here"


def inlined(data: bytes, chars: int, *, whole: bool) -> tuple[str, int] | None:
    """The content of a text document within the limit, and its length; None when it is no text."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if whole or error.start < len(data) - 4:
            return None
        text = data[: error.start].decode()
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\x00", "")
    return text[:chars], len(text) if whole else 0


def settled_text(text: str, attachments: Sequence[Attachment], outcomes: Sequence[FetchOutcome]) -> str:
    """The text of a message with the lines of its files; placeholders are left out."""
    lines = [_line(each, outcome) for each, outcome in zip(attachments, outcomes, strict=True)]
    said = [] if text == placeholders(attachments) else [text]
    return "\n\n".join([*said, *lines])


def _line(attachment: Attachment, outcome: FetchOutcome) -> str:
    if attachment.kind == "sticker":
        return _sticker(attachment, outcome.described)
    name = name_of(attachment)
    if outcome.file is None:
        return f"[{attachment.kind} {name} did not arrive: {outcome.trouble or NOT_FETCHED}]"
    file, address = outcome.file, Upload(outcome.file.id, outcome.file.name).address
    lasts = f", {attachment.seconds} s" if attachment.seconds else ""
    heard = ", not transcribed" if attachment.kind == "voice" else ""
    line = f"[{attachment.kind}: {file.name}{lasts}, {file.type}, {size_text(file.size)}{heard}, {address}]"
    return line if outcome.text is None else f"{line}\n{outcome.text}\n{_end(file, outcome)}"


def _end(file: StoredFile, outcome: FetchOutcome) -> str:
    shown = len(outcome.text or "")
    if outcome.chars == shown:
        return f"[end of {file.name}]"
    of = f" of {outcome.chars}" if outcome.chars else ""
    return f"[{file.name} goes on: these were the first {shown}{of} characters]"


def _sticker(attachment: Attachment, described: str) -> str:
    parts = ["sticker", attachment.text, f"from the set {attachment.family}" if attachment.family else ""]
    about = " ".join(part for part in parts if part)
    if described:
        return f"[{about}: {described}]"
    return f"[{about}; it moves and cannot be seen]" if attachment.moving else f"[{about}]"


def is_text(kind: str) -> bool:
    """Whether the content of a document may be put into the message."""
    return kind == TEXT


def missing(attachments: Sequence[Attachment], outcomes: Sequence[FetchOutcome]) -> list[str]:
    """The missing files, each with its reason."""
    pairs = zip(attachments, outcomes, strict=True)
    return [f"{name_of(each)} ({outcome.trouble})" for each, outcome in pairs if outcome.trouble]


def missing_notice(reasons: Sequence[str]) -> str:
    """The notice about missing files for their sender."""
    which = reasons[0] if len(reasons) == 1 else f"{', '.join(reasons[:-1])} and {reasons[-1]}"
    return f"I did not get {which}. I answer without {'it' if len(reasons) == 1 else 'them'}."


def description_of(text: str) -> str:
    """A model's description of a sticker, as one line of limited length."""
    line = " ".join(without_addresses(text).split()).replace("[", "(").replace("]", ")")
    return line if len(line) <= DESCRIPTION_CHARS else f"{line[:DESCRIPTION_CHARS]}…"
