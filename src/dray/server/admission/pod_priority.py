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

_DEFAULT_POLICY: Final = "PreemptLowerPriority"
_NO_CLASS: Final[Document] = {"value": 0}
"""What a pod has without a class when no class is the default."""


def resolve_pod_priority(pending: PendingObject, cache: WatchCache) -> PendingObject:
    """A new pod with the priority of its class; raises an `ApiStatusError` when the class does not exist.

    Priority and preemption policy are not for users to set: another value than that of the class is refused.
    """
    if pending.kind is not _POD:
        return pending
    spec = pending.document.get("spec")
    if not isinstance(spec, dict):
        return pending
    name = spec.get("priorityClassName")
    found = _find_class(str(name), cache) if name else _find_default_class(cache)
    if found is None:
        raise new_forbidden(_POD, _get_name(pending), f"no PriorityClass with name {name} was found")
    value, policy = _get_value(found), str(found.get("preemptionPolicy") or _DEFAULT_POLICY)
    _refuse_other_value(pending, "the integer value of priority", spec.get("priority"), value)
    _refuse_other_value(pending, "the string value of PreemptionPolicy", spec.get("preemptionPolicy"), policy)
    resolved = {"priority": value, "preemptionPolicy": policy}
    if found is not _NO_CLASS and not name:
        resolved["priorityClassName"] = found["metadata"]["name"]
    if resolved.items() <= spec.items():
        return pending
    return pending.replace_field("spec", {**spec, **resolved})


def _refuse_other_value(pending: PendingObject, what: str, given: Any, computed: int | str) -> None:
    if given is not None and given != computed:
        why = (
            f"{what} ({given}) must not be provided in pod spec; "
            f"priority admission controller computed {computed} from the given PriorityClass name"
        )
        raise new_forbidden(_POD, _get_name(pending), why)


def _find_class(name: str, cache: WatchCache) -> Document | None:
    stored = cache.get(_CLASS, "", name)
    if stored is not None:
        return PendingObject.from_stored(stored).document
    return {"value": SYSTEM_PRIORITY_CLASSES[name]} if name in SYSTEM_PRIORITY_CLASSES else None


def _find_default_class(cache: WatchCache) -> Document:
    """The default class of pods; of several, the one with the lowest value."""
    if not cache.count(_CLASS):
        return _NO_CLASS
    classes: Iterable[Document] = (
        PendingObject.from_stored(stored).document for stored in cache.list_objects(_CLASS)
    )
    defaults = [each for each in classes if each.get("globalDefault") is True]
    return min(defaults, key=_get_value, default=_NO_CLASS)


def _get_value(priority_class: Document) -> int:
    value = priority_class.get("value")
    return value if isinstance(value, int) else 0


def _get_name(pending: PendingObject) -> str:
    return str(pending.metadata.get("name") or "")
