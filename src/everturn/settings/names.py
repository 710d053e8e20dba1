"""The form of names: platforms, chats in settings, and the ids of people and chats on the built-in platforms."""

from __future__ import annotations

import re

PLATFORM_NAME = r"[a-z][a-z0-9_]*"
CHAT_NAME = rf"{PLATFORM_NAME}:.+"
_FORMS = {"telegram": re.compile(r"-?[0-9]+"), "matrix": re.compile(r"@[^:\s]+:\S+")}


def is_name(platform: str, name: str) -> bool:
    """Whether a person or chat can have this id on the platform; on any other platform every text is one."""
    form = _FORMS.get(platform)
    return form is None or form.fullmatch(name) is not None
