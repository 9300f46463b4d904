"""A server renews its certificates while it runs, and shows no expired one."""

from __future__ import annotations

import asyncio
import http.client
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from dray.client.client import Client
from dray.client.config.kubeconfig import load_client_config
from dray.client.timing import TimeSource
from dray.client.transports.http import HttpTransport
from dray.clock import ManualClock
from dray.cluster.services.api_server import ServerProcessOptions, open_server
from dray.cluster.services.certificate_renewal import (
    ServerCertificateRenewal,
    read_kubeconfig_certificate,
)
from dray.server.auth.authn import certificates as authority_module
from dray.server.auth.authn.certificates import CertificateAuthority
from dray.server.auth.authn.secret_files import CredentialError, write_private_file
from dray.telemetry.logs import StructuredLogger

NOW = datetime.now(UTC)
DAY = 86_400.0


class Place:
    """The certificates of a server that nobody calls, on a clock of its own."""

    def __init__(self, directory: Path, start: datetime = NOW) -> None:
        self.clock = ManualClock(start)
        self.lines: list[str] = []
        log = StructuredLogger(self._write_line, self.clock)
        self.keys, self.kubeconfig = directory / "keys", directory / "admin.kubeconfig"
        self.authority = CertificateAuthority.open(self.keys, ("a.example",), self.clock)
        self.renewal = ServerCertificateRenewal(
            self.authority, (self.kubeconfig, "https://127.0.0.1:1"), TimeSource(self.clock), log
        )
        self.renewal.write_kubeconfig()

    def _write_line(self, line: bytes) -> bool:
        self.lines.append(line.decode())
        return True

    def read_pair(self) -> bytes:
        return (self.keys / "serving.pem").read_bytes()

    def shake_hands(self) -> x509.Certificate:
        """The certificate that a new connection gets; raises `ssl.SSLError` when it is refused."""
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        near = client.wrap_bio(to_client, to_server, server_hostname="a.example")
        far = self.renewal.tls.wrap_bio(to_server, to_client, server_side=True)
        for _ in range(4):
            for side in (near, far):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        shown = near.getpeercert(binary_form=True)
        assert shown is not None
        return x509.load_der_x509_certificate(shown)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_running_server_renews_what_it_shows_without_dropping_connections(tmp_path: Path):
    asyncio.run(_renew_while_running(tmp_path))


async def _renew_while_running(tmp_path: Path) -> None:
    clock, tick = ManualClock(NOW - timedelta(days=300)), asyncio.Event()

    async def sleep(_seconds: float) -> None:
        await tick.wait()
        tick.clear()

    options = ServerProcessOptions(tmp_path, "memory:", port=0, time_source=TimeSource(clock, sleep))
    async with open_server(options) as server, asyncio.timeout(30):
        host, port = server.url.removeprefix("https://").split(":")
        context = ssl.create_default_context(cadata=server.authority.decode())

        def connect() -> tuple[http.client.HTTPSConnection, bytes | None]:
            connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=10)
            connection.connect()
            assert isinstance(connection.sock, ssl.SSLSocket)
            return connection, connection.sock.getpeercert(binary_form=True)

        def ask(connection: http.client.HTTPSConnection) -> int:
            connection.request("GET", "/version")
            response = connection.getresponse()
            response.read()
            return response.status

        before, shown_before = await asyncio.to_thread(connect)
        assert await asyncio.to_thread(ask, before) == 200
        config_before = server.kubeconfig.read_bytes()
        clock.advance(300 * DAY)
        tick.set()
        while True:
            after, shown_after = await asyncio.to_thread(connect)
            if shown_after != shown_before and server.kubeconfig.read_bytes() != config_before:
                break
            await asyncio.to_thread(after.close)
            await asyncio.sleep(0.01)
        assert await asyncio.to_thread(ask, after) == 200
        assert await asyncio.to_thread(ask, before) == 200, "the connection of before is still open"
        for connection in (before, after):
            connection.close()
        client = Client(HttpTransport(load_client_config(str(server.kubeconfig))))
        assert await client.get_json("/version")
        await client.close()
        files = (server.kubeconfig, tmp_path / "keys" / "serving.pem")
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_a_certificate_is_renewed_when_two_thirds_of_its_time_are_over(place: Place):
    first, shown = place.read_pair(), place.shake_hands()
    place.clock.advance(200 * DAY)
    place.renewal.renew()
    assert (place.read_pair(), place.shake_hands()) == (first, shown)
    place.clock.advance(50 * DAY)
    place.renewal.renew()
    renewed = place.shake_hands()
    assert renewed != shown
    assert renewed.public_key() != shown.public_key()
    assert renewed in x509.load_pem_x509_certificates(place.read_pair())
    admin = read_kubeconfig_certificate(place.kubeconfig)
    assert admin is not None
    assert admin.not_valid_after_utc > place.clock.now() + timedelta(days=364)


def test_an_expired_certificate_is_never_shown(place: Place):
    """A machine that slept past the end refuses one handshake, and has a new certificate for the next."""
    place.clock.advance(400 * DAY)
    with pytest.raises(ssl.SSLError):
        place.shake_hands()
    assert place.shake_hands().not_valid_after_utc > place.clock.now()


def test_a_server_that_starts_after_the_end_has_new_certificates(tmp_path: Path):
    Place(tmp_path)
    later = Place(tmp_path, NOW + timedelta(days=400))
    assert later.shake_hands().not_valid_after_utc > later.clock.now()
    assert all(when > later.clock.now() for when in later.renewal.read_expiry_times().values())


def test_renewals_do_not_come_ever_more_often_when_the_authority_ends(place: Place):
    place.clock.advance(3200 * DAY)
    pairs = set()
    for _ in range(440):
        place.clock.advance(DAY)
        place.renewal.renew()
        pairs.add(place.read_pair())
        assert place.shake_hands().not_valid_after_utc > place.clock.now()
    assert len(pairs) <= 3


def test_a_clock_that_jumps_and_comes_back_causes_two_renewals(tmp_path: Path):
    first = Place(tmp_path).read_pair()
    ahead = Place(tmp_path, NOW + timedelta(days=300))
    second = ahead.read_pair()
    back = Place(tmp_path, NOW)
    third = back.read_pair()
    assert len({first, second, third}) == 3
    for _ in range(5):
        back.renewal.renew()
    assert back.read_pair() == third
    assert back.shake_hands().not_valid_before_utc <= back.clock.now()


def test_the_end_of_the_authority_is_announced_once_a_day(place: Place):
    place.clock.advance((3650 - 100) * DAY)
    for _ in range(3):
        place.renewal.renew()
    warnings = [line for line in place.lines if "the certificate authority expires" in line]
    assert len(warnings) == 1
    place.clock.advance(DAY)
    place.renewal.renew()
    assert len([line for line in place.lines if "the certificate authority expires" in line]) == 2


def test_nothing_is_signed_after_the_end_of_the_authority(place: Place):
    place.clock.advance(3651 * DAY)
    place.renewal.renew()
    place.renewal.renew()
    failures = [line for line in place.lines if "cannot be renewed" in line and "past its end" in line]
    assert len(failures) == 2, "one for each certificate, and not again"
    with pytest.raises(ssl.SSLError):
        place.shake_hands()


def test_a_renewal_that_fails_is_tried_again_and_the_old_certificate_serves(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    shown = place.shake_hands()
    place.clock.advance(300 * DAY)
    monkeypatch.setattr(authority_module, "write_private_file", _refuse)
    place.renewal.renew()
    place.renewal.renew()
    assert place.shake_hands() == shown
    assert len([line for line in place.lines if "cannot be renewed" in line]) == 1
    monkeypatch.setattr(authority_module, "write_private_file", write_private_file)
    place.renewal.renew()
    assert place.shake_hands() != shown


def _refuse(path: Path, _content: bytes) -> None:
    raise CredentialError(f"`{path}` cannot be written: No space left on device")


@pytest.mark.parametrize("moment", ["before it is renamed", "after it is renamed"])
def test_a_crash_while_a_pair_is_written_leaves_a_pair(
    place: Place, monkeypatch: pytest.MonkeyPatch, moment: str
):
    class Crash(BaseException):
        pass

    rename: Callable[[Path, Path], Path] = Path.replace

    def crash(self: Path, target: Path) -> Path:
        if moment == "after it is renamed":
            rename(self, target)
        raise Crash

    place.clock.advance(300 * DAY)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(Crash):
            place.renewal.renew()
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(place.keys / "serving.pem")
    assert {path.stat().st_mode & 0o077 for path in place.keys.iterdir()} == {0}


def test_servers_that_share_their_keys_show_what_one_of_them_renewed(tmp_path: Path):
    one, other = Place(tmp_path), Place(tmp_path)
    for each in (one, other):
        each.clock.advance(300 * DAY)
        each.renewal.renew()
    assert one.shake_hands() == other.shake_hands()


def test_the_two_files_of_earlier_versions_are_replaced_by_one(tmp_path: Path):
    first = Place(tmp_path)
    pair = first.read_pair()
    (first.keys / "serving.pem").unlink()
    for name in ("serving.crt", "serving.key"):
        write_private_file(first.keys / name, pair)
    Place(tmp_path)
    assert sorted(path.name for path in first.keys.iterdir()) == [".lock", "ca.crt", "ca.key", "serving.pem"]
