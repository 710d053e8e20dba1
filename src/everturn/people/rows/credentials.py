"""Which instance holds a platform's credential. The secret is known here by its hash alone."""

from __future__ import annotations

import msgspec

from everturn.store.interface import Op, sql


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
