"""Rows of credentials: keys and logins of the gateway, and which process uses the credential of a platform."""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from everturn.store.interface import Op, Row, sql

KEY_COLUMNS = "name, prefix, scopes, made_at, used_at, revoked_at"
LISTED = 1_000
BY_OWNER = "owner"  # no key may have that name, and no hash looks like it
# The keys that were made with a key, with those, and so on.
MADE_WITH = (
    "WITH RECURSIVE made(hash) AS (SELECT hash FROM access_key WHERE made_by=$1"
    " UNION SELECT k.hash FROM access_key k JOIN made m ON k.made_by=m.hash) "
)
KEPT_S = 86_400.0  # a used or expired login is kept for a day, so that opening it again shows the true reason


class AccessKey(msgspec.Struct, frozen=True, kw_only=True):
    """A program's key, without its secret."""

    name: str
    prefix: str
    scopes: tuple[str, ...]
    made_at: float
    used_at: float | None
    revoked_at: float | None
    made_by: str | None = None  # in a list: the name of the key that made it, or `owner`; None: nobody knows
    maker_revoked: bool = False


class RevokedKey(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that were revoked with a key, and those made with it that are still in force."""

    also: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that has logged in; with the key that it used, or None for the owner."""

    key: AccessKey | None = None
    key_hash: str | None = None


class LoginOutcome(StrEnum):
    """The result of using a login code."""

    OPEN = "open"
    UNKNOWN = "unknown"
    USED = "used"
    EXPIRED = "expired"


def add_key(
    secret_hash: str, name: str, prefix: str, scopes: tuple[str, ...], at: float, made_by: str = BY_OWNER
) -> Op[bool]:
    """Store a new key; False when a key of this name is in force, or its maker was revoked: whoever revokes a key must see
    all that it made.
    """
    if made_by != BY_OWNER and not (
        yield sql("SELECT 1 FROM access_key WHERE hash=$1 AND revoked_at IS NULL/*lock*/", made_by)
    ):
        return False
    made = yield sql(
        "INSERT INTO access_key (hash, name, prefix, scopes, made_at, made_by) VALUES ($1, $2, $3, $4, $5, $6)"
        " ON CONFLICT DO NOTHING RETURNING hash",
        secret_hash,
        name,
        prefix,
        " ".join(scopes),
        at,
        made_by,
    )
    if made:
        return True
    return bool((yield sql("SELECT 1 FROM access_key WHERE hash=$1", secret_hash)))  # this operation ran before


def find_key(secret_hash: str) -> Op[AccessKey | None]:
    """The key in force with this secret."""
    rows = yield sql(f"SELECT {KEY_COLUMNS} FROM access_key WHERE hash=$1 AND revoked_at IS NULL", secret_hash)
    return _key(rows[0]) if rows else None


def secrets_in_force(at: float, most: int) -> Op[frozenset[str]]:
    """The hashes of all keys and visits that are in force, or `most` of them."""
    rows = yield sql(
        "SELECT hash FROM access_key WHERE revoked_at IS NULL"
        " UNION ALL SELECT hash FROM visit WHERE expires_at>$1 LIMIT $2",
        at,
        most,
    )
    return frozenset(row[0] for row in rows)


def list_keys() -> Op[list[AccessKey]]:
    """Every key, the newest first, revoked ones included, with who made it."""
    columns = ", ".join(f"k.{name}" for name in KEY_COLUMNS.split(", "))
    rows = yield sql(
        f"SELECT {columns}, coalesce(m.name, k.made_by), m.revoked_at FROM access_key k"
        " LEFT JOIN access_key m ON m.hash=k.made_by ORDER BY k.made_at DESC LIMIT $1",
        LISTED,
    )
    return [replace(_key(row[:-2]), made_by=row[-2], maker_revoked=row[-1] is not None) for row in rows]


def revoke_key(name: str, at: float, *, with_made: bool = False) -> Op[RevokedKey | None]:
    """End a key, and with it what was made with it, if that is asked for; None when no key of this name is in force."""
    rows = yield sql(
        "UPDATE access_key SET revoked_at=$2 WHERE name=$1 AND revoked_at IS NULL RETURNING hash", name, at
    )
    rows = rows or (yield sql("SELECT hash FROM access_key WHERE name=$1 AND revoked_at=$2", name, at))
    if not rows:
        return None
    if with_made:
        yield sql(
            MADE_WITH
            + "UPDATE access_key SET revoked_at=$2 WHERE revoked_at IS NULL AND hash IN (SELECT hash FROM made)",
            rows[0][0],
            at,
        )
    made = yield sql(
        MADE_WITH + "SELECT name, revoked_at FROM access_key WHERE hash IN (SELECT hash FROM made)"
        " AND (revoked_at IS NULL OR revoked_at=$2) ORDER BY made_at, name",
        rows[0][0],
        at,
    )
    return RevokedKey(
        also=tuple(row[0] for row in made if row[1] is not None), left=tuple(row[0] for row in made if row[1] is None)
    )


def key_used(secret_hash: str, at: float) -> Op[None]:
    """Note when a key was last used."""
    yield sql("UPDATE access_key SET used_at=$2 WHERE hash=$1", secret_hash, at)


def add_login(code_hash: str, at: float, expires_at: float, key_hash: str | None = None) -> Op[None]:
    """Store a login code, with the key that requested it, if one did; old logins and expired visits are deleted."""
    yield sql("DELETE FROM login WHERE expires_at<$1", at - KEPT_S)
    yield sql("DELETE FROM visit WHERE expires_at<$1", at)
    yield sql(
        "INSERT INTO login (hash, made_at, expires_at, key_hash) VALUES ($1, $2, $3, $4) ON CONFLICT (hash) DO NOTHING",
        code_hash,
        at,
        expires_at,
        key_hash,
    )


def is_login(code_hash: str, at: float) -> Op[bool]:
    """Whether a login code is valid now."""
    return bool((yield sql("SELECT 1 FROM login WHERE hash=$1 AND used_at IS NULL AND expires_at>$2", code_hash, at)))


def log_in(code_hash: str, visit_hash: str, browser: str, at: float, expires_at: float) -> Op[LoginOutcome]:
    """Turn a login code into a visit, once."""
    rows = yield sql("SELECT expires_at, used_at, visit, key_hash FROM login WHERE hash=$1/*lock*/", code_hash)
    if not rows:
        return LoginOutcome.UNKNOWN
    valid_until, used_at, visit, key_hash = rows[0]
    if visit == visit_hash:
        return LoginOutcome.OPEN  # this operation ran before
    if used_at is not None:
        return LoginOutcome.USED
    if valid_until <= at:
        return LoginOutcome.EXPIRED
    if key_hash is not None and (yield from find_key(key_hash)) is None:
        return LoginOutcome.EXPIRED
    yield sql("UPDATE login SET used_at=$2, visit=$3 WHERE hash=$1", code_hash, at, visit_hash)
    yield sql(
        "INSERT INTO visit (hash, browser, made_at, expires_at, key_hash) VALUES ($1, $2, $3, $4, $5)",
        visit_hash,
        browser,
        at,
        expires_at,
        key_hash,
    )
    return LoginOutcome.OPEN


def find_visit(visit_hash: str, at: float) -> Op[Visit | None]:
    """The valid visit of a browser with this cookie; a visit that was opened with a key ends with the key."""
    rows = yield sql("SELECT key_hash FROM visit WHERE hash=$1 AND expires_at>$2", visit_hash, at)
    if not rows:
        return None
    (key_hash,) = rows[0]
    if key_hash is None:
        return Visit()
    key = yield from find_key(key_hash)
    return None if key is None else Visit(key=key, key_hash=key_hash)


def log_out(visit_hash: str | None) -> Op[int]:
    """End one visit, or all; returns how many there were."""
    if visit_hash is None:
        return len((yield sql("DELETE FROM visit RETURNING 1")))
    return len((yield sql("DELETE FROM visit WHERE hash=$1 RETURNING 1", visit_hash)))


def _key(row: Row) -> AccessKey:
    name, prefix, scopes, made_at, used_at, revoked_at = row
    return AccessKey(
        name=name,
        prefix=prefix,
        scopes=tuple(scopes.split()),
        made_at=made_at,
        used_at=used_at,
        revoked_at=revoked_at,
    )


# Which instance holds a platform's credential. The secret is known here by its hash alone.


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """An instance's claim to a credential, wanted or held."""

    hash: str
    platform: str
    account: str
    instance: int
    host: str
    pid: int
    home: str
    since: float


def claim_credential(claim: Claim) -> Op[Claim | None]:
    """Claim the credential. Returns the holder, or None if it is ours. A holder whose instance has ended holds nothing more:
    whether it died is judged by recovery alone.
    """
    yield sql(
        "INSERT INTO credential (hash, platform, account, instance, host, pid, home, since)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (hash) DO NOTHING",
        claim.hash, claim.platform, claim.account, claim.instance, claim.host, claim.pid, claim.home, claim.since,
    )  # fmt: skip
    rows = yield sql(
        "SELECT hash, platform, account, instance, host, pid, home, since FROM credential WHERE hash=$1/*lock*/",
        claim.hash,
    )
    names = Claim.__struct_fields__
    holder = Claim(**dict(zip(names, rows[0], strict=True)))
    if holder.instance == claim.instance:
        return None
    if (yield sql("SELECT 1 FROM instance WHERE number=$1 AND ended_at IS NULL", holder.instance)):
        return holder
    yield sql(
        "UPDATE credential SET instance=$2, host=$3, pid=$4, home=$5, since=$6, account=$7 WHERE hash=$1",
        claim.hash, claim.instance, claim.host, claim.pid, claim.home, claim.since, claim.account,
    )  # fmt: skip
    return None
