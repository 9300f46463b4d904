"""Certificates of the webhook in the cluster: a Secret that all guards share, and the webhook configuration.

Theory of operation: every guard looks regularly whether something is due (`tls_rotation`). Whoever finds it
first writes the Secret, pinned to the version that it has read; the others read what it has written. The
authorities go into the webhook configuration before the certificate is used, and the certificate and its key
into files, from where the server of the webhook loads them when they change. Deleting the Secret replaces
all of them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from dray.client.client import Client
from dray.client.errors import AlreadyExistsError, ConflictError, NotFoundError
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff
from dray.durable import write_file_atomically
from dray.guard import metrics as guard_metrics
from dray.guard.options import (
    CONFIGURATION_NAME,
    NAMESPACE,
    SECRET_NAME,
    WEBHOOK_NAME,
    WEBHOOK_TIMEOUT_SECONDS,
)
from dray.guard.tls_rotation import TlsMaterial, read_expiry, renew_material
from dray.telemetry.logs import StructuredLogger
from dray.telemetry.metrics import MetricsRegistry

AUTHORITIES_FILE: Final = "ca.crt"
CERTIFICATE_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"
_AUTHORITY_KEY: Final = "ca.key"

_SECRET_KIND: Final = get_kind("Secret")
_CONFIGURATION_KIND: Final = get_kind("ValidatingWebhookConfiguration.admissionregistration.k8s.io")
_SECRET_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET_NAME}"
_CONFIGURATION_PATH: Final = (
    f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{CONFIGURATION_NAME}"
)
_CHECK_SECONDS: Final = 20.0


class TlsSecret:
    """The certificates of the webhook, renewed in the cluster and copied to a directory."""

    def __init__(
        self,
        client: Client,
        directory: Path,
        names: Sequence[str],
        metrics: MetricsRegistry,
        log: StructuredLogger,
    ) -> None:
        self._client, self._directory, self._names = client, directory, names
        self._metrics, self._log = metrics, log
        self._time_source = client.options.time_source
        self._written = TlsMaterial()

    async def load(self) -> None:
        """Load or create the certificates; waits for as long as the API server does not answer."""
        backoff = Backoff(self._time_source, initial=0.2, maximum=5.0)
        while True:
            try:
                await self.renew()
                return
            except CALL_ERRORS as failed:
                self._log.warning("the certificates cannot be read or created", why=str(failed))
                await backoff.wait()

    async def run(self) -> None:
        """Renew what is due, until cancelled."""
        while True:
            await self._time_source.sleep(_CHECK_SECONDS * (0.5 + self._time_source.random_float()))
            try:
                await self.renew()
            except CALL_ERRORS as failed:
                self._log.warning("the certificates cannot be renewed", why=str(failed))

    async def renew(self) -> None:
        """Renew what is due now, in the cluster and in the files."""
        material = await self._renew_secret()
        await self._publish_authorities(material.authorities)
        if material != self._written:
            for name, content in (
                (AUTHORITIES_FILE, material.authorities),
                (KEY_FILE, material.key),
                (CERTIFICATE_FILE, material.certificate),
            ):
                write_file_atomically(self._directory / name, content)
            self._written = material
        expiry = read_expiry(material)
        if expiry is not None:
            self._metrics.set(guard_metrics.CERTIFICATE_EXPIRY, expiry.timestamp())

    async def _renew_secret(self) -> TlsMaterial:
        while True:
            try:
                secret = await self._client.get_json(_SECRET_PATH)
            except NotFoundError:
                secret = {}
            known = _parse_material(secret.get("data") or {})
            if not known.authorities:
                # The Secret was deleted, but other guards still show a certificate of the old authority.
                known = replace(known, authorities=self._written.authorities)
            wanted = renew_material(known, self._names, self._time_source.clock.now())
            if wanted == known:
                return known
            try:
                await self._write_secret(secret, wanted)
                self._log.info("certificates were renewed", secret=f"{NAMESPACE}/{SECRET_NAME}")
                return wanted
            except (ConflictError, AlreadyExistsError):
                continue  # another guard was faster

    async def _write_secret(self, secret: Mapping[str, Any], wanted: TlsMaterial) -> None:
        data = {"data": _build_data(wanted)}
        if secret:
            version = {"metadata": {"resourceVersion": secret["metadata"]["resourceVersion"]}}
            await self._client.patch(_SECRET_KIND, SECRET_NAME, MergePatch(version | data), NAMESPACE)
            return
        metadata = {"name": SECRET_NAME, "namespace": NAMESPACE}
        named = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls"}
        await self._client.create(named | data)

    async def _publish_authorities(self, authorities: bytes) -> None:
        """Write the authorities into the webhook configuration, if there is one."""
        bundle = base64.b64encode(authorities).decode()
        try:
            configuration = await self._client.get_json(_CONFIGURATION_PATH)
        except NotFoundError:
            self._metrics.set(guard_metrics.REGISTERED, 0)
            self._log.warning(
                "the webhook is not registered, so nothing is checked; apply deploy/guard.yaml",
                configuration=CONFIGURATION_NAME,
            )
            return
        webhooks = configuration.get("webhooks") or []
        ours = [hook for hook in webhooks if hook.get("name") == WEBHOOK_NAME]
        for weakness in find_weaknesses(ours):
            self._log.warning("the webhook configuration keeps devices less safe", why=weakness)
        self._metrics.set(guard_metrics.REGISTERED, float(bool(ours)))
        if all(hook["clientConfig"].get("caBundle") == bundle for hook in ours):
            return
        for hook in ours:
            hook["clientConfig"]["caBundle"] = bundle
        version = {"resourceVersion": configuration["metadata"]["resourceVersion"]}
        patch = MergePatch({"metadata": version, "webhooks": webhooks})
        try:
            await self._client.patch(_CONFIGURATION_KIND, CONFIGURATION_NAME, patch)
        except ConflictError:
            await self._publish_authorities(authorities)


def find_weaknesses(webhooks: Iterable[Mapping[str, Any]]) -> list[str]:
    """What in the configuration of the webhook breaks a promise of the guard."""
    found = []
    for hook in webhooks:
        if hook.get("failurePolicy", "Fail") != "Fail":
            found.append(
                f"`failurePolicy` is `{hook['failurePolicy']}`, so allocations are stored unchecked while no "
                "guard answers; expected `Fail`"
            )
        if hook.get("timeoutSeconds", 10) > WEBHOOK_TIMEOUT_SECONDS:
            found.append(
                f"`timeoutSeconds` is {hook.get('timeoutSeconds', 10)}, so an API server may take an answer "
                f"of a guard that no longer leads; expected at most {WEBHOOK_TIMEOUT_SECONDS:g}"
            )
        found += [
            f"`{name}` is set, so some allocations are not checked; expected none"
            for name in ("namespaceSelector", "objectSelector")
            if hook.get(name)
        ]
    return found


def _parse_material(data: Mapping[str, str]) -> TlsMaterial:
    parts = {name: base64.b64decode(value or "") for name, value in data.items()}
    return TlsMaterial(
        parts.get(AUTHORITIES_FILE, b""),
        parts.get(_AUTHORITY_KEY, b""),
        parts.get(CERTIFICATE_FILE, b""),
        parts.get(KEY_FILE, b""),
    )


def _build_data(material: TlsMaterial) -> dict[str, str]:
    parts = {
        AUTHORITIES_FILE: material.authorities,
        _AUTHORITY_KEY: material.authority_key,
        CERTIFICATE_FILE: material.certificate,
        KEY_FILE: material.key,
    }
    return {name: base64.b64encode(content).decode() for name, content in parts.items()}
