"""The self-signed serving certificate of an agent, and its renewal.

Theory of operation: the certificate needs no signature of the cluster's CA: the server trusts fingerprints
in an annotation of the Node object, which only the node can write. Key and certificate are one file. To renew
them, the agent publishes the fingerprints of the old and the new certificate, then serves the new one, and
then publishes that one alone; so at no moment it serves a certificate that the server does not trust.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import TimeSource
from dray.durable import CorruptFileError, read_regular_file, write_file_atomically
from dray.private_files import OTHERS_ANY, open_memory_file
from dray.telemetry.logs import ChangeLogger, LogLevel, StructuredLogger
from dray.x509_certificates import (
    SKEW,
    build_common_name,
    encode_certificate_pem,
    encode_key_pem,
    generate_key,
    is_renewal_due,
)

_LIFETIME: Final = timedelta(days=365)
_CHECK_SECONDS: Final = 60.0

PublishFingerprints = Callable[[tuple[str, ...]], Awaitable[None]]
"""Makes the fingerprints known to the server; raises `CALL_ERRORS`."""


@dataclass(frozen=True, slots=True)
class AgentCertificate:
    """A certificate and its key."""

    certificate: x509.Certificate
    content: bytes = field(repr=False)
    """Key and certificate, as PEM."""

    @property
    def fingerprint(self) -> str:
        return self.certificate.fingerprint(hashes.SHA256()).hex()


def load_or_create_certificate(node: str, file: Path, now: datetime) -> AgentCertificate:
    """Load the certificate of an agent, or create one when there is none or it is to be renewed."""
    found = _load_certificate(file)
    if found is None or is_renewal_due(found.certificate, now):
        found = _create_certificate(node, now)
        write_file_atomically(file, found.content)
    return found


def _load_certificate(file: Path) -> AgentCertificate | None:
    try:
        content = read_regular_file(file)
        if content is None or file.lstat().st_mode & OTHERS_ANY:
            return None  # a key that others can read is replaced
        serialization.load_pem_private_key(content, None)
        return AgentCertificate(x509.load_pem_x509_certificate(content), content)
    except (OSError, ValueError, CorruptFileError):
        return None


def _create_certificate(node: str, now: datetime) -> AgentCertificate:
    key = generate_key()
    name = build_common_name(f"system:node:{node}"[:64])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return AgentCertificate(certificate, encode_key_pem(key) + encode_certificate_pem(certificate))


class AgentTls:
    """The TLS context of an agent, whose certificate is renewed while it is in use."""

    def __init__(
        self, node: str, file: Path, client_ca: bytes, time_source: TimeSource, log: StructuredLogger
    ) -> None:
        """Client certificates must be signed by `client_ca`."""
        self._node, self._file, self._time_source = node, file, time_source
        self._change_log = ChangeLogger(log)
        self._log = log
        self._serving = load_or_create_certificate(node, file, time_source.clock.now())
        self._published: tuple[str, ...] = (self.fingerprint,)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load_chain()
        if client_ca:
            self.context.load_verify_locations(cadata=client_ca.decode())
            self.context.verify_mode = ssl.CERT_OPTIONAL

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the certificate that is served."""
        return self._serving.fingerprint

    @property
    def expiry(self) -> datetime:
        """When the certificate that is served expires."""
        return self._serving.certificate.not_valid_after_utc

    async def run(self, publish: PublishFingerprints) -> None:
        """Renew the certificate when it is due, until cancelled."""
        while True:
            await self._time_source.sleep(_CHECK_SECONDS)
            try:
                await self.renew(publish)
                self._change_log.clear("renewal")
            except (*CALL_ERRORS, OSError) as refused:
                message = "the serving certificate cannot be renewed"
                self._change_log.report("renewal", LogLevel.ERROR, message, node=self._node, error=refused)

    async def renew(self, publish: PublishFingerprints) -> None:
        """Renew the certificate if it is due; raises `CALL_ERRORS` and `OSError`, and serves the old one."""
        now = self._time_source.clock.now()
        if is_renewal_due(self._serving.certificate, now):
            new = _create_certificate(self._node, now)
            self._published = (new.fingerprint, self.fingerprint)
            await publish(self._published)
            await asyncio.to_thread(write_file_atomically, self._file, new.content)
            self._serving = new
            self._load_chain()
            self._log.info("the serving certificate was renewed", node=self._node, until=self.expiry)
        elif self._published != (self.fingerprint,):
            await publish((self.fingerprint,))
            self._published = (self.fingerprint,)

    def _load_chain(self) -> None:
        with open_memory_file(self._serving.content) as file:
            self.context.load_cert_chain(file)
