"""Agents on both engines: on SQLite by `make test`, on PostgreSQL by `make prove`. What an agent does is the same on either."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder that run on PostgreSQL, before those of the other stage are left out."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        here = item.path.is_relative_to(FOLDER)
        if here and callspec is not None and callspec.params.get("store_url") == "postgres":
            item.add_marker(pytest.mark.prove)
