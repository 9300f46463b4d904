"""How important a pod is: the number that its priority class stands for, settled when it is made.

Schedulers read `spec.priority` alone. People name a class, or none; then the class that says it is the usual
one counts. Classes for what a cluster cannot do without are always there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dray.api.core.priority_classes import SYSTEM_PRIORITY_CLASSES
from dray.api.kinds import get_kind
from dray.server.http.errors import new_forbidden
from dray.server.objects.pending_object import PendingObject
from dray.server.watch.cache import WatchCache

_POD: Final = get_kind("", "Pod")
_CLASS: Final = get_kind("scheduling.k8s.io", "PriorityClass")

Document = Mapping[str, Any]


def resolve_pod_priority(pending: PendingObject, cache: WatchCache) -> PendingObject:
    """A new pod with the number of its class; one whose class nobody made is refused."""
    if pending.kind is not _POD:
        return pending
    spec = pending.document.get("spec")
    if not isinstance(spec, dict):
        return pending
    name = spec.get("priorityClassName")
    found = _find_class(str(name), cache) if name else _find_default_class(spec, cache)
    if found is None:
        if not name:
            return pending
        raise new_forbidden(_POD, _get_name(pending), f"no PriorityClass with name {name} was found")
    value = _get_value(found)
    given = spec.get("priority")
    if given is not None and given != value:
        why = f"spec.priority is {given}, and PriorityClass {name} stands for {value}; leave it out"
        raise new_forbidden(_POD, _get_name(pending), why)
    settled = {"priorityClassName": name or found["metadata"]["name"], "priority": value}
    if found.get("preemptionPolicy"):
        settled["preemptionPolicy"] = spec.get("preemptionPolicy") or found["preemptionPolicy"]
    return pending.replace_field("spec", {**spec, **settled})


def _find_class(name: str, cache: WatchCache) -> Document | None:
    held = cache.get(_CLASS, "", name)
    if held is not None:
        return PendingObject.from_stored(held).document
    return {"value": SYSTEM_PRIORITY_CLASSES[name]} if name in SYSTEM_PRIORITY_CLASSES else None


def _find_default_class(spec: Document, cache: WatchCache) -> Document | None:
    """The class of pods that say nothing; of several the least important."""
    if spec.get("priority") is not None or not cache.count(_CLASS):
        return None
    classes: Iterable[Document] = (
        PendingObject.from_stored(held).document for held in cache.list_objects(_CLASS)
    )
    usual = [each for each in classes if each.get("globalDefault") is True]
    return min(usual, key=_get_value, default=None)


def _get_value(priority_class: Document) -> int:
    value = priority_class.get("value")
    return value if isinstance(value, int) else 0


def _get_name(pending: PendingObject) -> str:
    return str(pending.metadata.get("name") or "")
