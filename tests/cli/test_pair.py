"""Pairing from the command line, with the gateway running and without it."""

import json
from pathlib import Path

from tests.cli.program import GatewayProgram, called, everturn


def people(home: Path) -> list[tuple[str, str]]:
    found = json.loads(called("pair", "list", "--json", home=home).out)
    return [(f"{each['platform']}:{each['id']}", each["state"]) for each in found["people"]]


def no_request(home: Path, number: str) -> bool:
    """Whether approving this number is answered with a plain error, though a column could not hold it."""
    said = called("pair", "approve", "--request", number, home=home)
    return said.code == 1 and "there is no open request" in said.err


def test_people_are_revoked_and_listed_whether_the_gateway_runs_or_not(tmp_path: Path) -> None:
    assert people(tmp_path / "none") == []
    with GatewayProgram(tmp_path) as gateway:
        gateway.ready()
        done = called("pair", "revoke", "telegram:7", home=tmp_path).out
        assert "0 running tasks" in done
        assert "a platform named telegram;" in done  # nothing came from there
        assert "a platform named" not in called("pair", "revoke", "telegram:7", home=tmp_path).out
        wrong = called("pair", "approve", "ABCD2345", home=tmp_path)
        assert (wrong.code, "no open request" in wrong.err) == (1, True)
        assert all(no_request(tmp_path, number) for number in ("12", "9" * 19))
        for nobody in ("telegram", "telegram:@eve", "matrix:eve", "api:eve"):
            said = called("pair", "revoke", nobody, home=tmp_path)
            assert (said.code, f"{nobody} is not a person" in said.err) == (1, True)
        assert people(tmp_path) == [("telegram:7", "revoked")]
    assert "a platform named matrix;" in everturn("pair", "revoke", "matrix:@eve:here", home=tmp_path).out
    assert "no open request" in called("pair", "approve", "ABCD2345", home=tmp_path).err
    assert all(no_request(tmp_path, number) for number in ("12", "9" * 19, "9" * 40, "²"))
    assert called("pair", "allow", "telegram:7", home=tmp_path).code == 0
    assert people(tmp_path) == [("telegram:7", "granted"), ("matrix:@eve:here", "revoked")]
    assert "telegram:7" in called("pair", "list", home=tmp_path).out
    assert called("pair", "approve", home=tmp_path).code == 2
