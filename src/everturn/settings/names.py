"""How people and chats are called on the platforms we know: who is called otherwise is nobody there."""

from __future__ import annotations

import re

_FORMS = {"telegram": re.compile(r"-?[0-9]+"), "matrix": re.compile(r"@[^:\s]+:\S+")}


def is_name(platform: str, name: str) -> bool:
    """Whether somebody may be called so there; on a platform that we do not know, everything is a name."""
    form = _FORMS.get(platform)
    return form is None or form.fullmatch(name) is not None
