"""The self-signed serving certificate of an agent.

Theory of operation: the certificate needs no signature of the cluster's CA: the server trusts the fingerprint
in an annotation of the Node object, which only the node can write.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dray.durable import CorruptFileError, read_regular_file, write_file_atomically

_DAYS: Final = 365
_RENEW_BEFORE: Final = timedelta(days=30)
_SKEW: Final = timedelta(minutes=5)
_OTHERS_MODE: Final = 0o077
"""Permissions of others; a key that they can read is replaced."""


@dataclass(frozen=True, slots=True)
class AgentCertificate:
    """A certificate with its key, in one file, and its fingerprint."""

    file: Path
    fingerprint: str


def load_or_create_certificate(node: str, file: Path, now: datetime) -> AgentCertificate:
    """Load the certificate of an agent, or create one when there is none or it expires soon."""
    found = _load_certificate(file)
    if found is None or found.not_valid_after_utc - _RENEW_BEFORE <= now:
        found = _create_certificate(node, file, now)
    return AgentCertificate(file, found.fingerprint(hashes.SHA256()).hex())


def _load_certificate(file: Path) -> x509.Certificate | None:
    try:
        content = read_regular_file(file)
        if content is None or file.lstat().st_mode & _OTHERS_MODE:
            return None
        serialization.load_pem_private_key(content, None)
        return x509.load_pem_x509_certificate(content)
    except (OSError, ValueError, CorruptFileError):
        return None


def _create_certificate(node: str, file: Path, now: datetime) -> x509.Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"[:64])])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_file_atomically(file, private + certificate.public_bytes(serialization.Encoding.PEM))
    return certificate


def build_tls_context(certificate: AgentCertificate, client_ca: bytes) -> ssl.SSLContext:
    """Build the TLS context of an agent; client certificates must be signed by `client_ca`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate.file)
    if client_ca:
        context.load_verify_locations(cadata=client_ca.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
