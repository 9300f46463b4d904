"""X.509: keys, authorities, the certificates they sign, and requests to renew one; nothing is stored here.

Keys are on the curve P-256: small, fast, and supported by every client.

A request to renew a client certificate has the certificate, a signing request for the next key, and a
signature of that by the key of the certificate. So whoever sends it has both keys, and the server need not
rely on how the sender authenticated.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

RENEWAL_PATH: Final = "/dray/certificate"
"""The path of a server at which components renew their client certificates."""

PrivateKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey

SKEW: Final = timedelta(minutes=5)
"""Certificates are valid from a little before they are issued, because clocks differ."""


_RENEWAL_SHARE: Final = 2 / 3
"""The part of its lifetime after which a certificate is renewed."""
_RENEWAL_SPREAD: Final = 1 / 12
"""By which part of the lifetime some certificates are renewed earlier than others."""


def compute_renewal_time(certificate: x509.Certificate) -> datetime:
    """When a certificate should be renewed: after two thirds of its lifetime, or somewhat earlier.

    How much earlier depends on its serial number, so that certificates that were issued together are not all
    renewed together, and the answer for one certificate is always the same.
    """
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    earlier = _RENEWAL_SPREAD * (certificate.serial_number % 1000) / 1000
    return start + (end - start) * (_RENEWAL_SHARE - earlier)


def is_valid_at(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether a certificate is valid at a time."""
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def is_renewal_due(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether a certificate should be renewed; also one that is not valid yet, after a clock was set back."""
    return not certificate.not_valid_before_utc <= now < compute_renewal_time(certificate)


def parse_certificates(content: bytes) -> list[x509.Certificate]:
    """Parse certificates (PEM), the first one first; none when the content has none or is malformed."""
    try:
        return x509.load_pem_x509_certificates(content) if content else []
    except ValueError:
        return []


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
        key: PublicKey,
        period: tuple[datetime, timedelta],
        extensions: Sequence[x509.ExtensionType],
    ) -> x509.Certificate:
        """Issue a certificate from now on for some time, but not longer than the authority is valid."""
        now, length = period
        end = min(now + length, self.certificate.not_valid_after_utc)
        builder = (
            _start_builder(subject, key, now - SKEW, end)
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
        _start_builder(subject, key.public_key(), now - SKEW, now + length)
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
    subject: x509.Name, key: PublicKey, start: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
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


def read_authority_key(certificate: x509.Certificate) -> bytes | None:
    """The identifier of the key that signed a certificate; None when it does not have it."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    except x509.ExtensionNotFound:
        return None
    return found.value.key_identifier


def encode_certificate_pem(certificate: x509.Certificate) -> bytes:
    """Encode a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def read_subject(certificate: x509.Certificate) -> tuple[str, tuple[str, ...]] | None:
    """The user and the groups that a client certificate names; None when it does not name one user."""
    users = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    groups = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return (str(users[0].value), tuple(str(each.value) for each in groups)) if len(users) == 1 else None


def build_renewal_request(certificate: bytes, key: PrivateKey, next_key: PrivateKey) -> dict[str, str]:
    """Build the request to renew a certificate (PEM) whose key is `key`, for the same or another key."""
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    signed = request.sign(next_key, hashes.SHA256())
    proof = key.sign(signed.public_bytes(serialization.Encoding.DER), ec.ECDSA(hashes.SHA256()))
    return {
        "certificate": certificate.decode(),
        "request": signed.public_bytes(serialization.Encoding.PEM).decode(),
        "proof": base64.b64encode(proof).decode(),
    }


def parse_renewal_request(document: Mapping[str, Any]) -> tuple[x509.Certificate, PublicKey]:
    """Return the certificate to renew and the next key; raises `ValueError` with the reason of a refusal."""
    parts = [document.get(name) for name in ("certificate", "request", "proof")]
    if not all(isinstance(part, str) for part in parts):
        raise ValueError("expected `certificate`, `request` and `proof`")
    certificate_pem, request_pem, proof = map(str, parts)
    certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
    request = x509.load_pem_x509_csr(request_pem.encode())
    key, next_key = certificate.public_key(), request.public_key()
    if not isinstance(key, PublicKey) or not isinstance(next_key, PublicKey):
        raise ValueError("expected keys on the curve P-256")
    if not isinstance(next_key.curve, ec.SECP256R1) or not request.is_signature_valid:
        raise ValueError("`request` is not signed by a key on the curve P-256")
    try:
        signature = base64.b64decode(proof, validate=True)
        key.verify(signature, request.public_bytes(serialization.Encoding.DER), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise ValueError("`proof` is not signed by the key of the certificate") from None
    return certificate, next_key
