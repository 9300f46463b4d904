"""The monitor of the ledger: whether anything keeps two schedulers from allocating the same device.

Theory of operation: dray's own server has a ledger, and serves the kinds of `dray.dev`. On any other server
the guard (`dray guard`) keeps one; its webhook configuration is what makes the server ask it, so the
configuration is what counts, and a guard that does not answer blocks allocations instead of letting them
pass. A server with neither stores whatever it is sent. The guard may be installed or removed at any time, so
the monitor looks again and again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from dray.api.admission import ValidatingWebhookConfiguration
from dray.api.preparation import Preparation
from dray.client.client import Client
from dray.client.errors import ForbiddenError, NotFoundError
from dray.client.rest_client import CALL_ERRORS
from dray.telemetry.logs import StructuredLogger

GUARD_CONFIGURATION: Final = "dray-guard"
"""The webhook configuration of the guard."""
GUARD_WEBHOOK: Final = "guard.dray.dev"
POLL_SECONDS: Final = 30.0


class LedgerKind(StrEnum):
    """Who keeps a ledger of devices."""

    SERVER = "server"
    GUARD = "guard"
    NONE = "none"


class LedgerMonitor:
    """Observes who keeps the ledger of a cluster."""

    def __init__(self, client: Client, log: StructuredLogger) -> None:
        self._client, self._log = client, log
        self._time_source = client.options.time_source
        self._reported: LedgerKind | None = None
        self.kind = LedgerKind.SERVER
        """Who keeps the ledger, as seen last."""

    @property
    def has_ledger(self) -> bool:
        """Whether somebody refuses an allocation of a device that another claim holds."""
        return self.kind is not LedgerKind.NONE

    async def run(self) -> None:
        """Observe until cancelled."""
        while True:
            await self._time_source.sleep(POLL_SECONDS)
            await self.check()

    async def check(self) -> None:
        """Find out who keeps the ledger, and report a change."""
        try:
            self.kind, why = await self._find_ledger()
        except CALL_ERRORS as failed:
            self._log.debug("cannot find out who keeps the ledger", why=str(failed))
            return
        if self.kind is self._reported:
            return
        if self.kind is LedgerKind.NONE:
            self._log.warning(
                "no ledger: other schedulers of this cluster may allocate the same devices",
                why=why,
                help="install dray guard (deploy/guard.yaml), or let only one scheduler allocate devices",
            )
        elif self._reported is LedgerKind.NONE:
            self._log.info("the cluster has a ledger of devices now", kept_by=self.kind.value)
        self._reported = self.kind

    async def _find_ledger(self) -> tuple[LedgerKind, str]:
        if await self._client.serves(Preparation):
            return LedgerKind.SERVER, ""
        name = f"ValidatingWebhookConfiguration {GUARD_CONFIGURATION}"
        try:
            found = await self._client.get(ValidatingWebhookConfiguration, GUARD_CONFIGURATION)
        except NotFoundError:
            return LedgerKind.NONE, f"the server keeps none, and {name} does not exist"
        except ForbiddenError:
            return LedgerKind.NONE, f"the server keeps none, and we may not read {name}"
        webhook = next((each for each in found.webhooks if each.name == GUARD_WEBHOOK), None)
        if webhook is None:
            return LedgerKind.NONE, f"{name} has no webhook {GUARD_WEBHOOK}"
        if webhook.failure_policy == "Ignore":
            return LedgerKind.NONE, f"webhook {GUARD_WEBHOOK} has the failure policy `Ignore`"
        return LedgerKind.GUARD, ""
