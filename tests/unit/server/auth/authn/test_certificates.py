"""Certificates: created once, renewed when needed, private, and trusted only from the own authority."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from dray.clock import ManualClock
from dray.server.auth.authn.authentication import Authenticator
from dray.server.auth.authn.certificates import CertificateAuthority, IssuedCredentials
from dray.server.auth.authn.kubeconfig import build_kubeconfig
from dray.server.auth.authn.secret_files import CredentialError
from dray.server.auth.authn.token_file import StaticTokens

NOW = datetime.now(UTC)


def opened(directory: Path, *names: str, later: timedelta = timedelta()) -> CertificateAuthority:
    return CertificateAuthority.open(directory, names, ManualClock(NOW + later))


def test_all_files_are_private_and_reused(tmp_path):
    first = opened(tmp_path / "pki", "dray.example.com")
    before = {path.name: path.read_bytes() for path in (tmp_path / "pki").iterdir()}
    opened(tmp_path / "pki", "dray.example.com")
    after = {path.name: path.read_bytes() for path in (tmp_path / "pki").iterdir()}

    assert sorted(before) == [".lock", "ca.crt", "ca.key", "serving.pem"]
    assert before == after
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "pki").iterdir()} == {0o600}
    assert (tmp_path / "pki").stat().st_mode & 0o777 == 0o700
    assert first.ca_pem == before["ca.crt"]


def test_the_serving_certificate_has_its_names_its_use_and_a_small_key(tmp_path):
    opened(tmp_path, "dray.example.com", "10.0.0.7")
    made = x509.load_pem_x509_certificate((tmp_path / "serving.pem").read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value

    assert {"dray.example.com", "localhost"} <= set(names.get_values_for_type(x509.DNSName))
    assert {"10.0.0.7", "127.0.0.1"} <= {str(one) for one in names.get_values_for_type(x509.IPAddress)}
    assert list(usage) == [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]
    key = made.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert isinstance(key.curve, ec.SECP256R1)


@pytest.mark.parametrize(
    ("names", "later", "renewed"),
    [
        (("a.example",), timedelta(days=1), False),
        (("b.example",), timedelta(days=1), True),
        (("a.example",), timedelta(days=340), True),
    ],
)
def test_the_serving_certificate_is_made_again_when_it_must_be(tmp_path, names, later, renewed):
    opened(tmp_path, "a.example")
    before, authority = (tmp_path / "serving.pem").read_bytes(), (tmp_path / "ca.crt").read_bytes()
    opened(tmp_path, *names, later=later)
    assert ((tmp_path / "serving.pem").read_bytes() != before) is renewed
    assert (tmp_path / "ca.crt").read_bytes() == authority


def test_a_context_in_use_shows_the_new_certificate(tmp_path):
    clock = ManualClock(NOW - timedelta(days=340))
    certificates = CertificateAuthority.open(tmp_path, ("a.example",), clock)
    context = certificates.build_server_context()
    assert not certificates.refresh(context)
    first = shown_by(context, certificates)
    clock.advance(340 * 86400)
    assert certificates.refresh(context)
    assert shown_by(context, certificates) != first


def shown_by(context: ssl.SSLContext, certificates: CertificateAuthority) -> bytes | None:
    near, far = shaken(context, ssl.create_default_context(cadata=certificates.ca_pem.decode()))
    assert far.version() is not None
    return near.getpeercert(binary_form=True)


def test_a_serving_certificate_of_another_authority_is_replaced(tmp_path):
    opened(tmp_path / "one")
    opened(tmp_path / "two")
    (tmp_path / "one" / "serving.pem").write_bytes((tmp_path / "two" / "serving.pem").read_bytes())
    certificates = opened(tmp_path / "one")
    assert handshake(certificates, None) == {}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda pki: (pki / "ca.key").unlink(), r"`.*ca\.key` is missing .* put it back"),
        (
            lambda pki: (pki / "ca.key").write_bytes(b"-----BEGIN secret"),
            r"ca\.key` is no key as we write it",
        ),
        (lambda pki: (pki / "ca.crt").write_bytes(b"x"), r"ca\.crt` is no certificate"),
        (
            lambda pki: (pki / "ca.key").chmod(0o644),
            r"ca\.key` has mode 0644, so others may read or write it; expected 0600",
        ),
        (
            lambda pki: (pki / "ca.key").write_bytes((pki / "serving.pem").read_bytes()),
            r"the key beside `.*ca\.crt` is not the key of that certificate",
        ),
    ],
)
def test_what_is_spoilt_is_named_and_never_shown(tmp_path, spoil, words):
    opened(tmp_path)
    spoil(tmp_path)
    with pytest.raises(CredentialError, match=words) as error:
        opened(tmp_path)
    assert "secret" not in str(error.value)


def test_an_expired_authority_is_an_error(tmp_path):
    opened(tmp_path)
    with pytest.raises(CredentialError, match=r"is past its end \(.*\); delete it and `ca\.key`"):
        opened(tmp_path, later=timedelta(days=3651))


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CredentialError, match=r"file/pki` cannot be made: Not a directory"):
        opened(tmp_path / "file" / "pki")


# --- TLS ---


def shaken(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Connect both ends of a TLS handshake through memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (near, far):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return near, far


def handshake(
    server: CertificateAuthority,
    client: IssuedCredentials | None,
    folder: Path | None = None,
    trust: bytes | None = None,
) -> Mapping[str, object]:
    """Do a TLS handshake through memory; returns the client's certificate. Raises `ssl.SSLError`."""
    context = ssl.create_default_context(cadata=(trust or server.ca_pem).decode())
    if client is not None:
        assert folder is not None
        (folder / "client.pem").write_bytes(client.cert_pem + client.key_pem)
        context.load_cert_chain(folder / "client.pem")
    _, far = shaken(server.build_server_context(), context)
    assert far.version() in ("TLSv1.2", "TLSv1.3")
    return far.getpeercert() or {}


def test_a_client_is_identified_by_its_certificate(tmp_path):
    certificates = opened(tmp_path / "pki")
    admin = certificates.issue_client_certificate("jane", ["system:masters", "team:a"])
    peer = handshake(certificates, admin, tmp_path)
    user = Authenticator().authenticate({}, peer)
    assert (user.name, user.groups) == ("jane", ("system:masters", "team:a", "system:authenticated"))


def test_tls_accepts_a_client_without_a_certificate(tmp_path):
    assert handshake(opened(tmp_path), None) == {}


def test_clients_before_tls_1_2_are_not_let_in(tmp_path):
    assert opened(tmp_path).build_server_context().minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    "forgery", ["another authority", "its own signature", "a serving certificate", "expired"]
)
def test_a_forged_certificate_does_not_come_through(tmp_path, forgery):
    certificates = opened(tmp_path / "pki")
    if forgery == "another authority":
        shown = opened(tmp_path / "other").issue_client_certificate("system:admin", ["system:masters"])
    elif forgery == "its own signature":
        opened(tmp_path / "self")
        shown = IssuedCredentials(
            (tmp_path / "self" / "ca.crt").read_bytes(), (tmp_path / "self" / "ca.key").read_bytes()
        )
    elif forgery == "a serving certificate":
        shown = IssuedCredentials((tmp_path / "pki" / "serving.pem").read_bytes())
    else:
        past = CertificateAuthority.open(tmp_path / "pki", (), ManualClock(NOW - timedelta(days=30)))
        shown = past.issue_client_certificate("jane", days=1)
    with pytest.raises(ssl.SSLError):
        handshake(certificates, shown, tmp_path)


def test_a_server_of_another_authority_is_not_believed(tmp_path):
    server, other = opened(tmp_path / "one"), opened(tmp_path / "two")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, None, trust=other.ca_pem)


def test_a_name_that_fits_no_certificate_is_refused_with_a_way_out(tmp_path):
    with pytest.raises(CredentialError, match=r"expected 1 to 64 characters; use a token"):
        opened(tmp_path).issue_client_certificate("x" * 65)


# --- what is handed out ---


def test_a_kubeconfig_needs_no_other_file(tmp_path):
    certificates = opened(tmp_path)
    admin = certificates.issue_client_certificate("admin", ["system:masters"])
    document = build_kubeconfig("https://localhost:6443", certificates.ca_pem, admin)
    assert document["current-context"] == "dray"
    assert document["clusters"][0]["cluster"]["server"] == "https://localhost:6443"
    assert sorted(document["users"][0]["user"]) == ["client-certificate-data", "client-key-data"]
    token = build_kubeconfig("https://localhost:6443", certificates.ca_pem, IssuedCredentials(token="abc"))
    assert token["users"][0]["user"] == {"token": "abc"}


def test_secrets_are_not_printed(tmp_path):
    made = opened(tmp_path).issue_client_certificate("jane")
    assert "PRIVATE" not in repr(made)
    assert "hush" not in repr(IssuedCredentials(token="hush"))
    assert "hush" not in repr(StaticTokens({"hush": Authenticator().authenticate({}, None, "/version")}))
