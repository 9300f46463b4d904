"""The strategy of pods: what admission adds to them, and which fields of the spec are immutable.

Rules for this file: it works on documents; resource claims of pods are validated in `dray.api.validation`.
"""

from __future__ import annotations

from typing import Any, Final

from dray.api.fields import ROOT, FieldError, forbidden
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
