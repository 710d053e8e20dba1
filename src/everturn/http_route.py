"""Where a request goes: the address of a URL, and the outbound proxy that the environment names for it. Pure."""

from __future__ import annotations

import ipaddress
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class OutboundProxy:
    """An HTTP proxy: its address, and the value of the header that it wants."""

    tls: bool
    host: str
    port: int
    authorization: str | None = None


@dataclass(frozen=True, slots=True)
class ServerRoute:
    """A server and the way to it. Connections are shared by requests of the same route only."""

    tls: bool
    host: str
    port: int
    proxy: OutboundProxy | None = None

    @property
    def authority(self) -> str:
        """The server as a `Host` line names it."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == PORTS["https" if self.tls else "http"] else f"{name}:{self.port}"


def route_to(url: str, env: Mapping[str, str]) -> ServerRoute:
    """The route to the server of a URL. Raises ValueError, which says what is wrong with the URL or the proxy's."""
    parts = urlsplit(url)
    host, port = _address(parts)
    return ServerRoute(parts.scheme == "https", host, port, proxy_for(parts.scheme, host, port, env))


def _address(parts: SplitResult) -> tuple[str, int]:
    """Host and port of a URL. Raises ValueError, whose text has nothing of the URL but its host: it may hold a password, and one with
    a character that has to be escaped there may be anywhere in it.
    """
    if parts.scheme not in PORTS or not parts.hostname:
        shown = repr(parts.geturl()) if "@" not in parts.geturl() else "one with a login"
        raise ValueError(f"the address ({shown}) does not begin with http:// or https:// and a name")
    try:
        port = parts.port
    except ValueError:
        raise ValueError("the address has a port that is no number; a login in it must be percent-encoded") from None
    host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
    return host, port or PORTS[parts.scheme]


def proxy_for(scheme: str, host: str, port: int, env: Mapping[str, str]) -> OutboundProxy | None:
    """The proxy that `HTTP_PROXY`, `HTTPS_PROXY` or `ALL_PROXY` names, unless `NO_PROXY` excepts the host. Raises ValueError."""
    names = {name.lower(): value for name, value in env.items() if not name.islower()}
    if "REQUEST_METHOD" in env:
        names.pop("http_proxy", None)  # in a CGI program a client chooses it, with a header `Proxy`
    names |= {name: value for name, value in env.items() if name.islower()}
    url = names.get(f"{scheme}_proxy") or names.get("all_proxy")
    if not url or _excepted(host, port, (each.strip() for each in names.get("no_proxy", "").split(","))):
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme.startswith("socks"):
        raise ValueError(f"a proxy of the kind {parts.scheme} is not supported, only http and https")
    return OutboundProxy(parts.scheme == "https", *_address(parts), _basic(parts))


def _basic(parts: SplitResult) -> str | None:
    if parts.username is None:
        return None
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {b64encode(login.encode()).decode()}"


def _excepted(host: str, port: int, patterns: Iterable[str]) -> bool:
    """Whether one of these patterns names the host: a name and the names below it, an address, a network, or `*`."""
    return any(pattern and _names(pattern.lower(), host.lower(), port) for pattern in patterns)


def _names(pattern: str, host: str, port: int) -> bool:
    if pattern == "*":
        return True
    if (found := _in_network(pattern, host)) is not None:
        return found
    try:
        name = urlsplit(pattern if "://" in pattern else f"//{pattern}")
        wanted, at = name.hostname or "", name.port
    except ValueError:
        return False  # as curl does: what cannot be read excepts nothing
    if at is not None and at != port:
        return False
    if wanted.startswith((".", "*.")):
        return host.endswith(wanted.lstrip("*"))
    return host == wanted or (wanted != "localhost" and "://" not in pattern and host.endswith(f".{wanted}"))


def _in_network(pattern: str, host: str) -> bool | None:
    """Whether a pattern that is an address or a network has the host; None for any other pattern."""
    try:
        network = ipaddress.ip_network(pattern.strip("[]"), strict=False)
    except ValueError:
        return None
    try:
        return ipaddress.ip_address(host) in network
    except ValueError:
        return False
