"""What the engines share: store urls, numbered migrations, and the end of the process when a thread that they need has died."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from everturn.errors import StoreUnusable

_USER_PASSWORD = re.compile(r"://([^:/@]*):.*@")  # a password may hold any sign, so up to the last @
_QUERY_PASSWORD = re.compile(r"([?&](?:ssl)?password=)[^&]*")

_SQLITE_PATH = re.compile(r"sqlite:///(?:/*(?P<posix>/.+)|(?P<drive>[A-Za-z]:/.+)|(?P<short>[^/].*))")
SCHEMA = Path(__file__).parent / "schema"
TABLE = "everturn_schema"
CREATE_TABLE = f"CREATE TABLE IF NOT EXISTS {TABLE} (version INTEGER PRIMARY KEY, applied_at FLOAT8 NOT NULL)"
SELECT_VERSION = f"SELECT coalesce(max(version), 0) FROM {TABLE}"
INSERT_VERSION = f"INSERT INTO {TABLE} (version, applied_at) VALUES ($1, $2)"
_TABLE = re.compile(r"CREATE TABLE (\w+)")
_NAME = re.compile(r"(\d{4})_\w+\.sql")
OnDeath = Callable[[BaseException], None]


def sqlite_path(url: str) -> Path | None:
    """Return the absolute path that `sqlite:///path` or `sqlite:////path` names; None for another url."""
    found = _SQLITE_PATH.fullmatch(url)
    if found is None:
        return None
    return Path(found["posix"] or found["drive"] or f"/{found['short']}")


def without_password(url: str) -> str:
    """Return the url without its password, for logs."""
    return _QUERY_PASSWORD.sub(r"\1***", _USER_PASSWORD.sub(r"://\1@", url))


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema."""

    version: int
    name: str
    text: str


def load(directory: Path) -> list[Migration]:
    """Load the migrations of one engine (`0001_name.sql`) in order; a gap or a stray file is a packaging error.

    They run in one transaction: after a step that fails, or a death, the version that ran before can start again.
    """
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


def end_process(error: BaseException) -> None:
    """Log the error and end the process at once: the next one recovers, a gateway without its store only looks alive."""
    structlog.get_logger().critical("store.died", error=repr(error), exc_info=error)
    os._exit(1)
