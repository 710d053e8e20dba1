"""Cleans messages of what a database cannot store: strangers wrote them."""

from __future__ import annotations

from operator import is_
from typing import TypeVar

from msgspec import Struct
from msgspec.json import Encoder
from msgspec.structs import asdict, fields, replace

from everturn.model import Inbound
from everturn.outbox.rules.text import storable

S = TypeVar("S", bound=Struct)
_json = Encoder().encode
ZERO = b"\\u0000"
MOST_NUMBER = 1 << 63


def storable_message(inbound: Inbound) -> Inbound:
    """The message without what a database cannot store; almost always the message itself. JSON cannot hold half a surrogate
    pair or a number that is too large either, and writes a zero character out, so that one check of all of it is enough.
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
    """The value with storable texts, and without numbers that are too large for a column."""
    odd: dict[str, object] = {}
    for name, given in asdict(value).items():
        if isinstance(given, str):
            if (fit := storable(given)) != given:
                odd[name] = fit
        elif isinstance(given, int) and not -MOST_NUMBER <= given < MOST_NUMBER:
            odd[name] = next(field.default for field in fields(value) if field.name == name)
    return replace(value, **odd) if odd else value
