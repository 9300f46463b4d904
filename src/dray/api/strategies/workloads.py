"""Strategies of workloads: what a server adds to jobs and daemon sets besides their defaults.

A job selects its pods by the uid of the job, which only the server knows; a daemon set counts the changes of
its template.
"""

from __future__ import annotations

from typing import Any, Final

Document = dict[str, Any]

CONTROLLER_UID_LABEL: Final = "batch.kubernetes.io/controller-uid"
TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"


def complete_new_job(job: Document) -> Document:
    """A new job with the selector of its pods, and with labels in the template that match it."""
    spec, metadata = job.get("spec"), job["metadata"]
    if not isinstance(spec, dict) or spec.get("manualSelector") is True:
        return job
    template = spec.get("template")
    if not isinstance(template, dict) or not isinstance(template.get("metadata") or {}, dict):
        return job
    given = (template.get("metadata") or {}).get("labels")
    labels = {**_build_job_labels(metadata), **(given if isinstance(given, dict) else {})}
    template = {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}}
    spec = {**spec, "template": template, "selector": _complete_selector(spec.get("selector"), metadata)}
    if not metadata.get("labels") or metadata["labels"] is given:  # the defaults took them from the template
        metadata = {**metadata, "labels": labels}
    return {**job, "metadata": metadata, "spec": spec}


def _build_job_labels(metadata: Document) -> Document:
    name, uid = metadata.get("name", ""), metadata.get("uid", "")
    return {
        "controller-uid": uid,
        CONTROLLER_UID_LABEL: uid,
        "job-name": name,
        "batch.kubernetes.io/job-name": name,
    }


def _complete_selector(selector: Any, metadata: Document) -> Document:
    given = selector if isinstance(selector, dict) else {}
    own = {CONTROLLER_UID_LABEL: metadata.get("uid", "")}
    return {**given, "matchLabels": {**own, **(given.get("matchLabels") or {})}}


def complete_new_daemon_set(daemon_set: Document) -> Document:
    """A new daemon set whose template is in its first generation."""
    annotations = daemon_set["metadata"].get("annotations") or {}
    if annotations.get(TEMPLATE_GENERATION):
        return daemon_set
    return _count_template(daemon_set, 1)


def update_daemon_set(daemon_set: Document, stored: Document) -> Document:
    """An updated daemon set, with one more generation when its template changes."""
    counted = (stored["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "")
    generation = int(counted) if str(counted).isdecimal() else 1
    new, old = ((each.get("spec") or {}).get("template") for each in (daemon_set, stored))
    return _count_template(daemon_set, generation + (1 if new != old else 0))


def _count_template(daemon_set: Document, generation: int) -> Document:
    metadata = daemon_set["metadata"]
    annotations = {**(metadata.get("annotations") or {}), TEMPLATE_GENERATION: str(generation)}
    return {**daemon_set, "metadata": {**metadata, "annotations": annotations}}
