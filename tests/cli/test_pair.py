"""Pairing from the command line, with the gateway running and without it."""

import json
from pathlib import Path

from tests.cli.program import GatewayProgram, everturn


def people(home: Path) -> list[tuple[str, str]]:
    found = json.loads(everturn("pair", "list", "--json", home=home).out)
    return [(f"{each['platform']}:{each['id']}", each["state"]) for each in found["people"]]


def test_people_are_turned_out_and_listed_whether_the_gateway_runs_or_not(tmp_path: Path) -> None:
    assert people(tmp_path / "none") == []
    with GatewayProgram(tmp_path) as gateway:
        gateway.ready()
        assert "0 running tasks" in everturn("pair", "revoke", "telegram:7", home=tmp_path).out
        wrong = everturn("pair", "approve", "ABCD2345", home=tmp_path)
        assert (wrong.code, "no open request" in wrong.err) == (1, True)
        assert everturn("pair", "approve", "--request", "12", home=tmp_path).code == 1
        assert everturn("pair", "revoke", "telegram", home=tmp_path).code == 1
        assert people(tmp_path) == [("telegram:7", "revoked")]
    assert everturn("pair", "revoke", "matrix:@eve:here", home=tmp_path).code == 0
    assert "no open request" in everturn("pair", "approve", "ABCD2345", home=tmp_path).err
    assert everturn("pair", "allow", "telegram:7", home=tmp_path).code == 0
    assert people(tmp_path) == [("telegram:7", "granted"), ("matrix:@eve:here", "revoked")]
    assert "telegram:7" in everturn("pair", "list", home=tmp_path).out
    assert everturn("pair", "approve", home=tmp_path).code == 2
