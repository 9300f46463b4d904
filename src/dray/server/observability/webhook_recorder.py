"""The webhook recorder: writes metrics, logs and audit annotations of webhook calls.

Names of webhooks are labels of metrics. Administrators choose them, but may create ever new ones; so only the
first `MAX_WEBHOOK_LABELS` names are labels, and all others are `other`.
"""

from __future__ import annotations

from typing import Final

from dray.server.admission.webhooks.active_webhooks import ActiveWebhook
from dray.server.admission.webhooks.dispatch import WebhookObserver
from dray.server.audit.log import AuditLog
from dray.server.observability import metrics as names
from dray.server.observability.metrics import ApiServerMetrics
from dray.telemetry.logs import StructuredLogger
from dray.telemetry.metrics import OTHER_LABEL

MAX_WEBHOOK_LABELS: Final = 100


class WebhookRecorder:
    """Records the calls of admission webhooks."""

    def __init__(self, metrics: ApiServerMetrics, log: StructuredLogger, audit: AuditLog) -> None:
        self._metrics, self._log, self._audit = metrics, log, audit
        self._label_names: set[str] = set()

    @property
    def observer(self) -> WebhookObserver:
        return WebhookObserver(
            self._record_call, self._log_failure, self._audit.record_annotations, self._log_unreadable
        )

    def _record_call(self, hook: ActiveWebhook, operation: str, seconds: float, outcome: str) -> None:
        webhook = self._get_label(hook.name)
        self._metrics.count(names.WEBHOOKS, webhook, hook.admission_type, operation, outcome)
        self._metrics.observe(names.WEBHOOK_SECONDS, seconds, webhook, hook.admission_type, outcome)

    def _log_failure(self, hook: ActiveWebhook, why: str) -> None:
        consequence = "goes on without it" if hook.ignores_failure else "is refused"
        self._log.warning(
            "an admission webhook could not be called",
            webhook=hook.name,
            configuration=hook.configuration,
            request=consequence,
            why=why,
        )

    def _log_unreadable(self, configuration: str, why: str) -> None:
        self._log.error("a webhook configuration cannot be read", configuration=configuration, why=why)

    def _get_label(self, name: str) -> str:
        if len(self._label_names) < MAX_WEBHOOK_LABELS:
            self._label_names.add(name)
        return name if name in self._label_names else OTHER_LABEL
