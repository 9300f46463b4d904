"""The server's own certificate authority, its serving certificate, and client certificates.

Theory of operation: a directory has a CA (`ca.crt`, `ca.key`) that is created once, and a serving certificate
(`serving.crt`, `serving.key`) that is created again when the names of the server change, when it is about to
expire, or when the CA is another. Client certificates are issued and not stored: the common name is the user,
the organisations are the groups. Every certificate that a client presents must be a client certificate of
this CA; TLS enforces that before a request is read.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dray.clock import Clock, SystemClock
from dray.server.auth.authn.private_keys import load_or_create_key, read_key
from dray.server.auth.authn.secret_files import (
    CredentialError,
    lock_directory,
    prepare_key_directory,
    read_file,
    write_private_file,
)
from dray.x509_certificates import (
    PrivateKey,
    SigningAuthority,
    build_authority,
    build_common_name,
    build_general_names,
    build_serving_extensions,
    encode_certificate_pem,
    encode_key_pem,
    generate_key,
    is_issued_by,
    read_alternative_names,
)

DEFAULT_SERVED_NAMES = ("localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default.svc")
"""Names by which local clients and clients in pods address the API server."""

_CA_YEARS = 10
_SERVING_DAYS = 365
_RENEW_BEFORE = timedelta(days=30)


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
        self.cert_file = directory / "serving.crt"
        self.key_file = directory / "serving.key"
        self._directory = directory
        self._names = tuple(dict.fromkeys((*names, *DEFAULT_SERVED_NAMES)))
        self._clock = clock
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

    def read_expiry_times(self) -> dict[str, datetime]:
        """When the certificates of the CA and of the server expire."""
        serving = x509.load_pem_x509_certificate(self.cert_file.read_bytes())
        return {"ca": self._ca.not_valid_after_utc, "serving": serving.not_valid_after_utc}

    def renew_if_due(self) -> bool:
        """Renew the serving certificate if needed; returns whether it was. Cheap when it is not."""
        with lock_directory(self._directory):
            if self._is_serving_cert_valid():
                return False
            key = generate_key()
            made = self._sign_certificate(
                build_common_name("dray"), key, _SERVING_DAYS, build_serving_extensions(self._names)
            )
            write_private_file(self.key_file, encode_key_pem(key))
            write_private_file(self.cert_file, encode_certificate_pem(made) + self.ca_pem)
            return True

    def refresh(self, context: ssl.SSLContext) -> bool:
        """Renew the serving certificate if needed and load it into a context in use;
        returns whether it was.
        """
        renewed = self.renew_if_due()
        if renewed:
            self._load_chain(context)
        return renewed

    def issue_client_certificate(
        self, user: str, groups: Sequence[str] = (), days: int = 365
    ) -> IssuedCredentials:
        """Issue a client certificate for a user and its groups."""
        key = generate_key()
        try:
            subject = x509.Name(
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
        return IssuedCredentials(
            encode_certificate_pem(self._sign_certificate(subject, key, days, [usage])), encode_key_pem(key)
        )

    def build_server_context(self) -> ssl.SSLContext:
        """Build the TLS context of the server: TLS 1.2 or later, client certificates accepted but not
        required.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load_chain(context)
        context.load_verify_locations(self.ca_file)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _load_chain(self, context: ssl.SSLContext) -> None:
        with lock_directory(self._directory):  # no renewal between reading the two files
            context.load_cert_chain(self.cert_file, self.key_file)

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

    def _is_serving_cert_valid(self) -> bool:
        """Return whether the serving certificate exists and is valid for the server."""
        content = read_file(self.cert_file)
        key = read_key(self.key_file)
        if content is None or key is None:
            return False
        made = _parse_certificate(content, self.cert_file)
        return (
            made.public_key() == key.public_key()
            and is_issued_by(self._ca, made)
            and made.not_valid_after_utc - _RENEW_BEFORE > self._clock.now()
            and read_alternative_names(made) == build_general_names(self._names)
        )

    def _sign_certificate(
        self, subject: x509.Name, key: PrivateKey, days: int, extensions: Sequence[x509.ExtensionType]
    ) -> x509.Certificate:
        authority = SigningAuthority(self._ca, self._key)
        return authority.sign(subject, key, (self._clock.now(), timedelta(days=days)), extensions)


def _parse_certificate(content: bytes, path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(content)
    except ValueError:
        raise CredentialError(f"`{path}` is no certificate (PEM); delete it to get a new one") from None
