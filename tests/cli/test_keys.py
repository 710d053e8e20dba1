"""Access keys and logins from the command line, with the gateway running and without it."""

import json
import urllib.error
import urllib.request
from pathlib import Path

from everturn.home.folder import Home, holder
from tests.cli.program import GatewayProgram, called, everturn
from tests.waiting import WAIT_S


def code_of(home: Path, key: str, path: str, body: str | None = None) -> int:
    process = holder(Home(home))
    assert process is not None
    data = None if body is None else body.encode()
    request = urllib.request.Request(process.url + path, data, headers={"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def listed(home: Path) -> list[tuple[str, list[str], bool]]:
    keys = json.loads(called("keys", "list", "--json", home=home).out)["keys"]
    return [(key["name"], key["scopes"], key["revoked_at"] is not None) for key in keys]


def test_a_key_is_made_used_listed_and_revoked_while_the_gateway_runs(tmp_path: Path) -> None:
    with GatewayProgram(tmp_path) as gateway:
        gateway.ready()
        key = everturn("keys", "create", "bot", "--scope", "read", "--scope", "chat", home=tmp_path).out.strip()
        assert (code_of(tmp_path, key, "/control/status"), code_of(tmp_path, key, "/control/keys")) == (200, 403)
        assert listed(tmp_path) == [("bot", ["read", "chat"], False)]
        again = called("keys", "create", "bot", home=tmp_path)
        assert (again.code, "revoke it first" in again.err) == (1, True)
        assert called("keys", "revoke", "bot", home=tmp_path).code == 0
        assert code_of(tmp_path, key, "/control/status") == 401
        assert key not in gateway.output
    assert listed(tmp_path) == [("bot", ["read", "chat"], True)]


def test_what_a_key_made_is_named_when_it_is_revoked_and_ends_when_that_is_asked_for(tmp_path: Path) -> None:
    with GatewayProgram(tmp_path) as gateway:
        gateway.ready()
        for boss in ("one", "two"):
            key = called("keys", "create", boss, "--scope", "admin", home=tmp_path).out.strip()
            made = json.dumps({"name": f"by-{boss}", "scopes": ["chat"]})
            assert code_of(tmp_path, key, "/control/keys", made) == 201
        left = called("keys", "revoke", "one", home=tmp_path).out
        ended = called("keys", "revoke", "--with-made", "two", home=tmp_path).out
    assert "Still valid, and made with it: by-one." in left
    assert "So are the keys that were made with it: by-two." in ended
    assert "one (revoked)" in called("keys", "list", home=tmp_path).out
    assert [name for name, _, revoked in listed(tmp_path) if not revoked] == ["by-one"]


def test_keys_of_a_stopped_home_are_in_force_at_its_next_start(tmp_path: Path) -> None:
    nothing = called("keys", "create", "bot", home=tmp_path / "none")
    assert (nothing.code, "everturn run" in nothing.err) == (1, True)
    with GatewayProgram(tmp_path) as gateway:
        gateway.ready()
    made = called("keys", "create", "bot", home=tmp_path)
    assert "not shown again" in made.err
    table = called("keys", "list", home=tmp_path).out
    assert made.out.strip()[:9] in table
    assert made.out.strip() not in table
    with GatewayProgram(tmp_path) as gateway:
        gateway.ready()
        assert code_of(tmp_path, made.out.strip(), "/api/chats/a/transcript") == 200
    assert called("keys", "revoke", "bot", home=tmp_path).code == 0
    assert called("keys", "revoke", "bot", home=tmp_path).code == 1


def test_a_login_link_is_printed_for_a_running_gateway_only(tmp_path: Path) -> None:
    stopped = called("login", home=tmp_path)
    assert (stopped.code, "everturn run" in stopped.err) == (1, True)
    with GatewayProgram(tmp_path, EVERTURN_SERVER_PUBLIC_URL="https://chat.example.org") as gateway:
        gateway.ready()
        link = everturn("login", home=tmp_path).out.strip()
        assert link.startswith("https://chat.example.org/login#")
        assert link.partition("#")[2] not in gateway.output
        assert "0 browsers" in called("logout", home=tmp_path).out


def test_without_a_terminal_no_link_is_printed(shared: GatewayProgram) -> None:
    assert "login#" not in shared.output
