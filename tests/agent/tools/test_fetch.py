"""Fetching: public addresses only, whatever names, redirects and servers say; bounded in size, time and hops."""

import asyncio
import datetime as dt
import gzip
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from everturn.agent.tools.fetch import Fetch, FetchSettings, is_public
from everturn.clock import Clock, SystemClock
from everturn.testing import ManualClock
from tests.agent.tools.benches import Bench
from tests.agent.tools.sites import Site, answer, redirect

NAMES = {"site.example": ["127.0.0.1"], "both.example": ["93.184.216.34", "127.0.0.1"], "inside.example": ["10.0.0.1"]}
HERE = ("127.0.0.1", "site.example")


async def names(host: str, port: int) -> Sequence[str]:
    """A resolver that knows a few names."""
    if host.replace(".", "").isdigit() or ":" in host:
        return [host]
    return NAMES[host] if host in NAMES else _unknown()


def _unknown() -> list[str]:
    raise OSError("no such name")


def bench(
    folder: Path,
    clock: Clock = SystemClock(),  # noqa: B008  it has no state
    allow_private: tuple[str, ...] = HERE,
    **changes: object,
) -> Bench:
    settings = FetchSettings(allow_private=allow_private, **changes)  # type: ignore[arg-type]
    tools = Fetch(settings, clock, names).tools()
    return Bench(folder, lambda _: tools)


NOT_PUBLIC = [
    "127.0.0.1",
    "127.8.9.1",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.127.255.255",
    "192.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd12:3456::1",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
    "2001::1",
    "100::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:a9fe:a9fe",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "64:ff9b:1::1",
    "2002:7f00:1::1",
    "2002:a00:1::1",
    "localhost",
    "1",
    "0x7f000001",
    "2130706433",
    "nonsense",
]


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_behind_the_router_or_in_the_machine_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"]
)
def test_an_address_of_the_open_internet_is_public(address: str) -> None:
    assert is_public(address)


async def test_a_page_is_given_as_its_words(tmp_path: Path) -> None:
    page = (
        "<html><head><title>A &amp; B</title><style>p{}</style></head><body><h1>Hello</h1><script>evil()</script>"
        "<p>One <b>two</b><br>three <a href='/next'>more</a> 1 < 2</p><!-- not -- this --></body></html>"
    )
    async with Site({"/": answer(page, "text/html; charset=utf-8")}) as site, bench(tmp_path) as web:
        result = await web.use("fetch_page", url=site.url())
        head, _, text = result.partition("\n")
        assert head.startswith(f"[{site.url()} answered 200, text/html.")
        assert text == f"A & B\n\nHello\nOne two\nthree more ({site.url('/next')}) 1 < 2"


@pytest.mark.parametrize(
    "url",
    [
        "http://inside.example/",
        "http://both.example/",
        "http://10.0.0.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://169.254.169.254/latest/meta-data/",
        "file:///etc/passwd",
        "ftp://site.example/",
        "http://ann:secret@site.example/",
        "http://nobody.example/",
        "http://",
        "site.example",
        "http://[bad/",
    ],
)
async def test_what_may_not_be_fetched_is_refused_before_anything_is_sent(tmp_path: Path, url: str) -> None:
    async with bench(tmp_path, allow_private=()) as web:
        assert (await web.use("fetch_page", url=url)).startswith("Error: ")


async def test_every_hop_is_checked(tmp_path: Path) -> None:
    async with Site({}) as inner, Site({"/": redirect(inner.url("/secret"))}) as site:
        async with bench(tmp_path, allow_private=("site.example",)) as web:
            result = await web.use("fetch_page", url=site.url(host="site.example"))
        assert result == "Error: 127.0.0.1 is not a public address."
        assert inner.seen == []


async def test_the_checked_address_is_the_one_that_is_reached(tmp_path: Path) -> None:
    """A name that says something else a moment later gains nothing: it is asked once for each hop."""
    asked: list[str] = []

    async def once(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"]

    settings = FetchSettings(allow_private=("site.example",))
    async with Site({"/": redirect("/next"), "/next": answer("here")}) as site:
        async with Bench(tmp_path, lambda _: Fetch(settings, SystemClock(), once).tools()) as web:
            result = await web.use("fetch_page", url=site.url(host="site.example"))
        assert result.endswith("\nhere")
        assert asked == ["site.example", "site.example"]
        assert all(f"host: site.example:{site.port}" in request.lower() for request in site.seen)


def own_certificate(folder: Path) -> ssl.SSLContext:
    """A certificate that nobody vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "site.example")])
    now = dt.datetime.now(dt.UTC)
    certificate = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + dt.timedelta(days=1)).sign(
        key, hashes.SHA256()
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "site.pem").write_bytes(private + certificate.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "site.pem")
    return context


async def test_the_certificate_must_be_the_hosts_own(tmp_path: Path) -> None:
    """We connect to an address, but ask for the name and check the certificate for it."""
    context, wanted = own_certificate(tmp_path), []
    context.sni_callback = lambda _socket, name, _context: wanted.append(name)
    async with Site({"/": answer("hello")}, context) as site, bench(tmp_path) as web:
        result = await web.use("fetch_page", url=site.url(host="site.example"))
        assert result == "Error: the page could not be fetched (ConnectError)."
        assert wanted == ["site.example"]
        assert site.seen == []


async def test_redirects_are_bounded(tmp_path: Path) -> None:
    async with Site({"/": redirect("/")}) as site, bench(tmp_path, redirects=3) as web:
        assert "redirects more than 3 times" in await web.use("fetch_page", url=site.url())
        assert len(site.seen) == 4


async def test_no_cookie_is_carried_on(tmp_path: Path) -> None:
    first = redirect("/next").replace(b"\r\n\r\n", b"\r\nset-cookie: a=b\r\n\r\n", 1)
    async with Site({"/": first, "/next": answer("x")}) as site, bench(tmp_path) as web:
        await web.use("fetch_page", url=site.url())
        assert "cookie" not in site.seen[1].lower()


@pytest.mark.parametrize("packed", [False, True])
async def test_a_large_page_is_cut(tmp_path: Path, *, packed: bool) -> None:
    data = b"x" * 5_000_000
    page = answer(gzip.compress(data), content_encoding="gzip") if packed else answer(data)
    async with Site({"/": page}) as site, bench(tmp_path, page_bytes=1_000) as web:
        result = await web.use("fetch_page", url=site.url())
    assert result.endswith("\n" + "x" * 1_000)
    assert "It was cut after 1000 bytes." in result


async def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Site({"/": None}) as site, bench(tmp_path, clock, time_s=600) as web:
        number = web.say(("fetch_page", {"url": site.url()}))
        await site.asked.wait()
        clock.advance(601)
        (result,) = await web.results(number)
    assert result.content == "Error: the server took longer than 600 seconds."


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (answer(b"\x89PNG", "image/png"), "the page is image/png, not a text"),
        (answer("x", content_encoding="br"), "compressed the page as br"),
        (answer("not packed", content_encoding="gzip"), "damaged"),
        (b"nonsense\r\n\r\n", "could not be fetched (RemoteProtocolError)"),
        (b"", "could not be fetched (RemoteProtocolError)"),
    ],
)
async def test_what_is_no_text_is_told(tmp_path: Path, page: bytes, text: str) -> None:
    async with Site({"/": page}) as site, bench(tmp_path) as web:
        assert text in await web.use("fetch_page", url=site.url())


@pytest.mark.parametrize("charset", ["latin-1", "idna", "zlib", "undefined", "none-such"])
async def test_any_charset_is_survived(tmp_path: Path, charset: str) -> None:
    page = answer("caf\xe9".encode("latin-1"), f"text/plain; charset={charset}")
    async with Site({"/": page}) as site, bench(tmp_path) as web:
        result = await web.use("fetch_page", url=site.url())
    assert result.endswith("caf\xe9" if charset == "latin-1" else "caf\ufffd")


async def test_many_fetches_at_once_do_not_mix(tmp_path: Path) -> None:
    pages = {f"/{n}": answer(f"page {n}") for n in range(10)}
    async with Site({**pages}) as site, bench(tmp_path) as web:
        uses = (web.use("fetch_page", url=site.url(f"/{n}"), chat=f"c{n}") for n in range(10))
        results = await asyncio.gather(*uses)
    assert [result.rpartition("\n")[2] for result in results] == [f"page {n}" for n in range(10)]
