"""Where a request goes: the address of a URL, and the proxy that the environment names for it."""

import pytest

from everturn.http_route import OutboundProxy, ServerRoute, proxy_for, route_to

PROXY = {"HTTPS_PROXY": "http://proxy:3128"}


@pytest.mark.parametrize(
    ("url", "route", "authority"),
    [
        ("https://api.example.com/v1", ServerRoute(True, "api.example.com", 443), "api.example.com"),
        ("http://127.0.0.1:8080/v1", ServerRoute(False, "127.0.0.1", 8080), "127.0.0.1:8080"),
        ("http://[::1]:80", ServerRoute(False, "::1", 80), "[::1]"),
        ("https://Ünï.example:443/", ServerRoute(True, "xn--n-nga1b.example", 443), "xn--n-nga1b.example"),
    ],
)
def test_an_address_is_read(url: str, route: ServerRoute, authority: str) -> None:
    assert route_to(url, {}) == route
    assert route.authority == authority


@pytest.mark.parametrize("url", ["", "api.example.com/v1", "ftp://x/", "http://", "http://x:port/"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"address|[Pp]ort"):
        route_to(url, {})


@pytest.mark.parametrize(
    ("env", "proxy"),
    [
        ({}, None),
        (PROXY, OutboundProxy(False, "proxy", 3128)),
        ({"https_proxy": "https://p", "HTTPS_PROXY": "http://other"}, OutboundProxy(True, "p", 443)),
        ({"https_proxy": "", "HTTPS_PROXY": "http://other"}, None),
        ({"ALL_PROXY": "p:1"}, OutboundProxy(False, "p", 1)),
        ({"HTTP_PROXY": "http://p"}, None),
        ({"HTTPS_PROXY": "http://us%40r:p%3Aw@p:1"}, OutboundProxy(False, "p", 1, "Basic dXNAcjpwOnc=")),
    ],
)
def test_the_environment_names_the_proxy(env: dict[str, str], proxy: OutboundProxy | None) -> None:
    assert proxy_for("https", "api.example.com", 443, env) == proxy


def test_a_cgi_program_takes_no_proxy_from_its_client() -> None:
    env = {"HTTP_PROXY": "http://evil", "REQUEST_METHOD": "GET"}
    assert proxy_for("http", "x", 80, env) is None
    assert proxy_for("http", "x", 80, {"http_proxy": "http://good", **env}) is not None


@pytest.mark.parametrize("kind", ["socks5", "socks5h", "ftp"])
def test_another_kind_of_proxy_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=r"socks|address"):
        proxy_for("https", "x", 443, {"ALL_PROXY": f"{kind}://login:secret@p:1"})


@pytest.mark.parametrize(
    ("excepted", "host", "port", "direct"),
    [
        ("*", "a.example.com", 443, True),
        ("example.com", "example.com", 443, True),
        ("example.com", "a.example.com", 443, True),
        ("EXAMPLE.com", "a.Example.COM", 443, True),
        (".example.com", "a.example.com", 443, True),
        (".example.com", "example.com", 443, False),
        ("example.com", "notexample.com", 443, False),
        ("other, example.com", "example.com", 443, True),
        ("example.com:8443", "example.com", 443, False),
        ("example.com:8443", "example.com", 8443, True),
        ("localhost", "localhost", 443, True),
        ("localhost", "a.localhost", 443, False),
        ("10.0.0.0/8", "10.1.2.3", 443, True),
        ("10.0.0.0/8", "11.1.2.3", 443, False),
        ("127.0.0.1", "127.0.0.1", 443, True),
        ("[::1]", "::1", 443, True),
        ("::1", "::1", 443, True),
        ("10.0.0.0/8", "example.com", 443, False),
        ("http://x:y", "x", 443, False),
        ("", "example.com", 443, False),
    ],
)
def test_no_proxy_excepts_hosts(excepted: str, host: str, port: int, direct: bool) -> None:  # noqa: FBT001
    assert (proxy_for("https", host, port, PROXY | {"NO_PROXY": excepted}) is None) is direct


@pytest.mark.parametrize(
    "url",
    [
        "http://me:hunter2#x@proxy:3128",
        "http://me:hunter2/x@proxy:3128",
        "htp://me:hunter2@proxy",
        "http://me:hunter2@proxy:x",
    ],
)
def test_no_error_holds_a_password(url: str) -> None:
    """Also where it has a character that should be escaped, so that it seems to be a port or a path."""
    for server, env in ((url, {}), ("https://here.example/", {"HTTPS_PROXY": url})):
        with pytest.raises(ValueError, match="address") as caught:
            route_to(server, env)
        assert "hunter2" not in str(caught.value)


def test_what_cannot_be_read_in_no_proxy_excepts_nothing() -> None:
    env = {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "[foo, here.example"}
    assert route_to("https://there.example/", env).proxy is not None
    assert route_to("https://here.example/", env).proxy is None
