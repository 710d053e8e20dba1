"""Files that came with a message, in words: for the model a line each, for their sender a sentence about what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from everturn.decide.uploads import PROGRAM, TEXT, Upload, bytes_in_words, clean_file_name, without_addresses
from everturn.model import Attachment, StoredFile

MOST = 20  # of one message; the rest is left
STILL = frozenset({"image/webp", "image/png", "image/jpeg"})
_ENDINGS = {"image": "jpg", "voice": "ogg", "audio": "mp3", "video": "mp4", "sticker": "webp"}
TOO_SLOW = "it could not be fetched in time"
NO_WAY = "it could not be fetched"
TOO_MANY = f"a message may bring {MOST} files at most"
WITHOUT = "this platform gives me no files"
DESCRIBE = (
    "This is a sticker that somebody sent in a chat: {address}\n"
    "Say in one short sentence what it shows and which feeling it expresses. Nothing else."
)
DESCRIPTION_CHARS = 300
WHY_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How files are treated that come with messages."""

    fetch_s: float = 30.0  # how long they are waited for
    keep_s: float = 86_400.0  # how long they are kept
    text_chars: int = 20_000  # of a text document, what stands in the words
    forbidden: tuple[str, ...] = (PROGRAM,)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one file: it is here, it needs not be here, or `trouble` says why it is not."""

    file: StoredFile | None = None
    trouble: str = ""
    text: str | None = None  # what a text document says, within the bound
    chars: int = 0  # how long it is as a whole; 0: not known
    described: str = ""  # what a sticker shows


def stands_for(attachments: Sequence[Attachment]) -> str:
    """What is said by a message that is nothing but files."""
    return " ".join(_placeholder(each) for each in attachments)


def _placeholder(attachment: Attachment) -> str:
    what = attachment.words or attachment.name
    return f"[{attachment.kind}: {what}]" if what else f"[{attachment.kind}]"


def is_wanted(attachment: Attachment, *, described: bool, sees: bool) -> bool:
    """Whether its bytes are needed. A sticker is its picture's description; one that moves is its emoji."""
    return attachment.kind != "sticker" or not (described or attachment.moving or not sees)


def share_of(chars: int, attachments: Sequence[Attachment]) -> int:
    """How much of each text document stands in a message: all of them share what there is for one message."""
    return chars // max(1, sum(each.kind == "document" for each in attachments))


def name_of(attachment: Attachment) -> str:
    """What it is called here: by its sender, or by its kind."""
    ending = _ENDINGS.get(attachment.kind)
    return clean_file_name(attachment.name or (f"{attachment.kind}.{ending}" if ending else attachment.kind))


def is_forbidden(kind: str, forbidden: Sequence[str]) -> bool:
    """Whether a type is not taken: named itself, or by its first half (`video/*`)."""
    return any(kind == each or (each.endswith("/*") and kind.startswith(each[:-1])) for each in forbidden)


def failed(attachment: Attachment, why: str) -> Outcome:
    """It is not here; of a sticker its emoji says enough."""
    return Outcome() if attachment.kind == "sticker" else Outcome(trouble=" ".join(why.split())[:WHY_CHARS] or NO_WAY)


def too_slow(attachment: Attachment) -> Outcome:
    """It was not here in time."""
    return failed(attachment, TOO_SLOW)


def not_taken(kind: str) -> str:
    """Why a file of a forbidden type is not here."""
    return f"files of the type {kind} are not taken here"


def inlined(data: bytes, chars: int, *, whole: bool) -> tuple[str, int] | None:
    """The words of a text document within the bound, and how many it has; None when it is no text."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if whole or error.start < len(data) - 4:
            return None
        text = data[: error.start].decode()
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\x00", "")
    return text[:chars], len(text) if whole else 0


def settled_text(text: str, attachments: Sequence[Attachment], outcomes: Sequence[Outcome]) -> str:
    """The words of a message with the files that came with it; what only stood for them is left out."""
    lines = [_line(each, outcome) for each, outcome in zip(attachments, outcomes, strict=True)]
    said = [] if text == stands_for(attachments) else [text]
    return "\n\n".join([*said, *lines])


def _line(attachment: Attachment, outcome: Outcome) -> str:
    if attachment.kind == "sticker":
        return _sticker(attachment, outcome.described)
    name = name_of(attachment)
    if outcome.file is None:
        return f"[{attachment.kind} {name} did not arrive: {outcome.trouble or NO_WAY}]"
    file, address = outcome.file, Upload(outcome.file.id, outcome.file.name).address
    lasts = f", {attachment.seconds} s" if attachment.seconds else ""
    heard = ", not transcribed" if attachment.kind == "voice" else ""
    line = f"[{attachment.kind}: {file.name}{lasts}, {file.type}, {bytes_in_words(file.size)}{heard}, {address}]"
    return line if outcome.text is None else f"{line}\n{outcome.text}\n{_end(file, outcome)}"


def _end(file: StoredFile, outcome: Outcome) -> str:
    shown = len(outcome.text or "")
    if outcome.chars == shown:
        return f"[end of {file.name}]"
    of = f" of {outcome.chars}" if outcome.chars else ""
    return f"[{file.name} goes on: these were the first {shown}{of} characters]"


def _sticker(attachment: Attachment, described: str) -> str:
    parts = ["sticker", attachment.words, f"from the set {attachment.family}" if attachment.family else ""]
    about = " ".join(part for part in parts if part)
    if described:
        return f"[{about}: {described}]"
    return f"[{about}; it moves and can not be seen]" if attachment.moving else f"[{about}]"


def is_text(kind: str) -> bool:
    """Whether what a document says may stand in the words."""
    return kind == TEXT


def missing(attachments: Sequence[Attachment], outcomes: Sequence[Outcome]) -> list[str]:
    """The files that are not here although they should be, each with its reason."""
    pairs = zip(attachments, outcomes, strict=True)
    return [f"{name_of(each)} ({outcome.trouble})" for each, outcome in pairs if outcome.trouble]


def tell_missing(reasons: Sequence[str]) -> str:
    """The sentence for who sent them."""
    which = reasons[0] if len(reasons) == 1 else f"{', '.join(reasons[:-1])} and {reasons[-1]}"
    return f"I did not get {which}. I answer without {'it' if len(reasons) == 1 else 'them'}."


def description_of(text: str) -> str:
    """A model's words about a sticker, as one line of bounded length."""
    line = " ".join(without_addresses(text).split()).replace("[", "(").replace("]", ")")
    return line if len(line) <= DESCRIPTION_CHARS else f"{line[:DESCRIPTION_CHARS]}…"
