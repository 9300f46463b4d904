"""The metrics of the guard."""

from __future__ import annotations

from typing import Final

from dray.telemetry.metrics import MetricDefinition, MetricType, build_metric_table

REVIEWS: Final = "dray_guard_reviews_total"
DENIALS: Final = "dray_guard_denials_total"
DECISION_SECONDS: Final = "dray_guard_decision_duration_seconds"
ADMITTED_UNSEEN: Final = "dray_guard_admitted_unseen"
CLAIMS: Final = "dray_guard_claims"
ORPHANS: Final = "dray_guard_deleted_claims_in_use"
CONFLICTS: Final = "dray_guard_conflicts"
LEADER: Final = "dray_guard_leader"
SERVING: Final = "dray_guard_serving"
FENCED: Final = "dray_guard_fenced_claims_total"
REGISTERED: Final = "dray_guard_registered"
CERTIFICATE_EXPIRY: Final = "dray_guard_certificate_expiry_timestamp_seconds"

_BUCKETS = (0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5)

METRIC_DEFINITIONS = build_metric_table(
    MetricDefinition(
        REVIEWS,
        MetricType.COUNTER,
        "Reviews by outcome: admitted, unchanged, outdated, dry-run, denied, refused, forwarded, invalid",
        ("outcome",),
    ),
    MetricDefinition(DENIALS, MetricType.COUNTER, "Broken rules of the ledger, by reason", ("reason",)),
    MetricDefinition(
        DECISION_SECONDS, MetricType.HISTOGRAM, "Time from a review to its answer", (), _BUCKETS
    ),
    MetricDefinition(
        ADMITTED_UNSEEN, MetricType.GAUGE, "Allocations that were admitted and are not seen in the watch yet"
    ),
    MetricDefinition(CLAIMS, MetricType.GAUGE, "Claims in the ledger"),
    MetricDefinition(
        ORPHANS, MetricType.GAUGE, "Deleted claims whose devices are kept because pods still use them"
    ),
    MetricDefinition(
        CONFLICTS, MetricType.GAUGE, "Devices and counter sets that stored claims have more than once"
    ),
    MetricDefinition(LEADER, MetricType.GAUGE, "1 while this guard leads"),
    MetricDefinition(SERVING, MetricType.GAUGE, "1 while this guard decides"),
    MetricDefinition(
        FENCED,
        MetricType.COUNTER,
        "Claims written to, so that writes on their way cannot be stored",
        ("why",),
    ),
    MetricDefinition(
        REGISTERED, MetricType.GAUGE, "1 while the webhook configuration exists and calls this guard"
    ),
    MetricDefinition(
        CERTIFICATE_EXPIRY, MetricType.GAUGE, "When the serving certificate expires, in seconds since 1970"
    ),
)
