"""The strategy of pods: defaults, the initial status, and what each subresource may write.

Rules for this file: it works on documents; pods are validated in `dray.api.validation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from dray.api.core.pod import CONTAINER_LISTS
from dray.api.pod_qos import compute_qos_class
from dray.server.auth.restriction.node_restriction import MIRROR_ANNOTATION

Document = dict[str, Any]


def prepare_for_create(pod: Document) -> Document:
    """A new pod: with defaults, and pending."""
    complete = apply_defaults(pod)
    spec = complete.get("spec")
    if not isinstance(spec, dict):
        return pod
    status: Document = {"phase": "Pending", "qosClass": compute_qos_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [_SCHEDULING_GATED]
    return {**complete, "status": status}


_CONTAINER_LISTS: Final = ("containers", "initContainers")
_SCHEDULING_GATED: Final[Document] = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
"""The condition of a pod with scheduling gates, in the words of Kubernetes."""


def apply_defaults(pod: Document) -> Document:
    """A pod with the defaults of Kubernetes."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    complete = {**_POD_DEFAULTS, **_default_service_account(pod, spec), **_drop_nulls(spec)}
    complete["tolerations"] = _add_default_tolerations(complete.get("tolerations"))
    for name in CONTAINER_LISTS:
        if isinstance(complete.get(name), list):
            complete[name] = [_default_container(each) for each in complete[name]]
    return {**pod, "spec": complete}


def prepare_for_update(pod: Document, before: Document) -> Document:
    """An updated pod with defaults; a client may leave the priority out, which then stays as stored."""
    spec, old = pod.get("spec"), before.get("spec")
    if isinstance(spec, dict) and isinstance(old, dict):
        priority = {name: old[name] for name in _PRIORITY_FIELDS if name in old and spec.get(name) is None}
        pod = {**pod, "spec": {**spec, **priority}} if priority else pod
    return apply_defaults(pod)


_PRIORITY_FIELDS: Final = ("priority", "priorityClassName", "preemptionPolicy")


# --- status and other subresources ---

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
    kept |= _complete_addresses(status)
    return {**pod, "status": {**status, **kept}} if kept else pod


def _complete_addresses(status: Document) -> Document:
    """The address of a pod as a field and as the first of a list; the field decides when they differ."""
    address, addresses = status.get("podIP"), status.get("podIPs") or []
    first = addresses[0].get("ip") if addresses and isinstance(addresses[0], dict) else None
    if address:
        return {} if address == first else {"podIPs": [{"ip": address}]}
    return {"podIP": first} if first else {}


def _is_given(status: Document, name: str) -> bool:
    """Whether a field is in a status; an empty list removes what was there."""
    value = status.get(name)
    return bool(value) or isinstance(value, list)


def prepare_subresource(pod: Document, before: Document, subresource: str) -> Document:
    """The stored pod with the containers that a request for `resize` or `ephemeralcontainers` changes."""
    spec, stored = pod.get("spec") or {}, before.get("spec") or {}
    if subresource == "ephemeralcontainers":
        added = spec.get("ephemeralContainers") or []
        return apply_defaults({**before, "spec": {**stored, "ephemeralContainers": added}})
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


def _default_service_account(pod: Document, spec: Document) -> Document:
    """The service account of a pod; a mirror pod has none."""
    if MIRROR_ANNOTATION in (pod["metadata"].get("annotations") or {}):
        return {}
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    return {"serviceAccountName": account, "serviceAccount": account}


_POD_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
)

_CONTAINER_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
)

_TOLERATION_SECONDS: Final = 300
_NODE_CONDITION_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def _drop_nulls(document: Mapping[str, Any]) -> Document:
    return {name: value for name, value in document.items() if value is not None}


def _add_default_tolerations(tolerations: Any) -> Any:
    """Tolerations with those for a node that is not ready or unreachable, unless the pod has its own."""
    given = tolerations if isinstance(tolerations, list) else []
    tolerated = [each.get("key") for each in given if isinstance(each, dict)]
    added = [
        {
            "key": taint,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _TOLERATION_SECONDS,
        }
        for taint in _NODE_CONDITION_TAINTS
        if taint not in tolerated
    ]
    return [*given, *added]


def _default_container(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    image = str(container.get("image", ""))
    tag = image.rpartition("/")[2].partition(":")[2]
    pull = "Always" if "@" not in image and tag in ("", "latest") else "IfNotPresent"
    return {**_CONTAINER_DEFAULTS, "imagePullPolicy": pull, **_drop_nulls(container)}
