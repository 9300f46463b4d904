"""What is told of webhooks: counted for Prometheus, logged for people, put on record in the audit log.

Names of webhooks are labels of metrics. They come from administrators, but nothing keeps those from making
ever new ones; so only so many are told apart.
"""

from __future__ import annotations

from typing import Final

from dray.server.admission.webhooks.active_webhooks import Hook
from dray.server.admission.webhooks.dispatch import Told
from dray.server.audit.log import AuditLog
from dray.server.observability import metrics as names
from dray.server.observability.metrics import Metrics
from dray.telemetry.logs import Log
from dray.telemetry.metrics import OTHER

MOST_NAMES: Final = 100


class Telling:
    """Tells of webhooks."""

    def __init__(self, metrics: Metrics, log: Log, audit: AuditLog) -> None:
        self._metrics, self._log, self._audit = metrics, log, audit
        self._names: set[str] = set()

    @property
    def told(self) -> Told:
        return Told(self._asked, self._troubled, self._audit.annotated, self._unreadable)

    def _asked(self, hook: Hook, operation: str, seconds: float, outcome: str) -> None:
        webhook = self._label(hook.name)
        self._metrics.count(names.WEBHOOKS, webhook, hook.sort, operation, outcome)
        self._metrics.observe(names.WEBHOOK_SECONDS, seconds, webhook, hook.sort, outcome)

    def _troubled(self, hook: Hook, why: str) -> None:
        becomes = "goes on without it" if hook.may_fail else "is refused"
        self._log.warning(
            "an admission webhook could not be asked",
            webhook=hook.name,
            configuration=hook.configuration,
            request=becomes,
            why=why,
        )

    def _unreadable(self, configuration: str, why: str) -> None:
        self._log.error("a webhook configuration cannot be read", configuration=configuration, why=why)

    def _label(self, name: str) -> str:
        if len(self._names) < MOST_NAMES:
            self._names.add(name)
        return name if name in self._names else OTHER
