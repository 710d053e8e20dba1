"""Edits that arrive in one batch with the message they change."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from everturn.commands.rules.registry import parse_command
from everturn.model import Heard, Inbound


def folded(batch: Sequence[Inbound]) -> list[Inbound]:
    """The messages of a batch, each with the text of its last edit in the same batch.

    After a disconnect a message and its edit arrive together: taken one after the other, the message would begin its turn with
    a text that is already replaced. The edits follow all the same, for a message that an earlier process has stored.
    """
    edits = {(each.of, each.source.user_id): each for each in batch if each.what is Heard.EDITED}
    return [_revised(each, edits.get((each.id, each.source.user_id))) for each in batch]


def _revised(said: Inbound, edit: Inbound | None) -> Inbound:
    if said.what is not Heard.SAID or edit is None or _commands(said) != _commands(edit):
        return said
    return replace(said, text=edit.text, attachments=edit.attachments, edition=edit.edition)


def _commands(inbound: Inbound) -> bool:
    """Whether it is a command: a text does not become one by an edit, nor a command a text."""
    return inbound.text.startswith("/") and parse_command(inbound.text) is not None
