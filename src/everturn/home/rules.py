"""Rules of files in the home: what kind they are, and what they may be called."""

from __future__ import annotations

import re
import unicodedata
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

NAME_BYTES = 120  # of UTF-8: with its id before it a file system takes it, and so does its address
KILOBYTE = 1024
ID_CHARS = 22
UNKNOWN = "application/octet-stream"
TEXT = "text/plain"
PROGRAM = "application/x-executable"
HEAD_BYTES = 512  # what a type is found in
_STORED = re.compile(r"[A-Za-z0-9_-]{22}\.")
_ADDRESS = re.compile(r"/files/([A-Za-z0-9_-]{22})/([^\s/()<>\"'\]]{1,400})")
# The newest families of the large providers see; a model of another name does not get what it may refuse.
_SEEING = re.compile(
    r"^(?:openai(?:-responses|-chat)?:(?:gpt-4o|gpt-4\.1|gpt-4\.5|gpt-[5-9]|o[34]|chatgpt-4o)"
    r"|anthropic:claude-(?:3|[a-z]+-[4-9]|[a-z]+-\d\d)"
    r"|google[a-z-]*:(?:models/)?gemini-)"
)


# An id that was drawn at random ends with one of A, Q, g and w: 128 bits leave the last of its 22 letters two.
_FROM_CONTENT = "m"
_BEGINNINGS: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"\x7fELF", PROGRAM),
    (b"MZ", PROGRAM),
    (b"\xcf\xfa\xed\xfe", PROGRAM),
)


@dataclass(frozen=True, slots=True)
class Upload:
    """A file, as a message names it."""

    id: str
    name: str

    @property
    def stored(self) -> str:
        """Its name in the folder of files."""
        return f"{self.id}.{self.name}"

    @property
    def address(self) -> str:
        """Its address in a message."""
        return f"/files/{self.id}/{quote(self.name)}"


def is_stored(name: str) -> bool:
    """Whether a name in the folder of files is that of an upload."""
    return _STORED.match(name) is not None


def content_id(digest: bytes) -> str:
    """The id of a file, made from its SHA-256: the same bytes are kept once."""
    return urlsafe_b64encode(digest).decode()[:21] + _FROM_CONTENT


def is_from_content(number: str) -> bool:
    """Whether the id was made from content: such files came with a message or are sent, and expire. Uploads of the page stay."""
    return len(number) == ID_CHARS and number.endswith(_FROM_CONTENT)


def sniffed(head: bytes) -> str:
    """The type of a file by its first bytes. The sender's type does not count."""
    if head[:4] == b"RIFF" and head[8:12] in {b"WEBP", b"WAVE"}:
        return "image/webp" if head[8:12] == b"WEBP" else "audio/wav"
    if head[4:8] == b"ftyp":
        return "audio/mp4" if head[8:11] == b"M4A" else "video/mp4"
    found = next((kind for begin, kind in _BEGINNINGS if head.startswith(begin)), None)
    return found or (TEXT if head and _is_text(head) else UNKNOWN)


def _is_text(head: bytes) -> bool:
    """UTF-8 without control characters; the last letter may be cut."""
    if any(byte < 0x20 and byte not in b"\t\n\r\f\x1b" for byte in head):
        return False
    for cut in range(4):
        try:
            head[: len(head) - cut].decode()
        except UnicodeDecodeError:
            continue
        return True
    return False


def size_text(size: int) -> str:
    """A size in bytes as text for people."""
    if size < KILOBYTE:
        return f"{size} bytes"
    return f"{size / KILOBYTE:.0f} kB" if size < KILOBYTE**2 else f"{round(size / KILOBYTE**2, 1):g} MB"


def too_large(most: int) -> str:
    """The error for a file that is too large."""
    return f"the file is larger than {size_text(most)}, the limit for one file"


def served_as(kind: str) -> str:
    """The content type for a browser: an image that a page may show, or just bytes that it saves."""
    return kind if kind.startswith("image/") else UNKNOWN


def clean_file_name(name: str) -> str:
    """A safe file name: no folder, no control character, nothing special for a shell or a browser."""
    text = unicodedata.normalize("NFC", name.replace("\\", "/").rpartition("/")[2])
    kept = "".join(each if each.isalnum() or each in " .-_()+," else "_" for each in text).strip(" .")
    stem, dot, ending = kept.rpartition(".")
    if dot and len(ending) <= 10:
        return f"{_cut(stem, NAME_BYTES - len(ending.encode()) - 1)}.{ending}" if stem else f"file.{ending}"
    return _cut(kept, NAME_BYTES) or "file"


def _cut(text: str, most: int) -> str:
    return text.encode()[:most].decode(errors="ignore")


def uploads_in(text: str) -> list[Upload]:
    """The files that a text names, each once, in order."""
    found = (Upload(match[1], unquote(match[2])) for match in _ADDRESS.finditer(text))
    return [each for each in dict.fromkeys(found) if "/" not in each.name and "\x00" not in each.name]


def without_addresses(text: str) -> str:
    """The text without the addresses of files."""
    return _ADDRESS.sub("", text)


def upload_at(path: str) -> Upload | None:
    """The file whose address the whole text is, or None."""
    return next(iter(uploads_in(path)), None) if _ADDRESS.fullmatch(path) else None


def shown(texts: Sequence[str], most: int) -> frozenset[Upload]:
    """The newest files of a conversation, which the model is shown."""
    every = dict.fromkeys(each for text in texts for each in uploads_in(text))
    return frozenset(list(every)[-most:])


def sees(model: str, setting: str) -> bool:
    """Whether a model gets pictures: as the setting says, or by its name."""
    return bool(_SEEING.match(model)) if setting == "auto" else setting == "yes"
