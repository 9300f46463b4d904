"""Pod priority: resolves the priority class of a new pod to `spec.priority`, which schedulers read.

A pod without a class gets the one with `globalDefault`, if there is any. The system classes exist without an
object.
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
    """A new pod with the priority of its class; raises an `ApiStatusError` when the class does not exist."""
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
        why = f"spec.priority is {given}, but PriorityClass {name} has the value {value}; leave it out"
        raise new_forbidden(_POD, _get_name(pending), why)
    resolved = {"priorityClassName": name or found["metadata"]["name"], "priority": value}
    if found.get("preemptionPolicy"):
        resolved["preemptionPolicy"] = spec.get("preemptionPolicy") or found["preemptionPolicy"]
    return pending.replace_field("spec", {**spec, **resolved})


def _find_class(name: str, cache: WatchCache) -> Document | None:
    stored = cache.get(_CLASS, "", name)
    if stored is not None:
        return PendingObject.from_stored(stored).document
    return {"value": SYSTEM_PRIORITY_CLASSES[name]} if name in SYSTEM_PRIORITY_CLASSES else None


def _find_default_class(spec: Document, cache: WatchCache) -> Document | None:
    """The default class of pods; of several, the one with the lowest value."""
    if spec.get("priority") is not None or not cache.count(_CLASS):
        return None
    classes: Iterable[Document] = (
        PendingObject.from_stored(stored).document for stored in cache.list_objects(_CLASS)
    )
    defaults = [each for each in classes if each.get("globalDefault") is True]
    return min(defaults, key=_get_value, default=None)


def _get_value(priority_class: Document) -> int:
    value = priority_class.get("value")
    return value if isinstance(value, int) else 0


def _get_name(pending: PendingObject) -> str:
    return str(pending.metadata.get("name") or "")
