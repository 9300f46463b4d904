"""X.509: keys, authorities, and the certificates they sign; nothing is stored here.

Keys are on the curve P-256: small, fast, and supported by every client.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PrivateKey = ec.EllipticCurvePrivateKey

_SKEW: Final = timedelta(minutes=5)
"""Certificates are valid from a little before they are issued, because clocks differ."""


def generate_key() -> PrivateKey:
    """Generate a key."""
    return ec.generate_private_key(ec.SECP256R1())


def encode_key_pem(key: PrivateKey) -> bytes:
    """Encode a key as PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def parse_key_pem(content: bytes) -> PrivateKey | None:
    """Parse a key; None when it is no key as we write it (PEM, P-256, no password)."""
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError):
        return None
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    return None


@dataclass(frozen=True, slots=True)
class SigningAuthority:
    """An authority with its key."""

    certificate: x509.Certificate
    key: PrivateKey

    def sign(
        self,
        subject: x509.Name,
        key: PrivateKey,
        period: tuple[datetime, timedelta],
        extensions: Sequence[x509.ExtensionType],
    ) -> x509.Certificate:
        """Issue a certificate from now on for some time, but not longer than the authority is valid."""
        now, length = period
        end = min(now + length, self.certificate.not_valid_after_utc)
        builder = (
            _start_builder(subject, key, now - _SKEW, end)
            .issuer_name(self.certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_build_key_usage("digital_signature"), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
            )
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self.key, hashes.SHA256())


def build_authority(name: str, key: PrivateKey, now: datetime, length: timedelta) -> x509.Certificate:
    """Build the certificate of an authority, signed by itself."""
    subject = build_common_name(name)
    return (
        _start_builder(subject, key, now - _SKEW, now + length)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_build_key_usage("key_cert_sign", "crl_sign", "digital_signature"), critical=True)
        .sign(key, hashes.SHA256())
    )


def build_serving_extensions(names: Sequence[str]) -> list[x509.ExtensionType]:
    """The extensions of the certificate of a server that is reached by these names and addresses."""
    return [
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
        x509.SubjectAlternativeName(build_general_names(names)),
    ]


def _start_builder(
    subject: x509.Name, key: PrivateKey, start: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


_KEY_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def _build_key_usage(*enabled: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage in enabled for usage in _KEY_USAGES})


def build_common_name(name: str) -> x509.Name:
    """A subject that is just a common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def build_general_names(names: Sequence[str]) -> list[x509.GeneralName]:
    """Host names and addresses as they are written into certificates."""
    return [_build_general_name(name) for name in names]


def _build_general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def read_alternative_names(certificate: x509.Certificate) -> list[x509.GeneralName]:
    """The host names and addresses in a certificate."""
    try:
        return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []


def is_issued_by(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Whether an authority signed a certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def encode_certificate_pem(certificate: x509.Certificate) -> bytes:
    """Encode a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)
