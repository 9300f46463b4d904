"""The strategy of pods: defaults, the initial status, and which fields of the spec are immutable.

Rules for this file: it works on documents; resource claims of pods are validated in `dray.api.validation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from dray.api.fields import ROOT, FieldError, forbidden
from dray.server.auth.restriction.node_restriction import MIRROR_ANNOTATION

Document = dict[str, Any]


def prepare_for_create(pod: Document) -> Document:
    """A new pod: with defaults, and pending."""
    complete = apply_defaults(pod)
    spec = complete.get("spec")
    if not isinstance(spec, dict):
        return pod
    status: Document = {"phase": "Pending", "qosClass": _compute_qos_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [_SCHEDULING_GATED]
    return {**complete, "status": status}


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
    for name in _CONTAINER_LISTS:
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


def validate_immutable_spec(pod: Document, before: Document) -> list[FieldError]:
    """Errors for changes of immutable fields; `nodeName` is one of them, only `binding` sets it."""
    old_gates = {_get_gate_name(gate) for gate in (before.get("spec") or {}).get("schedulingGates") or ()}
    added = [
        gate
        for gate in (pod.get("spec") or {}).get("schedulingGates") or ()
        if _get_gate_name(gate) not in old_gates
    ]
    if added:
        what = f"only deletion is allowed, but found new scheduling gate `{_get_gate_name(added[0])}`"
        return [forbidden(ROOT.child("spec").child("schedulingGates"), what)]
    new, old = _get_immutable_spec(pod), _get_immutable_spec(before)
    changed = sorted(name for name in new.keys() | old.keys() if new.get(name) != old.get(name))
    if not changed:
        return []
    names = ", ".join(f"`{name}`" for name in changed)
    what = f"pod updates may not change fields other than {_MUTABLE_FIELDS_TEXT}; this one changes {names}"
    return [forbidden(ROOT.child("spec"), what)]


def _get_gate_name(gate: Any) -> str:
    return str(gate.get("name")) if isinstance(gate, dict) else str(gate)


def _get_immutable_spec(pod: Document) -> Document:
    """The immutable fields of a pod's spec, without empty values; claims are validated with the kind."""
    others = _MUTABLE_FIELDS | {"resourceClaims"}
    spec = {name: value for name, value in (pod.get("spec") or {}).items() if name not in others}
    for name in _CONTAINER_LISTS:
        spec[name] = [
            {field: value for field, value in each.items() if field != "image"}
            for each in spec.get(name) or ()
            if isinstance(each, dict)
        ]
    return {name: value for name, value in spec.items() if value not in (None, "", [], {})}


_MUTABLE_FIELDS: Final = frozenset(
    {"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"}
)
_CONTAINER_LISTS: Final = ("containers", "initContainers")
_MUTABLE_FIELDS_TEXT: Final = "`spec.containers[*].image`,`spec.initContainers[*].image`," + ",".join(
    f"`spec.{name}`" for name in sorted(_MUTABLE_FIELDS)
)


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


def _compute_qos_class(spec: Mapping[str, Any]) -> str:
    """The QoS class that follows from the requests and limits of a pod."""
    resources = [
        each.get("resources") or {}
        for name in _CONTAINER_LISTS
        for each in spec.get(name) or ()
        if isinstance(each, dict)
    ]
    requests = [each.get("requests") or {} for each in resources]
    limits = [each.get("limits") or {} for each in resources]
    if not any(requests) and not any(limits):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= limit.keys()
        and all(request.get(name, limit[name]) == limit[name] for name in limit)
        for request, limit in zip(requests, limits, strict=True)
    )
    return "Guaranteed" if guaranteed else "Burstable"
