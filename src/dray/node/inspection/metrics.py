"""Metrics of the inspection of a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from dray.node.inspection.findings import FindingSeverity, NodeCheck, NodeFinding
from dray.node.inspection.node_inspection import NodeObservation
from dray.telemetry.metrics import MetricDefinition, MetricsRegistry, MetricType, build_metric_table

FINDINGS: Final = "dray_doctor_node_findings"
DRIVERS: Final = "dray_doctor_node_drivers"
CLAIMS: Final = "dray_doctor_node_claims"
LAST_INSPECTION: Final = "dray_doctor_node_last_inspection_timestamp_seconds"

METRIC_DEFINITIONS: Final = build_metric_table(
    MetricDefinition(
        FINDINGS, MetricType.GAUGE, "What the last inspection found, by check", ("check", "severity")
    ),
    MetricDefinition(DRIVERS, MetricType.GAUGE, "DRA drivers of this node that answer"),
    MetricDefinition(CLAIMS, MetricType.GAUGE, "Claims in the checkpoint of the kubelet"),
    MetricDefinition(
        LAST_INSPECTION, MetricType.GAUGE, "When the last inspection ended, in seconds since 1970"
    ),
)


def record_inspection(
    metrics: MetricsRegistry, seen: NodeObservation, findings: Sequence[NodeFinding], now: float
) -> None:
    """Set the metrics to the outcome of an inspection; checks without findings are 0."""
    counts = Counter((each.check, each.severity) for each in findings)
    for check in NodeCheck:
        for severity in FindingSeverity:
            metrics.set(FINDINGS, counts[check, severity], check.value, severity.value)
    metrics.set(DRIVERS, len(seen.drivers))
    metrics.set(CLAIMS, len(seen.claims or ()))
    metrics.set(LAST_INSPECTION, now)
