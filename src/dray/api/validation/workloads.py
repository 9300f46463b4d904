"""Validation of workloads: how many pods, which pods, and the template of these pods.

Theory of operation: `_WORKLOADS` has a row for every kind with a template. The spec of a workload has counts
that are not negative, a selector that the labels of the template match, and a template that is a valid pod
with a restart policy the workload can work with. A change must be valid, except for errors that the stored
object already has, and keeps the selector where the kind fixes it.

Rules for this file: what only a controller interprets (update strategies, failure policies, schedules) is not
checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from dray.api.codec import decode_projection
from dray.api.fields import ROOT, FieldError, FieldPath, forbidden, invalid, not_supported, required
from dray.api.kinds import get_kind
from dray.api.validation.field_rules import IMMUTABLE, FieldErrors
from dray.api.validation.kinds.pod import validate_pod
from dray.api.validation.pods.create import validate_pod_template
from dray.api.validation.pods.document_equality import is_same_document
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    get_mapping,
    get_objects,
    get_text,
    is_true,
)
from dray.api.validation.pods.label_selectors import validate_label_selector
from dray.api.validation.pods.value_rules import validate_labels, validate_not_negative
from dray.api.validation.ratcheting import filter_new_errors
from dray.errors import DecodeError
from dray.values.label_selectors import LabelSelectorError, ParsedLabelSelector

_POD: Final = get_kind("", "Pod")
_ALWAYS: Final = ("Always",)
_ENDING: Final = ("Never", "OnFailure")


@dataclass(frozen=True, slots=True)
class WorkloadRules:
    """The rules of one kind of workload: where its spec is, and what its spec must have."""

    spec: tuple[str, ...] = ("spec",)
    counts: tuple[str, ...] = ()
    needs_selector: bool = True
    reports_missing_selector: bool = True
    """Whether a missing selector is an error by itself, besides selecting no pod."""
    has_plain_selector: bool = False
    """Whether the selector is a map of labels, as it was first."""
    keeps_selector: bool = False
    restart_policies: tuple[str, ...] = _ALWAYS

    def validate_new(self, workload: Document) -> FieldErrors:
        """Check a new workload."""
        spec, path = self._find_spec(workload)
        yield from validate_not_negative(spec, self.counts, path)
        yield from self._validate_selector(spec, path)
        yield from self._validate_template(spec, path.child("template"))

    def validate_changed(self, new: Document, old: Document) -> list[FieldError]:
        """Check a change of a workload."""
        (spec, path), (stored, _) = self._find_spec(new), self._find_spec(old)
        if is_same_document(spec, stored):
            return []
        found = list(self.validate_new(new))
        errors = filter_new_errors(found, new, self.validate_new(old), old) if found else []
        selector = stored.get("selector")
        if self.keeps_selector and selector and not is_same_document(spec.get("selector"), selector):
            errors.append(invalid(path.child("selector"), spec.get("selector"), IMMUTABLE))
        return errors

    def _find_spec(self, workload: Document) -> tuple[Document, FieldPath]:
        spec = workload
        for name in self.spec:
            spec = get_mapping(spec, name)
        return spec, ROOT.child(*self.spec)

    def _validate_selector(self, spec: Document, path: FieldPath) -> FieldErrors:
        if not self.needs_selector:
            return
        place, selector = path.child("selector"), find_mapping(spec, "selector")
        if self.has_plain_selector:
            if not selector:
                yield required(place)
            selector = {"matchLabels": selector or {}}
        elif selector is not None:
            faults = list(validate_label_selector(selector, place))
            yield from faults
            if faults:
                yield invalid(place, dict(selector), "is no selector of labels")
            elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
                yield invalid(place, dict(selector), "an empty selector is not allowed for a workload")
        elif self.reports_missing_selector:
            yield required(place)
        labels = dict(get_mapping(get_mapping(get_mapping(spec, "template"), "metadata"), "labels"))
        if selector is None or not _selects(selector, labels):
            text = "must be selected by `selector`"
            yield invalid(path.child("template", "metadata", "labels"), labels, text)

    def _validate_template(self, spec: Document, path: FieldPath) -> FieldErrors:
        template = get_mapping(spec, "template")
        pod = get_mapping(template, "spec")
        yield from validate_labels(
            get_mapping(get_mapping(template, "metadata"), "labels"), path.child("labels")
        )
        yield from _validate_claims(pod, path)
        yield from validate_pod_template(template, path)
        policy, place = get_text(pod, "restartPolicy") or "Always", path.child("spec", "restartPolicy")
        if self.restart_policies and policy not in self.restart_policies:
            if policy == "Always":
                yield required(place, "must be `Never` or `OnFailure`")
            else:
                yield not_supported(place, policy, self.restart_policies)
        if self.restart_policies == _ALWAYS and pod.get("activeDeadlineSeconds") is not None:
            yield forbidden(path.child("spec", "activeDeadlineSeconds"), "may not be set for this workload")


def _selects(selector: Document, labels: dict[str, str]) -> bool:
    """Whether a selector selects labels; one that cannot be parsed has errors of its own."""
    try:
        return ParsedLabelSelector.from_document(selector).matches(labels)
    except LabelSelectorError:
        return True


def _validate_claims(pod: Document, path: FieldPath) -> Iterator[FieldError]:
    if not pod.get("resourceClaims") and not _uses_claims(pod):
        return
    try:
        view = decode_projection(_POD, {"metadata": {}, "spec": dict(pod)})
    except DecodeError:
        return
    for error in validate_pod(view):
        yield replace(error, path=f"{path}.{error.path}")


def _uses_claims(pod: Document) -> bool:
    return any(
        get_mapping(container, "resources").get("claims")
        for field in ("initContainers", "containers")
        for container in get_objects(pod, field)
    )


REPLICA_SET: Final = WorkloadRules(counts=("replicas", "minReadySeconds"), keeps_selector=True)
DEPLOYMENT: Final = WorkloadRules(
    counts=("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"),
    keeps_selector=True,
)
DAEMON_SET: Final = WorkloadRules(
    counts=("minReadySeconds", "revisionHistoryLimit"), reports_missing_selector=False, keeps_selector=True
)
REPLICATION_CONTROLLER: Final = WorkloadRules(counts=("replicas", "minReadySeconds"), has_plain_selector=True)
POD_TEMPLATE: Final = WorkloadRules(spec=(), needs_selector=False, restart_policies=())
JOB: Final = WorkloadRules(
    counts=(
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ),
    keeps_selector=True,
    restart_policies=_ENDING,
)
JOB_TEMPLATE: Final = replace(JOB, spec=("spec", "jobTemplate", "spec"), needs_selector=False)


# --- stateful sets and cron jobs ---


def validate_stateful_set(workload: Document) -> FieldErrors:
    """Check a stateful set: its pods also have the volumes that are made from its templates."""
    return _STATEFUL_SET.validate_new(_add_claimed_volumes(workload))


def validate_changed_stateful_set(new: Document, old: Document) -> list[FieldError]:
    """Check a change of a stateful set."""
    return _STATEFUL_SET.validate_changed(_add_claimed_volumes(new), _add_claimed_volumes(old))


_STATEFUL_SET: Final = WorkloadRules(counts=("replicas", "minReadySeconds"))


def _add_claimed_volumes(workload: Document) -> Document:
    spec = get_mapping(workload, "spec")
    names = [
        get_text(get_mapping(each, "metadata"), "name") for each in get_objects(spec, "volumeClaimTemplates")
    ]
    if not names:
        return workload
    template = get_mapping(spec, "template")
    pod = get_mapping(template, "spec")
    kept = [volume for volume in get_objects(pod, "volumes") if get_text(volume, "name") not in names]
    made = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    changed = {**template, "spec": {**pod, "volumes": [*made, *kept]}}
    return {**workload, "spec": {**spec, "template": changed}}


_CRON_COUNTS: Final = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
_CONCURRENCY: Final = ("Allow", "Forbid", "Replace")


def validate_cron_job(workload: Document) -> FieldErrors:
    """Check a cron job: when it runs, and the template of its jobs."""
    spec, path = get_mapping(workload, "spec"), ROOT.child("spec")
    if not get_text(spec, "schedule"):
        yield required(path.child("schedule"))
    yield from validate_not_negative(spec, _CRON_COUNTS, path)
    policy = get_text(spec, "concurrencyPolicy")
    if policy and policy not in _CONCURRENCY:
        yield not_supported(path.child("concurrencyPolicy"), policy, _CONCURRENCY)
    job = get_mapping(get_mapping(spec, "jobTemplate"), "spec")
    place = path.child("jobTemplate", "spec")
    yield from JOB_TEMPLATE.validate_new(workload)
    if job.get("selector") is not None:
        yield invalid(place.child("selector"), job["selector"], "is made by the server")
    if is_true(job, "manualSelector"):
        yield not_supported(place.child("manualSelector"), "true", ("nil", "false"))


def validate_changed_cron_job(new: Document, old: Document) -> list[FieldError]:
    """Check a change of a cron job."""
    found = list(validate_cron_job(new))
    return filter_new_errors(found, new, validate_cron_job(old), old) if found else []
