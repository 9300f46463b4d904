"""The account `default` of every namespace: pods that name no account run as it.

On a cluster of Kubernetes its own controllers do this; for dray's server it is part of the upkeep.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from dray.api.core import Namespace
from dray.client.client import Client
from dray.client.errors import AlreadyExists, Conflict, Forbidden, NotFound
from dray.client.informers.informer import Informer, Ways
from dray.client.object_refs import key_of, kind_called
from dray.controllers.informers import ways
from dray.controllers.workqueue import WorkQueue
from dray.telemetry.logs import Log
from dray.telemetry.metrics import Metrics

QUEUE: Final = "serviceaccount"
DEFAULT: Final = "default"
ACCOUNT: Final = kind_called("ServiceAccount")


class AccountController:
    """Gives every namespace its account."""

    def __init__(self, client: Client, metrics: Metrics, log: Log) -> None:
        self._client, self._log = client, log
        self._namespaces = Informer(client, Namespace, ways=ways(log))
        how = Ways(trouble=ways(log).trouble)
        self._accounts = Informer(client, ACCOUNT, field_selector=f"metadata.name={DEFAULT}", ways=how)
        self.informers: tuple[Informer[Any], ...] = (self._namespaces, self._accounts)
        self.queue: WorkQueue[str] = WorkQueue(QUEUE, client.habits.tempo, metrics)
        self._namespaces.listen(lambda namespace: self.queue.add(namespace.metadata.name))
        self._accounts.listen(deleted=lambda account: self.queue.add(key_of(account).namespace))

    async def run(self) -> None:
        """Make accounts, until cancelled; the informers have seen everything once."""
        await self.queue.run(self._keep, self._troubled, 1)

    def _troubled(self, namespace: str, failed: Exception) -> None:
        self._log.warning("an account is tried again later", namespace=namespace, why=str(failed))

    async def _keep(self, name: str) -> None:
        namespace = self._namespaces.get(name)
        if namespace is None or namespace.metadata.deletion_timestamp is not None:
            return
        if self._accounts.get(DEFAULT, name) is not None:
            return
        account = {
            "apiVersion": ACCOUNT.internal_api_version,
            "kind": ACCOUNT.name,
            "metadata": {"name": DEFAULT, "namespace": name},
        }
        try:
            with suppress(AlreadyExists):
                await self._client.create(account)
        except (NotFound, Conflict, Forbidden):
            # A namespace that is on its way out takes nothing new, and need not have it.
            if await self._is_wanted(name):
                raise

    async def _is_wanted(self, name: str) -> bool:
        with suppress(NotFound):
            return (await self._client.get(Namespace, name)).metadata.deletion_timestamp is None
        return False
