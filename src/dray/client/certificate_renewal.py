"""Renewal of the client certificate of a running process, by the server that accepts it.

Theory of operation: a server of dray renews the certificates of its components at a path of its own
(`dray.x509_certificates`). When two thirds of the lifetime are over the process asks for the next
certificate, for a new key where both can be replaced in one step, uses it for new connections and stores it
(`credential_files`). Certificates that another program renews are picked up from their files, and
tokens need no renewal. A server that does not renew, or not for this user, is asked again after an hour; a
warning says when the certificate ends. After a renewal there is none for an hour, either, whatever a clock
says.

Cryptography is imported with the first certificate: most processes have a token, and start faster without.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from dray.client.client import Client
from dray.client.config.client_config import (
    ClientConfigError,
    ClientCredential,
    CredentialProvider,
    FileCredentialProvider,
    has_matching_key,
)
from dray.client.errors import ServerUnreachableError
from dray.client.rest_client import CALL_ERRORS
from dray.tasks import cancel_and_wait
from dray.telemetry.logs import ChangeLogger, LogLevel, StructuredLogger
from dray.telemetry.metrics import MetricDefinition, MetricsRegistry, MetricType, build_metric_table

if TYPE_CHECKING:
    from cryptography import x509

EXPIRY: Final = "dray_client_certificate_expiry_timestamp_seconds"
MEASURES: Final = build_metric_table(
    MetricDefinition(
        EXPIRY,
        MetricType.GAUGE,
        "When the client certificate expires with which this process calls the server, in seconds since 1970",
    )
)
_CHECK_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 3600.0
"""How long nothing is asked after a renewal or a refusal."""


class ClientCertificateRenewal:
    """Renews the certificate of a credential provider."""

    def __init__(self, client: Client, provider: CredentialProvider, log: StructuredLogger) -> None:
        self._client, self._provider = client, provider
        self._log, self._change_log = log, ChangeLogger(log)
        self._time_source = client.options.time_source
        self._next_attempt = 0.0
        self._expiry: datetime | None = None
        self.metrics = MetricsRegistry(MEASURES)
        self.metrics.add_callback(
            EXPIRY, lambda: [((), self._expiry.timestamp())] if self._expiry is not None else []
        )

    async def run(self) -> None:
        """Renew the certificate when it is due, until cancelled."""
        while True:
            await self.renew()
            await self._time_source.sleep(_CHECK_SECONDS * (0.5 + self._time_source.random_float()))

    async def renew(self) -> bool:
        """Renew the certificate if it is due; returns whether it was. Failures are logged."""
        try:
            credential = await self._provider.get_credential()
        except ClientConfigError:
            return False  # requests report it
        certificate = _parse_certificate(credential.certificate)
        self._expiry = None if certificate is None else certificate.not_valid_after_utc
        now = self._time_source.clock
        if certificate is None or not _is_due(certificate, now.now()):
            return False
        if not isinstance(self._provider, FileCredentialProvider) or now.monotonic() < self._next_attempt:
            return False
        try:
            await self._replace(self._provider, credential, certificate)
        except ServerUnreachableError as unreachable:
            self._report(certificate, unreachable)
            return False
        except (*CALL_ERRORS, ClientConfigError) as refused:
            self._next_attempt = now.monotonic() + _PAUSE_SECONDS
            self._report(certificate, refused)
            return False
        self._next_attempt = now.monotonic() + _PAUSE_SECONDS
        self._change_log.clear("renewal")
        return True

    async def _replace(
        self, provider: FileCredentialProvider, old: ClientCredential, certificate: x509.Certificate
    ) -> None:
        from dray import x509_certificates as x

        key = x.parse_key_pem(old.key)
        if key is None:
            raise ClientConfigError("the key is not one of dray: expected PEM, P-256, no password")
        next_key = key if provider.source.keeps_key else x.generate_key()
        request = x.build_renewal_request(old.certificate, key, next_key)
        answer = await self._client.post_json(x.RENEWAL_PATH, request)
        key_pem = old.key if next_key is key else x.encode_key_pem(next_key)
        new = ClientCredential(old.token, _read_answer(answer), key_pem)
        issued = _parse_certificate(new.certificate)
        if issued is None or not has_matching_key(new):
            raise ClientConfigError("the server did not answer with a certificate for the key")
        if issued.not_valid_after_utc <= certificate.not_valid_after_utc:
            raise ClientConfigError("the authority of the server ends with it, so nothing is gained")
        self._expiry = issued.not_valid_after_utc
        try:
            await provider.replace_credential(old, new)
        except ClientConfigError as refused:
            message = "the client certificate was renewed for this process, but cannot be stored"
            self._log.error(message, until=self._expiry, why=str(refused))
        else:
            self._log.info("the client certificate was renewed", until=self._expiry)

    def _report(self, certificate: x509.Certificate, why: Exception) -> None:
        self._change_log.report(
            "renewal",
            LogLevel.WARNING,
            "the client certificate is not renewed",
            expires=certificate.not_valid_after_utc,
            why=str(why),
        )


@asynccontextmanager
async def renew_while_open(
    client: Client, provider: CredentialProvider, log: StructuredLogger, metrics: MetricsRegistry
) -> AsyncIterator[None]:
    """Renew the client certificate while the block lasts; its expiry is among the metrics of a service."""
    renewal = ClientCertificateRenewal(client, provider, log)
    metrics.join(renewal.metrics)
    task = asyncio.create_task(renewal.run())
    try:
        yield
    finally:
        await cancel_and_wait(task)


def _parse_certificate(content: bytes) -> x509.Certificate | None:
    if not content:
        return None
    from dray.x509_certificates import parse_certificates

    found = parse_certificates(content)
    return found[0] if found else None


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    from dray.x509_certificates import is_renewal_due

    return is_renewal_due(certificate, now)


def _read_answer(answer: Any) -> bytes:
    text = answer.get("certificate") if isinstance(answer, dict) else None
    return text.encode() if isinstance(text, str) else b""
