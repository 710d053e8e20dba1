"""Numbered forward migrations: files `0001_name.sql` of one engine, and which of them a database still needs.

They run in one transaction: after a step that fails, or a death, the version that ran before can start again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from everturn.errors import StoreUnusable

SCHEMA = Path(__file__).parent / "schema"
TABLE = "everturn_schema"
CREATE_TABLE = f"CREATE TABLE IF NOT EXISTS {TABLE} (version INTEGER PRIMARY KEY, applied_at FLOAT8 NOT NULL)"
SELECT_VERSION = f"SELECT coalesce(max(version), 0) FROM {TABLE}"
INSERT_VERSION = f"INSERT INTO {TABLE} (version, applied_at) VALUES ($1, $2)"

_TABLE = re.compile(r"CREATE TABLE (\w+)")
_NAME = re.compile(r"(\d{4})_\w+\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema."""

    version: int
    name: str
    text: str


def load(directory: Path) -> list[Migration]:
    """Load the migrations of one engine in order; a gap or a stray file is a packaging error."""
    paths = sorted(directory.glob("*.sql"))
    names = [_NAME.fullmatch(path.name) for path in paths]
    versions = [int(name[1]) for name in names if name]
    if not paths or versions != list(range(1, len(paths) + 1)):
        raise FileNotFoundError(f"expected migrations 0001_name.sql, 0002_name.sql, ... in {directory}")
    pairs = zip(versions, paths, strict=True)
    return [Migration(version, path.stem, path.read_text(encoding="utf-8")) for version, path in pairs]


def tables_of(migrations: list[Migration]) -> frozenset[str]:
    """Return the names of the tables that the migrations create."""
    return frozenset(name for each in migrations for name in _TABLE.findall(each.text))


def missing(migrations: list[Migration], version: int, database: str) -> list[Migration]:
    """Return the migrations that a database at `version` still needs; refuse a newer one."""
    if version > len(migrations):
        raise StoreUnusable(
            f"{database} was made by a newer Everturn (schema {version}, this one knows {len(migrations)}):"
            " install that version or a later one; nothing was changed"
        )
    return migrations[version:]
