"""What a server adds to a new pod besides its defaults: service account, tolerations, selectors and a status.

Rules for this file: it works on documents, and looks no other object up; priorities are in the server.
"""

from __future__ import annotations

from typing import Any, Final

from dray.api.core.pod_amounts import compute_qos_class
from dray.api.field_patterns import change_holders
from dray.api.strategies.pod_resources import default_pod_resources

Document = dict[str, Any]

TOLERATION_SECONDS: Final = 300
NODE_CONDITION_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
DEFAULT_SERVICE_ACCOUNT: Final = "default"

_NO_EXECUTE: Final = "NoExecute"


def add_service_account(spec: Document) -> Document:
    """A pod runs as the service account `default`, unless it names another one."""
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or DEFAULT_SERVICE_ACCOUNT
    if spec.get("serviceAccountName") == account == spec.get("serviceAccount"):
        return spec
    return {**spec, "serviceAccountName": account, "serviceAccount": account}


def add_default_tolerations(spec: Document) -> Document:
    """A pod stays five minutes on a node that is not ready or unreachable, unless it says how long."""
    given = spec.get("tolerations")
    listed = given if isinstance(given, list) else []
    added = [
        {
            "key": taint,
            "operator": "Exists",
            "effect": _NO_EXECUTE,
            "tolerationSeconds": TOLERATION_SECONDS,
        }
        for taint in NODE_CONDITION_TAINTS
        if not any(_tolerates(each, taint) for each in listed)
    ]
    return {**spec, "tolerations": [*listed, *added]} if added else spec


def _tolerates(toleration: Any, taint: str) -> bool:
    return (
        isinstance(toleration, dict)
        and toleration.get("key", "") in (taint, "", None)
        and toleration.get("effect", "") in (_NO_EXECUTE, "", None)
    )


def complete_new_pod(pod: Document) -> Document:
    """A new pod as it is stored, once it has its defaults: its resources in sum, selectors, and a status."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    labels = pod["metadata"].get("labels")
    spec = default_pod_resources(merge_label_keys(spec, labels if isinstance(labels, dict) else {}))
    status: Document = {"phase": "Pending", "qosClass": compute_qos_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [dict(_SCHEDULING_GATED)]
    return {**pod, "spec": spec, "status": status}


_SCHEDULING_GATED: Final[Document] = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
"""The condition of a pod with scheduling gates, in the words of Kubernetes."""

_OPERATORS: Final = (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution[]"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution[].podAffinityTerm"
_TERMS: Final = tuple(
    f"{place}.labelSelector"
    for place in (
        "topologySpreadConstraints[]",
        *(
            f"affinity.{kind}.{term}"
            for kind in ("podAffinity", "podAntiAffinity")
            for term in (_REQUIRED, _PREFERRED)
        ),
    )
)


def merge_label_keys(spec: Document, labels: Document) -> Document:
    """A pod spec whose label keys are part of the selectors they belong to, with the values of the pod."""
    if not (spec.get("topologySpreadConstraints") or spec.get("affinity")):
        return spec
    for term in _TERMS:
        spec = change_holders(spec, term, lambda holder: _merge_keys(holder, labels))
    return spec


def _merge_keys(term: Any, labels: Document) -> Any:
    selector = term.get("labelSelector") if isinstance(term, dict) else None
    if not isinstance(selector, dict):
        return term
    added = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for field, operator in _OPERATORS
        for key in _list_texts(term.get(field))
        if key in labels
    ]
    if not added:
        return term
    expressions = [*(selector.get("matchExpressions") or ()), *added]
    return {**term, "labelSelector": {**selector, "matchExpressions": expressions}}


def _list_texts(values: Any) -> list[str]:
    return [each for each in values if isinstance(each, str)] if isinstance(values, list) else []
