"""Who may do what over HTTP, as tables."""

import pytest

from everturn.people.rules.rights import (
    OWNER,
    GatewayAddress,
    KeyScope,
    granted,
    is_open,
    is_page,
    needed,
    network_of,
    own_host,
    own_origin,
)

HERE = GatewayAddress("127.0.0.1", "")
PUBLIC = GatewayAddress("127.0.0.1", "https://chat.example.org")
CHAT, READ, OPS, ADMIN = KeyScope.CHAT, KeyScope.READ, KeyScope.OPS, KeyScope.ADMIN


@pytest.mark.parametrize(
    ("method", "path", "wanted"),
    [
        ("POST", "/api/chats/a/messages", {CHAT}),
        ("GET", "/api/chats/a/events", {CHAT, READ}),
        ("GET", "/control/status", {READ}),
        ("POST", "/control/stop", {OPS}),
        ("GET", "/control/keys", {ADMIN}),
        ("DELETE", "/control/keys/x", {ADMIN}),
        ("POST", "/control/login", {ADMIN}),
        ("GET", "/web/conversations", {KeyScope.OWNER}),
        ("POST", "/files", {KeyScope.OWNER}),
        ("GET", "/whatever/comes", {KeyScope.OWNER}),
        ("POST", "/logout", {ADMIN}),
        ("GET", "/logout", {KeyScope.OWNER}),
        ("POST", "/metrics", set()),
    ],
)
def test_every_route_wants_a_scope_and_what_is_not_named_wants_the_owner(
    method: str, path: str, wanted: set[KeyScope]
) -> None:
    assert needed(method, path) == wanted


def test_larger_scopes_hold_smaller_ones_and_none_holds_the_owners() -> None:
    assert granted(["ops"]) == {OPS, READ}
    assert granted(["admin"]) == {CHAT, READ, OPS, ADMIN}
    assert granted(["owner", "nonsense", "chat"]) == {CHAT}
    assert set(KeyScope) == OWNER


@pytest.mark.parametrize(
    ("path", "open_", "page"),
    [
        ("/", True, True),
        ("/login", True, True),
        ("/assets/main.js", True, True),
        ("/ops", True, True),
        ("/assets/ops/main.js", True, True),
        ("/assets/ops/deeper/main.js", False, False),
        ("/ops/api/overview", False, False),
        ("/health", True, False),
        ("/web/me", False, False),
        ("/logout", False, False),
        ("/assetsx", False, False),
        ("/assets/../control/keys", False, False),
    ],
)
def test_only_the_page_and_health_are_open(path: str, open_: bool, page: bool) -> None:  # noqa: FBT001
    assert (is_open(path), is_page(path)) == (open_, page)


@pytest.mark.parametrize(
    ("host", "place", "ours"),
    [
        ("127.0.0.1:8484", HERE, True),
        ("localhost:8484", HERE, True),
        ("LOCALHOST", HERE, True),
        ("[::1]:8484", HERE, True),
        ("192.168.1.5:8484", HERE, True),
        ("evil.example:8484", HERE, False),
        ("localhost.evil.example", HERE, False),
        ("chat.example.org", HERE, False),
        ("chat.example.org", PUBLIC, True),
        ("chat.example.org:443", PUBLIC, True),
        ("a@127.0.0.1", HERE, False),
        ("127.0.0.1/x", HERE, False),
        ("box", GatewayAddress("box", ""), True),
        ("", HERE, False),
        (None, HERE, False),
        ("[", HERE, False),
        ("127.0.0.1:99999", HERE, False),
    ],
)
def test_a_name_that_somebody_else_points_here_is_not_ours(host: str | None, place: GatewayAddress, ours: bool) -> None:  # noqa: FBT001
    assert own_host(host, place) is ours


@pytest.mark.parametrize(
    ("origin", "site", "host", "place", "ours"),
    [
        (None, None, "localhost:1", HERE, True),
        ("http://localhost:1", "same-origin", "localhost:1", HERE, True),
        ("http://LOCALHOST:1", None, "localhost:1", HERE, True),
        ("http://localhost:2", None, "localhost:1", HERE, False),
        ("https://evil.example", None, "localhost:1", HERE, False),
        ("null", None, "localhost:1", HERE, False),
        (None, "cross-site", "localhost:1", HERE, False),
        (None, "same-site", "localhost:1", HERE, False),
        (None, "none", "localhost:1", HERE, True),
        ("https://chat.example.org", "same-origin", "internal:80", PUBLIC, True),
        ("http://chat.example.org", "same-origin", "internal:80", PUBLIC, False),
        ("http://", None, "", HERE, False),
        ("http://[", None, "[", HERE, False),
    ],
)
def test_what_changes_something_comes_from_our_own_page(
    origin: str | None,
    site: str | None,
    host: str,
    place: GatewayAddress,
    ours: bool,  # noqa: FBT001
) -> None:
    assert own_origin(origin, site, host, place) is ours


@pytest.mark.parametrize(
    ("host", "public_url", "exposed"),
    [
        ("127.0.0.1", "", False),
        ("127.0.0.53", "", False),
        ("::1", "", False),
        ("localhost", "", False),
        ("0.0.0.0", "", True),
        ("::", "", True),
        ("192.168.1.2", "", True),
        ("box.lan", "", True),
        ("0.0.0.0", "http://box.lan", True),
        ("0.0.0.0", "https://chat.example", False),  # a proxy encrypts
    ],
)
def test_who_listens_to_the_network_without_https_is_exposed(host: str, public_url: str, exposed: bool) -> None:  # noqa: FBT001
    assert GatewayAddress(host, public_url).exposed is exposed


def test_https_is_known_by_the_public_address() -> None:
    assert (PUBLIC.secure, HERE.secure, PUBLIC.origin, HERE.origin) == (True, False, "https://chat.example.org", "")


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::6", "2001:db8:1:2::/64"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1:2:3", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("::1", "::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("fe80::2%eth1", "fe80::/64"),
        ("testclient", "testclient"),
        ("", ""),
    ],
)
def test_an_ipv6_client_counts_by_its_network_however_its_zeros_are_written(host: str, network: str) -> None:
    assert network_of(host) == network
