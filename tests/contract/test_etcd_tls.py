"""A store in an etcd that speaks TLS and knows its clients by their certificates."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dray.store import Committed, Put, open_store
from dray.store.errors import StoreOpenError, StoreUnreachableError
from tests.contract.etcd_server import NO_ETCD, Certificates, Cluster, Member, binary

BEGIN = datetime.datetime(2020, 1, 1)
END = datetime.datetime(2120, 1, 1)


class Authority:
    """Signs certificates for one test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, folder.name)])
        self.ca = folder / "ca.pem"
        basic = x509.BasicConstraints(ca=True, path_length=None)
        self._write(self.ca, self._draft(self._name, self._key).add_extension(basic, critical=True))

    def issue(self, name: str) -> Certificates:
        key = ec.generate_private_key(ec.SECP256R1())
        draft = self._draft(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key)
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        certificate, secret = self._folder / f"{name}.pem", self._folder / f"{name} key&.pem"
        self._write(certificate, draft.add_extension(here, False).add_extension(uses, False))
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return Certificates(self.ca, certificate, secret)

    def _draft(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        draft = x509.CertificateBuilder(self._name, name, key.public_key(), x509.random_serial_number())
        return draft.not_valid_before(BEGIN).not_valid_after(END)

    def _write(self, path: Path, draft: x509.CertificateBuilder) -> None:
        path.write_bytes(draft.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("etcd-tls")
    program = binary(folder)
    if program is None:
        pytest.skip(NO_ETCD)
    member = Member("m0", folder, program, durable=False)
    member.tls = authority.issue("etcd")
    cluster = Cluster([member])
    yield member.client
    cluster.stop()


def address(endpoint: str, files: Certificates) -> str:
    key = str(files.key).replace("&", "%26")
    return f"etcds://{endpoint}/tls?ca={files.ca}&cert={files.cert}&key={key}"


async def test_a_store_uses_tls_with_its_own_certificate(endpoint: str, authority: Authority):
    async with await open_store(address(endpoint, authority.issue("dray"))) as store:
        outcome = await store.txn([], [Put(b"a", b"1")])
        assert isinstance(outcome, Committed)
        entry = await store.get(b"a")
        assert entry is not None
        assert entry.value == b"1"


async def test_clients_without_a_trusted_certificate_are_refused(
    endpoint: str, authority: Authority, tmp_path: Path
):
    stranger = Authority(tmp_path / "theirs").issue("dray")
    mixed = Certificates(authority.ca, stranger.cert, stranger.key)
    for wrong in (f"etcds://{endpoint}/tls?ca={authority.ca}", address(endpoint, mixed)):
        with pytest.raises(StoreUnreachableError, match="certificate"):
            await open_store(wrong)


async def test_an_etcd_that_shows_a_foreign_certificate_is_not_trusted(endpoint: str, tmp_path: Path):
    stranger = Authority(tmp_path / "theirs").issue("dray")
    with pytest.raises(StoreUnreachableError, match="certificate"):
        await open_store(address(endpoint, stranger))


@pytest.mark.parametrize(
    ("address", "word"),
    [
        ("etcd://a:1/x?ca=pyproject.toml", "etcds://"),
        ("etcds://a:1/x?cacert=pyproject.toml", "`ca=`"),
        ("etcds://a:1/x?ca=nowhere.pem", "`nowhere.pem`"),
        ("etcds://a:1/x?cert=pyproject.toml", "both"),
    ],
)
async def test_a_mistake_in_the_files_is_one_line(address: str, word: str):
    with pytest.raises(StoreOpenError, match=word):
        await open_store(address)
