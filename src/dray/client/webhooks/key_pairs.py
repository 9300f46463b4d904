"""Certificates of an admission webhook and the authority that signs them, as the data of a secret.

Theory of operation: a secret holds an authority of the webhook's own and a certificate that it signed. A
certificate is renewed when a third of its life is left, by the same authority. A new authority is put before
the previous one, which stays in the bundle until it expires.

Rules for this file: no I/O; the time is an argument.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dray.x509_certificates import SKEW, is_renewal_due

CERTIFICATE_LIFE: Final = timedelta(days=90)
AUTHORITY_LIFE: Final = timedelta(days=3650)
_CERTIFICATE, _KEY, _AUTHORITY, _AUTHORITY_KEY = "tls.crt", "tls.key", "ca.crt", "ca.key"


@dataclass(frozen=True, slots=True)
class WebhookKeyPair:
    """A certificate with its key, and the authorities that API servers trust; all as PEM."""

    certificate: bytes
    key: bytes
    authorities: bytes
    """The authority that signs certificates first, then earlier ones that have not expired."""
    authority_key: bytes

    def to_data(self) -> dict[str, str]:
        """Convert to the data of a secret."""
        content = {
            _CERTIFICATE: self.certificate,
            _KEY: self.key,
            _AUTHORITY: self.authorities,
            _AUTHORITY_KEY: self.authority_key,
        }
        return {name: base64.b64encode(value).decode() for name, value in content.items()}


@dataclass(frozen=True, slots=True)
class WebhookAuthority:
    """An authority that signs certificates, and the bundle of all that are trusted."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    bundle: bytes


def issue_key_pair(
    names: Sequence[str], now: datetime, authority: WebhookAuthority | None = None
) -> WebhookKeyPair:
    """Issue a certificate for DNS names, signed by an authority or, without one, by a new authority."""
    authority = authority or _create_authority(now, b"")
    key = ec.generate_private_key(ec.SECP256R1())
    extensions = (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), False),
    )
    subject = _build_name(names[0][:64])
    issued = _sign(subject, key.public_key(), authority, (now, now + CERTIFICATE_LIFE), extensions)
    return WebhookKeyPair(
        _encode_certificate(issued), _encode_key(key), authority.bundle, _encode_key(authority.key)
    )


def _create_authority(now: datetime, previous: bytes) -> WebhookAuthority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _build_name("webhook-authority")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    extensions = ((x509.BasicConstraints(ca=True, path_length=0), True), (usage, True))
    made = _sign(name, key.public_key(), _OwnIssuer(name, key), (now, now + AUTHORITY_LIFE), extensions)
    return WebhookAuthority(made, key, _encode_certificate(made) + previous)


@dataclass(frozen=True, slots=True)
class _OwnIssuer:
    """The issuer of a certificate that signs itself."""

    subject: x509.Name
    key: ec.EllipticCurvePrivateKey


def _sign(
    subject: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    issuer: WebhookAuthority | _OwnIssuer,
    valid: tuple[datetime, datetime],
    extensions: Sequence[tuple[x509.ExtensionType, bool]],
) -> x509.Certificate:
    name = issuer.subject if isinstance(issuer, _OwnIssuer) else issuer.certificate.subject
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(name)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid[0] - SKEW)
        .not_valid_after(valid[1])
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key()), critical=False
        )
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(issuer.key, hashes.SHA256())


def _build_name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _encode_certificate(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _encode_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


# --- the secret ---


def parse_key_pair(data: Mapping[str, bytes], names: Sequence[str], now: datetime) -> WebhookKeyPair | None:
    """Return the key pair in the data of a secret; None without one, for other names, or when it is due."""
    authority = parse_authority(data, now)
    if authority is None:
        return None
    try:
        certificate = x509.load_pem_x509_certificate(data[_CERTIFICATE])
        key = _load_key(data[_KEY])
        certificate.verify_directly_issued_by(authority.certificate)
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (KeyError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return None
    served = extension.value.get_values_for_type(x509.DNSName)
    if certificate.public_key() != key.public_key() or set(served) != set(names):
        return None
    if is_renewal_due(certificate, now):
        return None
    return WebhookKeyPair(data[_CERTIFICATE], data[_KEY], authority.bundle, data[_AUTHORITY_KEY])


def parse_authority(data: Mapping[str, bytes], now: datetime) -> WebhookAuthority | None:
    """Return the authority of a secret, or a new one beside it when it is to be renewed; None without one."""
    try:
        key = _load_key(data[_AUTHORITY_KEY])
        trusted = [
            each
            for each in x509.load_pem_x509_certificates(data[_AUTHORITY])
            if each.not_valid_after_utc > now
        ]
    except (KeyError, ValueError, TypeError):
        return None
    bundle = b"".join(map(_encode_certificate, trusted))
    if not trusted or is_renewal_due(trusted[0], now):
        return _create_authority(now, bundle)
    return WebhookAuthority(trusted[0], key, bundle) if trusted[0].public_key() == key.public_key() else None


def _load_key(content: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(content, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("not a key on an elliptic curve")
    return key
