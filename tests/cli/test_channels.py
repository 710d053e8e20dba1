"""`everturn channels`: the same through a running gateway and into a stopped home."""

import json
from pathlib import Path

from tests.cli.program import GatewayProgram, called, everturn


def test_names_are_given_taken_and_listed_whether_the_gateway_runs_or_not(tmp_path: Path) -> None:
    assert "No chat is known yet" in called("channels", "list", home=tmp_path).out
    with GatewayProgram(tmp_path) as gateway:
        gateway.ready()
        given = everturn("channels", "alias", "Boss", "telegram:-100:7", "--json", home=tmp_path)
        assert json.loads(given.out) == {"alias": "boss", "address": "telegram:-100:7"}
        assert "is not an address" in called("channels", "alias", "x", "nowhere", home=tmp_path).err
        listed = json.loads(called("channels", "list", "--json", home=tmp_path).out)
    assert listed == {"channels": [], "aliases": {"boss": "telegram:-100:7"}}
    assert "telegram:-100:7" in called("channels", "list", home=tmp_path).out
    assert called("channels", "unalias", "BOSS", home=tmp_path).out == "boss is no longer an alias.\n"
    assert "there is no alias" in called("channels", "unalias", "boss", home=tmp_path).err
