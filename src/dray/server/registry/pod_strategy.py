"""Pods: what they are born with, and what of them may change later.

Rules for this file: documents go in and come out; what a pod claims is judged with its kind, in `api`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from dray.api.fields import ROOT, FieldError, forbidden
from dray.server.auth.restriction.node_restriction import MIRROR_ANNOTATION

Document = dict[str, Any]


def prepare_for_create(pod: Document) -> Document:
    """A new pod: complete, and waiting for a node."""
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
"""What a pod says that no scheduler looks at before its gates are gone; in the words of Kubernetes."""


def apply_defaults(pod: Document) -> Document:
    """A pod with what everybody relies on and few write down."""
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
    """A pod that follows a stored one; whoever writes it anew need not know how important it is."""
    spec, old = pod.get("spec"), before.get("spec")
    if isinstance(spec, dict) and isinstance(old, dict):
        rank = {name: old[name] for name in _PRIORITY_FIELDS if name in old and spec.get(name) is None}
        pod = {**pod, "spec": {**spec, **rank}} if rank else pod
    return apply_defaults(pod)


_PRIORITY_FIELDS: Final = ("priority", "priorityClassName", "preemptionPolicy")


def validate_immutable_spec(pod: Document, before: Document) -> list[FieldError]:
    """What changes of a pod's spec although a node may run it already; only `binding` gives it a node."""
    held = {_get_gate_name(gate) for gate in (before.get("spec") or {}).get("schedulingGates") or ()}
    more = [
        gate
        for gate in (pod.get("spec") or {}).get("schedulingGates") or ()
        if _get_gate_name(gate) not in held
    ]
    if more:
        what = f"only deletion is allowed, but found new scheduling gate `{_get_gate_name(more[0])}`"
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
    """What of a pod's spec does not change, without empty values; claims are judged with the kind."""
    judged = _MUTABLE_FIELDS | {"resourceClaims"}
    spec = {name: value for name, value in (pod.get("spec") or {}).items() if name not in judged}
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
    """The account a pod runs as; a pod that mirrors what a node runs by itself runs as none."""
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
    """A pod stays a while on a node in trouble, unless it says otherwise."""
    given = tolerations if isinstance(tolerations, list) else []
    endured = [each.get("key") for each in given if isinstance(each, dict)]
    patience = [
        {
            "key": trouble,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _TOLERATION_SECONDS,
        }
        for trouble in _NODE_CONDITION_TAINTS
        if trouble not in endured
    ]
    return [*given, *patience]


def _default_container(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    image = str(container.get("image", ""))
    tag = image.rpartition("/")[2].partition(":")[2]
    pull = "Always" if "@" not in image and tag in ("", "latest") else "IfNotPresent"
    return {**_CONTAINER_DEFAULTS, "imagePullPolicy": pull, **_drop_nulls(container)}


def _compute_qos_class(spec: Mapping[str, Any]) -> str:
    """The class of service a pod's requests and limits amount to."""
    everything = [
        each.get("resources") or {}
        for name in ("containers", "initContainers")
        for each in spec.get(name) or ()
        if isinstance(each, dict)
    ]
    asked = [each.get("requests") or {} for each in everything]
    limits = [each.get("limits") or {} for each in everything]
    if not any(asked) and not any(limits):
        return "BestEffort"
    settled = all(
        {"cpu", "memory"} <= limit.keys() and all(ask.get(name, limit[name]) == limit[name] for name in limit)
        for ask, limit in zip(asked, limits, strict=True)
    )
    return "Guaranteed" if settled else "Burstable"
