"""Edits that arrive together with what they change."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from everturn.decide.commands import parse_command
from everturn.model import Heard, Inbound


def folded(batch: Sequence[Inbound]) -> list[Inbound]:
    """What was said, each with the words of its last edit in the same batch.

    Who was away gets a message and its edit at once: taken one after the other the message would begin its turn with words
    that nobody stands by any more. The edits follow all the same, for a message that an earlier life has stored.
    """
    edits = {(each.of, each.source.user_id): each for each in batch if each.what is Heard.EDITED}
    return [_revised(each, edits.get((each.id, each.source.user_id))) for each in batch]


def _revised(said: Inbound, edit: Inbound | None) -> Inbound:
    if said.what is not Heard.SAID or edit is None or _commands(said) != _commands(edit):
        return said
    return replace(said, text=edit.text, attachments=edit.attachments, edition=edit.edition)


def _commands(inbound: Inbound) -> bool:
    """Whether it is a command: words do not become one by an edit, nor one words."""
    return inbound.text.startswith("/") and parse_command(inbound.text) is not None
