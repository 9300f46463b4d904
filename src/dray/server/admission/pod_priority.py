"""How important a pod is: the number that its priority class stands for, settled when it is made.

Schedulers read `spec.priority` alone. People name a class, or none; then the class that says it is the usual
one counts. Classes for what a cluster cannot do without are always there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dray.api.core.priority_classes import SYSTEM_CLASSES
from dray.api.kinds import known_kind
from dray.server.http.errors import forbidden
from dray.server.objects.pending_object import Draft
from dray.server.watch.cache import Cache

_POD: Final = known_kind("", "Pod")
_CLASS: Final = known_kind("scheduling.k8s.io", "PriorityClass")

Document = Mapping[str, Any]


def ranked(draft: Draft, cache: Cache) -> Draft:
    """A new pod with the number of its class; one whose class nobody made is refused."""
    if draft.kind is not _POD:
        return draft
    spec = draft.document.get("spec")
    if not isinstance(spec, dict):
        return draft
    name = spec.get("priorityClassName")
    found = _named(str(name), cache) if name else _usual(spec, cache)
    if found is None:
        if not name:
            return draft
        raise forbidden(_POD, _name(draft), f"no PriorityClass with name {name} was found")
    value = _value(found)
    given = spec.get("priority")
    if given is not None and given != value:
        why = f"spec.priority is {given}, and PriorityClass {name} stands for {value}; leave it out"
        raise forbidden(_POD, _name(draft), why)
    settled = {"priorityClassName": name or found["metadata"]["name"], "priority": value}
    if found.get("preemptionPolicy"):
        settled["preemptionPolicy"] = spec.get("preemptionPolicy") or found["preemptionPolicy"]
    return draft.with_field("spec", {**spec, **settled})


def _named(name: str, cache: Cache) -> Document | None:
    held = cache.get(_CLASS, "", name)
    if held is not None:
        return Draft.of_held(held).document
    return {"value": SYSTEM_CLASSES[name]} if name in SYSTEM_CLASSES else None


def _usual(spec: Document, cache: Cache) -> Document | None:
    """The class of pods that say nothing; of several the least important."""
    if spec.get("priority") is not None or not cache.count(_CLASS):
        return None
    classes: Iterable[Document] = (Draft.of_held(held).document for held in cache.all(_CLASS))
    usual = [each for each in classes if each.get("globalDefault") is True]
    return min(usual, key=_value, default=None)


def _value(found: Document) -> int:
    value = found.get("value")
    return value if isinstance(value, int) else 0


def _name(draft: Draft) -> str:
    return str(draft.metadata.get("name") or "")
