"""Defaults of kinds that create or scale pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dray.api.strategies.open_defaults.pods import POD_TEMPLATE_ROWS
from dray.api.strategies.open_defaults.rows import (
    DefaultsRow,
    DocumentDefault,
    DocumentRewrite,
    Holder,
    fill_text,
    prefix_rows,
)
from dray.api.strategies.open_defaults.volumes import VOLUME_CLAIM_ROWS

_ROLLING: Final = "RollingUpdate"
_MAX_INT32: Final = 2**31 - 1
_ROLLS: Final = "when `type` is `RollingUpdate`"


def _has_rolling_type(strategy: Mapping[str, Any]) -> bool:
    return strategy.get("type") == _ROLLING


def _has_no_type(strategy: Mapping[str, Any]) -> bool:
    return not strategy.get("type")


def _has_rolling_update(strategy: Mapping[str, Any]) -> bool:
    return _has_rolling_type(strategy) and strategy.get("rollingUpdate") is not None


def _get_template_labels(document: Mapping[str, Any], *path: str) -> dict[str, Any] | None:
    for name in (*path, "metadata", "labels"):
        inner = document.get(name)
        if not isinstance(inner, dict):
            return None
        document = inner
    return document if document else None  # type: ignore[return-value]


def _copy_template_labels(workload: Holder) -> Holder:
    """A workload without labels has those of its template."""
    metadata = workload.get("metadata")
    labels = _get_template_labels(workload, "spec", "template")
    if labels is None or not isinstance(metadata, dict) or metadata.get("labels"):
        return workload
    return {**workload, "metadata": {**metadata, "labels": labels}}


_LABELS_ROW: Final = DocumentRewrite(
    "", ("metadata.labels",), _copy_template_labels, "the labels of the template"
)

_TEMPLATE_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("spec.template", {}),
    *prefix_rows("spec.template", POD_TEMPLATE_ROWS),
)

DEPLOYMENT_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("spec.replicas", 1),
    DocumentDefault("spec.strategy", {}),
    fill_text("spec.strategy.type", _ROLLING),
    DocumentDefault("spec.strategy.rollingUpdate", {}, _has_rolling_type, _ROLLS),
    DocumentDefault("spec.strategy.rollingUpdate.maxUnavailable", "25%"),
    DocumentDefault("spec.strategy.rollingUpdate.maxSurge", "25%"),
    DocumentDefault("spec.revisionHistoryLimit", 10),
    DocumentDefault("spec.progressDeadlineSeconds", 600),
    *_TEMPLATE_ROWS,
    DocumentDefault("status", {}),
)

REPLICA_SET_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("spec.replicas", 1),
    *prefix_rows("spec.template", POD_TEMPLATE_ROWS),
    DocumentDefault("status", {}),
    DocumentDefault("status.replicas", 0),
)

STATEFUL_SET_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("spec.replicas", 1),
    fill_text("spec.podManagementPolicy", "OrderedReady"),
    DocumentDefault("spec.updateStrategy", {}),
    DocumentDefault("spec.updateStrategy.rollingUpdate", {}, _has_no_type, "when `type` is not given"),
    fill_text("spec.updateStrategy.type", _ROLLING),
    DocumentDefault("spec.updateStrategy.rollingUpdate.partition", 0, about=_ROLLS),
    DocumentDefault("spec.updateStrategy.rollingUpdate.maxUnavailable", 1, about=_ROLLS),
    DocumentDefault("spec.persistentVolumeClaimRetentionPolicy", {}),
    fill_text("spec.persistentVolumeClaimRetentionPolicy.whenDeleted", "Retain"),
    fill_text("spec.persistentVolumeClaimRetentionPolicy.whenScaled", "Retain"),
    DocumentDefault("spec.revisionHistoryLimit", 10),
    DocumentDefault("spec.serviceName", ""),
    *_TEMPLATE_ROWS,
    fill_text("spec.volumeClaimTemplates[].apiVersion", "v1"),
    fill_text("spec.volumeClaimTemplates[].kind", "PersistentVolumeClaim"),
    *prefix_rows("spec.volumeClaimTemplates[]", VOLUME_CLAIM_ROWS),
    DocumentDefault("status", {}),
    DocumentDefault("status.replicas", 0),
    DocumentDefault("status.availableReplicas", 0),
)

DAEMON_SET_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("spec.updateStrategy", {}),
    fill_text("spec.updateStrategy.type", _ROLLING),
    DocumentDefault("spec.updateStrategy.rollingUpdate", {}, _has_rolling_type, _ROLLS),
    DocumentDefault("spec.updateStrategy.rollingUpdate.maxUnavailable", 1),
    DocumentDefault("spec.updateStrategy.rollingUpdate.maxSurge", 0),
    DocumentDefault("spec.revisionHistoryLimit", 10),
    *_TEMPLATE_ROWS,
    DocumentDefault("status", {}),
    *(
        DocumentDefault(f"status.{name}", 0)
        for name in ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
    ),
)


def _copy_template_selector(spec: Holder) -> Holder:
    labels = _get_template_labels(spec, "template")
    return spec if labels is None or spec.get("selector") else {**spec, "selector": dict(labels)}


REPLICATION_CONTROLLER_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("spec.replicas", 1),
    *prefix_rows("spec.template", POD_TEMPLATE_ROWS),
    DocumentRewrite("spec", ("selector",), _copy_template_selector, "the labels of the template"),
    _LABELS_ROW,
    DocumentDefault("status", {}),
    DocumentDefault("status.replicas", 0),
)


def _has_neither_count(spec: Mapping[str, Any]) -> bool:
    return spec.get("parallelism") is None


def _choose_backoff_limit(spec: Mapping[str, Any]) -> int:
    return 6 if spec.get("backoffLimitPerIndex") is None else _MAX_INT32


def _choose_replacement_policy(spec: Mapping[str, Any]) -> str:
    return "TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed"


_CONDITION_STATUS: Final = fill_text("spec.podFailurePolicy.rules[].onPodConditions[].status", "True")

JOB_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("spec.completions", 1, _has_neither_count, "when `parallelism` is not given either"),
    DocumentDefault("spec.parallelism", 1),
    DocumentDefault(
        "spec.backoffLimit",
        6,
        compute=_choose_backoff_limit,
        about=f"or `{_MAX_INT32}` with `backoffLimitPerIndex`",
    ),
    DocumentDefault("spec.completionMode", "NonIndexed"),
    DocumentDefault("spec.suspend", False),
    DocumentDefault(
        "spec.podReplacementPolicy",
        "TerminatingOrFailed",
        compute=_choose_replacement_policy,
        about="or `Failed` with `podFailurePolicy`",
    ),
    DocumentDefault("spec.manualSelector", False),
    _CONDITION_STATUS,
    *_TEMPLATE_ROWS,
    _LABELS_ROW,
    DocumentDefault("status", {}),
)

CRON_JOB_ROWS: tuple[DefaultsRow, ...] = (
    fill_text("spec.concurrencyPolicy", "Allow"),
    DocumentDefault("spec.suspend", False),
    DocumentDefault("spec.successfulJobsHistoryLimit", 3),
    DocumentDefault("spec.failedJobsHistoryLimit", 1),
    DocumentDefault("spec.jobTemplate.metadata", {}),
    _CONDITION_STATUS.prefix("spec.jobTemplate"),
    *prefix_rows("spec.jobTemplate", _TEMPLATE_ROWS),
    DocumentDefault("status", {}),
)

_HALF_OF_A_POD_A_SECOND: Final = [
    {"type": "Pods", "value": 4, "periodSeconds": 15},
    {"type": "Percent", "value": 100, "periodSeconds": 15},
]
_ALL_PODS: Final = [{"type": "Percent", "value": 100, "periodSeconds": 15}]
_CPU_METRIC: Final = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}

AUTOSCALER_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("spec.minReplicas", 1),
    fill_text("spec.metrics", [_CPU_METRIC]),
    DocumentDefault("spec.behavior.scaleUp", {}),
    DocumentDefault("spec.behavior.scaleUp.stabilizationWindowSeconds", 0),
    DocumentDefault("spec.behavior.scaleUp.selectPolicy", "Max"),
    DocumentDefault("spec.behavior.scaleUp.policies", _HALF_OF_A_POD_A_SECOND),
    DocumentDefault("spec.behavior.scaleDown", {}),
    DocumentDefault("spec.behavior.scaleDown.selectPolicy", "Max"),
    DocumentDefault("spec.behavior.scaleDown.policies", _ALL_PODS),
    DocumentDefault("status", {}),
    DocumentDefault("status.desiredReplicas", 0),
)

DISRUPTION_BUDGET_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("status", {}),
    *(
        DocumentDefault(f"status.{name}", 0)
        for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    ),
)

POD_TEMPLATE_OBJECT_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("template", {}),
    *prefix_rows("template", POD_TEMPLATE_ROWS),
)

PRIORITY_CLASS_ROWS: tuple[DefaultsRow, ...] = (DocumentDefault("preemptionPolicy", "PreemptLowerPriority"),)

POD_GROUP_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("spec.disruptionMode", {"single": {}}),
    DocumentDefault("status", {}),
)
