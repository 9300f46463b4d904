"""Pods and changes of pods with the answers of Kubernetes, from the YAML files beside this module."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]

_FOLDER = Path(__file__).parent


def build_pod(
    name: str = "thing",
    *,
    spec: Document | None = None,
    container: Document | None = None,
    annotations: Document | None = None,
) -> Document:
    """A pod with one container, and with what a case adds to it."""
    metadata: Document = {"name": name, "namespace": "default"}
    if annotations is not None:
        metadata["annotations"] = annotations
    containers = [{"name": "main", "image": "web:1", **(container or {})}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers, **(spec or {})},
    }


@dataclass(frozen=True)
class NewPodCase:
    """A new pod, and why Kubernetes refuses it."""

    id: str
    pod: Document
    causes: list[str]


@dataclass(frozen=True)
class ChangedPodCase:
    """A change of a pod, and why Kubernetes refuses it."""

    id: str
    subresource: str
    pod: Document
    patch: Document
    causes: list[str]
    ephemeral: list[Document] = field(default_factory=list)
    status: Document = field(default_factory=dict)

    def apply(self, pod: Document) -> Document:
        """The stored pod as the request puts it."""
        changed: Document = _merge(pod, self.patch, "")
        return changed


def load_new_pods() -> list[NewPodCase]:
    return [
        NewPodCase(f"{group}: {case.pop('name')}", causes=case.pop("causes"), pod=build_pod(**case))
        for group, case in _load("new_pods.yaml")
    ]


def load_changed_pods() -> list[ChangedPodCase]:
    return [
        ChangedPodCase(
            f"{group}: {case.pop('name')}",
            "" if group == "pod" else group,
            build_pod(spec=case.pop("base", None), container=case.pop("container", None)),
            **case,
        )
        for group, case in _load("changed_pods.yaml")
    ]


def _load(file: str) -> list[tuple[str, Document]]:
    groups = yaml.safe_load((_FOLDER / file).read_text())
    return [(group, case) for group, cases in groups.items() for case in cases]


def _merge(old: Any, patch: Any, name: str) -> Any:
    if isinstance(patch, dict):
        merged = dict(old) if isinstance(old, dict) else {}
        for key, value in patch.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = _merge(merged.get(key), value, key)
        return merged
    if isinstance(patch, list) and name == "containers":
        known = [*(old or []), *({} for _ in patch)]
        return [_merge(known[position], item, "") for position, item in enumerate(patch)]
    return patch
