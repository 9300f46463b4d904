"""The controller that creates the service account `default` in every namespace.

On a cluster of Kubernetes its own controllers do this; on dray's server it is part of the upkeep.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from dray.api.core import Namespace
from dray.client.client import Client
from dray.client.errors import AlreadyExistsError, ConflictError, ForbiddenError, NotFoundError
from dray.client.informers.informer import Informer, InformerOptions
from dray.client.object_refs import get_key, get_kind
from dray.controllers.informers import build_informer_options
from dray.controllers.workqueue import WorkQueue
from dray.telemetry.logs import StructuredLogger
from dray.telemetry.metrics import MetricsRegistry

QUEUE_NAME: Final = "serviceaccount"
DEFAULT_ACCOUNT: Final = "default"
SERVICE_ACCOUNT_KIND: Final = get_kind("ServiceAccount")


class ServiceAccountController:
    """Creates the default service account of every namespace."""

    def __init__(self, client: Client, metrics: MetricsRegistry, log: StructuredLogger) -> None:
        self._client, self._log = client, log
        self._namespaces = Informer(client, Namespace, options=build_informer_options(log))
        options = InformerOptions(on_failure=build_informer_options(log).on_failure)
        self._accounts = Informer(
            client, SERVICE_ACCOUNT_KIND, field_selector=f"metadata.name={DEFAULT_ACCOUNT}", options=options
        )
        self.informers: tuple[Informer[Any], ...] = (self._namespaces, self._accounts)
        self.queue: WorkQueue[str] = WorkQueue(QUEUE_NAME, client.options.time_source, metrics)
        self._namespaces.listen(lambda namespace: self.queue.add(namespace.metadata.name))
        self._accounts.listen(deleted=lambda account: self.queue.add(get_key(account).namespace))

    async def run(self) -> None:
        """Create accounts until cancelled; the informers are synced."""
        await self.queue.run(self._reconcile, self._log_failure, 1)

    def _log_failure(self, namespace: str, error: Exception) -> None:
        self._log.warning(
            "creating a service account failed and is tried again later", namespace=namespace, why=str(error)
        )

    async def _reconcile(self, name: str) -> None:
        namespace = self._namespaces.get(name)
        if namespace is None or namespace.metadata.deletion_timestamp is not None:
            return
        if self._accounts.get(DEFAULT_ACCOUNT, name) is not None:
            return
        account = {
            "apiVersion": SERVICE_ACCOUNT_KIND.internal_api_version,
            "kind": SERVICE_ACCOUNT_KIND.name,
            "metadata": {"name": DEFAULT_ACCOUNT, "namespace": name},
        }
        try:
            with suppress(AlreadyExistsError):
                await self._client.create(account)
        except (NotFoundError, ConflictError, ForbiddenError):
            # A terminating namespace takes no new objects, and needs no account.
            if await self._needs_account(name):
                raise

    async def _needs_account(self, name: str) -> bool:
        with suppress(NotFoundError):
            return (await self._client.get(Namespace, name)).metadata.deletion_timestamp is None
        return False
