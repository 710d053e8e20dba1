"""Messages without what a database cannot keep: strangers wrote them."""

from __future__ import annotations

from operator import is_
from typing import TypeVar

from msgspec import Struct
from msgspec.json import Encoder
from msgspec.structs import asdict, fields, replace

from everturn.decide.text import storable
from everturn.model import Inbound

S = TypeVar("S", bound=Struct)
_json = Encoder().encode
ZERO = b"\\u0000"
MOST_NUMBER = 1 << 63


def storable_message(inbound: Inbound) -> Inbound:
    """The message without what a database can not keep; almost always the message itself. JSON can not hold half a pair either,
    nor a number that is too large, and writes a zero character out, so that one look at all of it is enough.
    """
    try:
        if ZERO not in _json(inbound) and (inbound.edition or 0) < MOST_NUMBER:
            return inbound
    except (UnicodeEncodeError, OverflowError):
        pass
    inbound = _cleaned(inbound)
    source, files = _cleaned(inbound.source), tuple(_cleaned(each) for each in inbound.attachments)
    same = source is inbound.source and all(map(is_, files, inbound.attachments))
    return inbound if same else replace(inbound, source=source, attachments=files)


def _cleaned(value: S) -> S:
    """The same with fit texts, and without numbers that no column takes: a stranger wrote them."""
    odd: dict[str, object] = {}
    for name, given in asdict(value).items():
        if isinstance(given, str):
            if (fit := storable(given)) != given:
                odd[name] = fit
        elif isinstance(given, int) and not -MOST_NUMBER <= given < MOST_NUMBER:
            odd[name] = next(field.default for field in fields(value) if field.name == name)
    return replace(value, **odd) if odd else value
