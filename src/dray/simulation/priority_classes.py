"""Priority classes in files: the number that `spec.priorityClassName` of a pod stands for.

An API server settles `spec.priority` when a pod is created, and schedulers read nothing else. In files the
class is only named, so its number is looked up here; pods out of a server have theirs already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dray.api.core import Pod
from dray.api.core.priority_classes import SYSTEM_PRIORITY_CLASSES

GROUP, KIND = "scheduling.k8s.io", "PriorityClass"


def is_priority_class(document: Mapping[str, Any]) -> bool:
    """Whether a document is a priority class."""
    group, _, _ = str(document.get("apiVersion")).rpartition("/")
    return (group, document.get("kind")) == (GROUP, KIND)


def read_class_name(document: Mapping[str, Any]) -> str:
    """The class that the document of a pod names; empty when it names none."""
    spec = document.get("spec")
    name = spec.get("priorityClassName") if isinstance(spec, Mapping) else None
    return name if isinstance(name, str) else ""


class PriorityClasses:
    """The priority classes of a cluster: those every cluster has, and those in the files."""

    def __init__(self) -> None:
        self._values = dict(SYSTEM_PRIORITY_CLASSES)
        self._defaults: list[int] = []
        self.missing: dict[str, None] = {}

    def add(self, document: Mapping[str, Any]) -> None:
        """Remember a class; one without a number stands for 0."""
        metadata, value = document.get("metadata"), document.get("value")
        number = value if isinstance(value, int) else 0
        if isinstance(metadata, Mapping) and isinstance(metadata.get("name"), str):
            self._values[metadata["name"]] = number
        if document.get("globalDefault") is True:
            self._defaults.append(number)

    def resolve_priority(self, pod: Pod, class_name: str) -> Pod:
        """A pod with its priority; of several classes for pods that name none the least one counts."""
        if pod.spec.priority is not None:
            return pod
        if class_name:
            value = self._values.get(class_name)
            if value is None:
                self.missing[class_name] = None
        else:
            value = min(self._defaults, default=None)
        if value is None:
            return pod
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=value))
