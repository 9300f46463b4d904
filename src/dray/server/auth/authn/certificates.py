"""The server's own certificate authority, its serving certificate, and client certificates.

Theory of operation: a directory has a CA (`ca.crt`, `ca.key`) that is created once, and a serving certificate
with its key (`serving.pem`) that is created again when the names of the server change, after two thirds of
its lifetime, when a clock was set back before its start, or when the CA is another. Key and certificate are
one file, so that no crash leaves one without the other; servers that share the directory load what another
one wrote. Client certificates are issued and not stored: the common name is the user, the organisations are
the groups. Every certificate that a client presents must be a client certificate of this CA; TLS enforces
that before a request is read.

No certificate outlives the CA. One that ends with the CA is not renewed: a new one would be no better, and
renewals would come ever more often.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dray.clock import Clock, SystemClock
from dray.private_files import open_memory_file
from dray.server.auth.authn.private_keys import load_or_create_key, read_key
from dray.server.auth.authn.secret_files import (
    CredentialError,
    lock_directory,
    prepare_key_directory,
    read_file,
    read_private_file,
    write_private_file,
)
from dray.x509_certificates import (
    PrivateKey,
    PublicKey,
    SigningAuthority,
    build_authority,
    build_common_name,
    build_general_names,
    build_serving_extensions,
    encode_certificate_pem,
    encode_key_pem,
    generate_key,
    is_issued_by,
    is_renewal_due,
    is_valid_at,
    parse_certificates,
    parse_key_pem,
    read_alternative_names,
)

DEFAULT_SERVED_NAMES = ("localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default.svc")
"""Names by which local clients and clients in pods address the API server."""

_CA_YEARS = 10
_SERVING_DAYS = 365
_LEAST_GAIN = timedelta(minutes=5)
"""A renewal that gains less is not worth it."""
_PAIR_BEFORE = ("serving.crt", "serving.key")
"""Where earlier versions had the serving certificate."""


@dataclass(frozen=True, slots=True)
class IssuedCredentials:
    """Credentials of a client: a certificate with its key, or a token. Only the
    certificate is ever printed.
    """

    cert_pem: bytes = b""
    key_pem: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)


class CertificateAuthority:
    """A CA and its serving certificate, in a directory."""

    def __init__(self, directory: Path, names: Sequence[str], clock: Clock) -> None:
        self.ca_file = directory / "ca.crt"
        self.serving_file = directory / "serving.pem"
        self._directory = directory
        self._names = tuple(dict.fromkeys((*names, *DEFAULT_SERVED_NAMES)))
        self._clock = clock
        self._loaded = b""
        """What `refresh` last put into a context."""
        with lock_directory(directory):
            self._key, self._ca = self._load_or_create_ca()

    @classmethod
    def open(
        cls, directory: Path, names: Sequence[str] = (), clock: Clock | None = None
    ) -> CertificateAuthority:
        """Open the directory and create what is missing; `names` are the host names and addresses of the
        server.
        """
        prepare_key_directory(directory)
        certificates = cls(directory, names, clock or SystemClock())
        certificates.renew_if_due()
        return certificates

    @classmethod
    def open_for_clients(cls, directory: Path, clock: Clock | None = None) -> CertificateAuthority:
        """Open the directory to issue client certificates, without touching the serving certificate."""
        return cls(directory, (), clock or SystemClock())

    @property
    def ca_pem(self) -> bytes:
        """The certificate of the CA, which clients trust."""
        return encode_certificate_pem(self._ca)

    @property
    def ca_certificate(self) -> x509.Certificate:
        """The certificate of the CA."""
        return self._ca

    def read_serving_certificate(self) -> x509.Certificate | None:
        """The serving certificate as it is stored; None when there is none."""
        found = parse_certificates(read_private_file(self.serving_file) or b"")
        return found[0] if found else None

    def renew_if_due(self) -> bytes:
        """Renew the serving certificate if needed; returns it with its key. Cheap when it is not due."""
        with lock_directory(self._directory):
            content = read_private_file(self.serving_file)
            if content is not None and self._is_serving_pair_valid(content):
                return content
            key = generate_key()
            made = self._sign_certificate(
                build_common_name("dray"),
                key.public_key(),
                timedelta(days=_SERVING_DAYS),
                build_serving_extensions(self._names),
            )
            content = encode_key_pem(key) + encode_certificate_pem(made) + self.ca_pem
            write_private_file(self.serving_file, content)
            for name in _PAIR_BEFORE:
                (self._directory / name).unlink(missing_ok=True)
            return content

    def refresh(self, context: ssl.SSLContext) -> bool:
        """Renew the serving certificate if needed, and load it into a context in use when it is another one
        than before, whoever renewed it; returns whether it is.
        """
        content = self.renew_if_due()
        if content == self._loaded:
            return False
        self._load_chain(context, content)
        return True

    def issue_client_certificate(
        self, user: str, groups: Sequence[str] = (), days: int = 365
    ) -> IssuedCredentials:
        """Issue a client certificate for a user and its groups."""
        key = generate_key()
        certificate = self.sign_client_certificate(
            (user, tuple(groups)), key.public_key(), timedelta(days=days)
        )
        return IssuedCredentials(certificate, encode_key_pem(key))

    def sign_client_certificate(
        self, subject: tuple[str, Sequence[str]], key: PublicKey, lifetime: timedelta
    ) -> bytes:
        """Sign a client certificate (PEM) for a user and its groups, and the key that they have."""
        user, groups = subject
        try:
            name = x509.Name(
                [
                    *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
                    x509.NameAttribute(NameOID.COMMON_NAME, user),
                ]
            )
        except ValueError:
            raise CredentialError(
                f"`{user}` cannot be the name in a certificate: expected 1 to 64 characters; use a token"
            ) from None
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        return encode_certificate_pem(self._sign_certificate(name, key, lifetime, [usage]))

    def is_renewal_useful(self, certificate: x509.Certificate, lifetime: timedelta) -> bool:
        """Whether a certificate of this CA is to be renewed: it is due, and a new one is better."""
        now = self._clock.now()
        if not is_renewal_due(certificate, now):
            return False
        end = min(now + lifetime, self._ca.not_valid_after_utc)
        return not is_valid_at(certificate, now) or end - certificate.not_valid_after_utc > _LEAST_GAIN

    def build_server_context(self) -> ssl.SSLContext:
        """Build the TLS context of the server: TLS 1.2 or later, client certificates accepted but not
        required.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load_chain(context, self.renew_if_due())
        context.load_verify_locations(self.ca_file)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _load_chain(self, context: ssl.SSLContext, content: bytes) -> None:
        with open_memory_file(content) as file:
            context.load_cert_chain(file)
        self._loaded = content

    def _load_or_create_ca(self) -> tuple[PrivateKey, x509.Certificate]:
        key_file = self._directory / "ca.key"
        content = read_file(self.ca_file)
        if content is not None:
            key = read_key(key_file)
            if key is None:
                raise CredentialError(
                    f"`{key_file}` is missing beside `{self.ca_file}`; put it back, or delete the "
                    "certificate to get a new authority (every client needs a new kubeconfig then)"
                )
            return key, self._check_ca(_parse_certificate(content, self.ca_file), key)
        key = load_or_create_key(key_file)
        made = build_authority("dray", key, self._clock.now(), timedelta(days=365 * _CA_YEARS))
        write_private_file(self.ca_file, encode_certificate_pem(made))
        return key, made

    def _check_ca(self, ca: x509.Certificate, key: PrivateKey) -> x509.Certificate:
        if ca.public_key() != key.public_key():
            raise CredentialError(f"the key beside `{self.ca_file}` is not the key of that certificate")
        if ca.not_valid_after_utc <= self._clock.now():
            raise CredentialError(
                f"`{self.ca_file}` is past its end ({ca.not_valid_after_utc:%Y-%m-%d}); delete it and "
                "`ca.key` to get a new authority (every client needs a new kubeconfig then)"
            )
        return ca

    def _is_serving_pair_valid(self, content: bytes) -> bool:
        """Return whether a serving certificate and its key can be used as they are."""
        found, key = parse_certificates(content), parse_key_pem(content)
        return (
            bool(found)
            and key is not None
            and found[0].public_key() == key.public_key()
            and is_issued_by(self._ca, found[0])
            and not self.is_renewal_useful(found[0], timedelta(days=_SERVING_DAYS))
            and read_alternative_names(found[0]) == build_general_names(self._names)
        )

    def _sign_certificate(
        self,
        subject: x509.Name,
        key: PublicKey,
        lifetime: timedelta,
        extensions: Sequence[x509.ExtensionType],
    ) -> x509.Certificate:
        now = self._clock.now()
        self._check_ca(self._ca, self._key)
        return SigningAuthority(self._ca, self._key).sign(subject, key, (now, lifetime), extensions)


def _parse_certificate(content: bytes, path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(content)
    except ValueError:
        raise CredentialError(f"`{path}` is no certificate (PEM); delete it to get a new one") from None
