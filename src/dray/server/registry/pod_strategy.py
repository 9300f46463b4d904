"""The strategy of pods: what admission adds to them, and what each subresource may write.

Rules for this file: it works on documents; pods are validated in `dray.api.validation`.
"""

from __future__ import annotations

from typing import Any, Final

from dray.api.strategies.pod_creation import add_default_tolerations, add_service_account
from dray.server.auth.restriction.node_restriction import MIRROR_ANNOTATION

Document = dict[str, Any]


def prepare_for_create(pod: Document) -> Document:
    """A new pod with what admission adds to it; a mirror pod has no service account."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    complete = add_default_tolerations(spec)
    if MIRROR_ANNOTATION not in (pod["metadata"].get("annotations") or {}):
        complete = add_service_account(complete)
    return pod if complete is spec else {**pod, "spec": complete}


def prepare_for_update(pod: Document, before: Document) -> Document:
    """An updated pod; what admission added to the pod may be left out, and then stays as stored."""
    spec, old = pod.get("spec"), before.get("spec")
    if not isinstance(spec, dict) or not isinstance(old, dict):
        return pod
    kept = {name: old[name] for name in _ADMITTED_FIELDS if name in old and spec.get(name) is None}
    complete = add_default_tolerations({**spec, **kept} if kept else spec)
    return pod if complete is spec else {**pod, "spec": complete}


_ADMITTED_FIELDS: Final = (
    "priority",
    "priorityClassName",
    "preemptionPolicy",
    "serviceAccountName",
    "serviceAccount",
    "resources",
)


# --- status and other subresources ---

_CONTAINER_LISTS: Final = ("containers", "initContainers")
_KEPT_STATUS: Final = (
    "qosClass",
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
    "nodeAllocatableResourceClaimStatuses",
    "observedGeneration",
)
"""What a status keeps when its writer does not know the field and leaves it out."""


def prepare_status(pod: Document, before: Document) -> Document:
    """A pod with an updated status; fields that older clients drop are kept."""
    status, stored = pod.get("status") or {}, before.get("status")
    if not isinstance(status, dict) or not isinstance(stored, dict):
        return pod
    kept = {name: stored[name] for name in _KEPT_STATUS if name in stored and not _is_given(status, name)}
    return {**pod, "status": {**status, **kept}} if kept else pod


def _is_given(status: Document, name: str) -> bool:
    """Whether a field is in a status; an empty list removes what was there."""
    value = status.get(name)
    return bool(value) or isinstance(value, list)


def prepare_subresource(pod: Document, before: Document, subresource: str) -> Document:
    """The stored pod with the containers that a request for `resize` or `ephemeralcontainers` changes."""
    spec, stored = pod.get("spec") or {}, before.get("spec") or {}
    if subresource == "ephemeralcontainers":
        added = spec.get("ephemeralContainers") or []
        return {**before, "spec": {**stored, "ephemeralContainers": added}}
    resized = {**stored, **{name: _resize_containers(spec, stored, name) for name in _CONTAINER_LISTS}}
    if spec.get("resources") is not None:
        resized["resources"] = spec["resources"]
    return {**before, "spec": _drop_empty_lists(resized, stored)}


def _resize_containers(spec: Document, stored: Document, name: str) -> Any:
    """The stored containers with new resources; other containers are returned for validation to refuse."""
    new, old = spec.get(name) or [], stored.get(name) or []
    if [_get_name(each) for each in new] != [_get_name(each) for each in old]:
        return new
    fields = ("resources", "resizePolicy")
    return [
        {
            **{field: value for field, value in before.items() if field not in fields},
            **{field: each[field] for field in fields if each.get(field) is not None},
        }
        for each, before in zip(new, old, strict=True)
    ]


def _get_name(container: Any) -> Any:
    return container.get("name") if isinstance(container, dict) else None


def _drop_empty_lists(spec: Document, stored: Document) -> Document:
    return {name: value for name, value in spec.items() if value or name in stored}
