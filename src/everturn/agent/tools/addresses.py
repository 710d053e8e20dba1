"""Which IP addresses are public: the fetch tool may reach those, and nothing in this machine or behind the owner's router."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_NOT_PUBLIC_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ),
    )
)
_PUBLIC_6 = IPv6Network("2000::/3")  # the only part of the IPv6 address space that is routed
_NOT_PUBLIC_6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))
_NAT64 = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = IPv6Network("2002::/16")


def is_public(text: str) -> bool:
    """Whether an IP address is public; an IPv6 address that carries an IPv4 one is judged by the latter."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        return _is_public_6(address)
    return not any(address in network for network in _NOT_PUBLIC_4) and address.is_global


def _is_public_6(address: IPv6Address) -> bool:
    inner = _inner(address)
    if inner is not None:
        return is_public(str(inner))
    return address in _PUBLIC_6 and not any(address in network for network in _NOT_PUBLIC_6) and address.is_global


def _inner(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address inside an IPv6 one: mapped, translated (NAT64) or tunnelled (6to4)."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _SIX_TO_FOUR:
        return IPv4Address((int(address) >> 80) & 0xFFFF_FFFF)
    return address.ipv4_mapped
