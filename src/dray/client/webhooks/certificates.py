"""The certificate of an admission webhook, which the webhook issues itself and keeps in a secret.

    certificates = WebhookCertificates(client, WebhookTls("gpu-system", "gpu-webhook"), log)
    await certificates.write(file)      # key and certificate, for `SSLContext.load_cert_chain`
    await certificates.run(file)        # renews them, until cancelled

Theory of operation: all replicas of a webhook share a secret with an authority of their own and a certificate
that it signed. Whoever finds no valid one issues it; of two replicas that write at once, one gets a conflict
and takes what the other wrote. Then the authority is put into the webhook configuration, before anybody
serves the certificate. A certificate is replaced when a third of its life is left, signed by the same
authority, so API servers trust old and new ones meanwhile.

Rules for this file: a Kubernetes API server needs nothing else for that, so nothing else may be required.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dray.api.admission import ValidatingWebhookConfiguration
from dray.client.client import Client
from dray.client.errors import AlreadyExistsError, ConflictError, NotFoundError
from dray.client.object_refs import Document, get_kind
from dray.client.patches import JsonPatch
from dray.client.rest_client import CALL_ERRORS
from dray.client.webhooks.key_pairs import WebhookKeyPair, issue_key_pair, parse_authority, parse_key_pair
from dray.durable import Durability, write_file_atomically
from dray.telemetry.logs import ChangeLogger, LogLevel, StructuredLogger

CHECK_SECONDS: Final = 60.0
"""How often secret and configuration are looked at."""
_SECRET_KIND: Final = get_kind("Secret")


@dataclass(frozen=True, slots=True)
class WebhookTls:
    """The Service through which API servers call a webhook, and the objects with its certificate."""

    namespace: str
    service: str
    secret: str = ""
    """Named after the service when empty."""
    configuration: str = ""
    """The ValidatingWebhookConfiguration to put the authority into; none when empty."""

    @property
    def secret_name(self) -> str:
        return self.secret or f"{self.service}-tls"

    @property
    def dns_names(self) -> tuple[str, ...]:
        """The names by which API servers call the Service."""
        name = f"{self.service}.{self.namespace}.svc"
        return name, f"{name}.cluster.local"


class WebhookCertificates:
    """Keeps the certificate of a webhook valid, in its secret, its configuration and a file."""

    def __init__(self, client: Client, tls: WebhookTls, log: StructuredLogger) -> None:
        self._client, self._tls, self._log = client, tls, log
        self._change_log = ChangeLogger(log)
        self._time_source = client.options.time_source
        self._written: WebhookKeyPair | None = None

    async def write(self, file: Path) -> None:
        """Write key and certificate into one file, issued if necessary; raises `CALL_ERRORS`."""
        pair = await self._read_or_issue()
        await self._publish_authorities(pair)
        if pair != self._written:
            write_file_atomically(file, pair.key + pair.certificate, durability=Durability.THIS_BOOT)
            self._written = pair

    async def run(self, file: Path) -> None:
        """Renew the certificate and restore the configuration, until cancelled."""
        while True:
            await self._time_source.sleep(CHECK_SECONDS)
            try:
                await self.write(file)
                self._change_log.clear("certificate")
            except CALL_ERRORS as failed:
                message = "the webhook's certificate cannot be checked"
                self._change_log.report("certificate", LogLevel.WARNING, message, error=failed)

    async def _read_or_issue(self) -> WebhookKeyPair:
        while True:
            stored = await self._read_secret()
            data = _decode_data(stored)
            now = self._time_source.clock.now()
            pair = parse_key_pair(data, self._tls.dns_names, now)
            if pair is not None:
                return pair
            issued = issue_key_pair(self._tls.dns_names, now, parse_authority(data, now))
            try:
                await self._write_secret(stored, issued)
            except (AlreadyExistsError, ConflictError):
                continue  # another replica was faster
            self._log.info("issued a certificate", secret=f"{self._tls.namespace}/{self._tls.secret_name}")
            return issued

    async def _read_secret(self) -> Document | None:
        try:
            found: Document = await self._client.get(_SECRET_KIND, self._tls.secret_name, self._tls.namespace)
        except NotFoundError:
            return None
        return found

    async def _write_secret(self, stored: Document | None, pair: WebhookKeyPair) -> None:
        if stored is not None:
            await self._client.patch_changes(stored, {**stored, "data": pair.to_data()})
            return
        metadata = {"name": self._tls.secret_name, "namespace": self._tls.namespace}
        await self._client.create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": metadata,
                "type": "kubernetes.io/tls",
                "data": pair.to_data(),
            }
        )

    async def _publish_authorities(self, pair: WebhookKeyPair) -> None:
        """Put the authorities into the webhook configuration; one that does not exist is only logged."""
        name = self._tls.configuration
        if not name:
            return
        try:
            found = await self._client.get(ValidatingWebhookConfiguration, name)
        except NotFoundError:
            message = "there is no webhook configuration yet"
            self._change_log.report("configuration", LogLevel.WARNING, message, name=name)
            return
        self._change_log.clear("configuration")
        bundle = base64.b64encode(pair.authorities).decode()
        operations: list[Mapping[str, Any]] = []
        for position, webhook in enumerate(found.webhooks):
            if webhook.client_config.ca_bundle != bundle:
                path = f"/webhooks/{position}"
                operations.append({"op": "test", "path": f"{path}/name", "value": webhook.name})
                operations.append({"op": "add", "path": f"{path}/clientConfig/caBundle", "value": bundle})
        if operations:
            await self._client.patch(ValidatingWebhookConfiguration, name, JsonPatch(operations))


def _decode_data(stored: Document | None) -> dict[str, bytes]:
    decoded = {}
    for name, value in ((stored or {}).get("data") or {}).items():
        with suppress(ValueError):  # what is no base64 is replaced
            decoded[name] = base64.b64decode(value)
    return decoded
