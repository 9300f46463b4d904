"""Documents of roles and their bindings, built from rules and subjects in short form.

Theory of operation: a rule is `verbs: resources [names]`, as `policy_rules` parses it; a subject is its kind
and name, `User:system:kube-scheduler`, where `Account` is a service account of the namespace `kube-system`.
With a namespace, roles and bindings are those of that namespace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from dray.server.auth.authz.policy_rules import parse_resource, parse_rule
from dray.server.auth.authz.rbac import GROUP

SYSTEM_NAMESPACE: Final = "kube-system"
_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


def build_rules(rules: Sequence[str]) -> list[dict[str, Any]]:
    """Build one rule for each group, so that no rule allows more than the short form."""
    built: list[dict[str, Any]] = []
    for text in rules:
        verbs, _, what = text.partition(": ")
        what, bracket, names = what.partition("[")
        by_group: dict[str, list[str]] = {}
        for place in what.split():
            group = "/" if place.startswith("/") else parse_resource(place)[0]
            by_group.setdefault(group, []).append(place)
        for places in by_group.values():
            short = f"{verbs}: {' '.join(places)}" + (f" [{names}" if bracket else "")
            built.append(parse_rule(short).to_document())
    return built


def build_role(
    name: str, rules: Sequence[str], labels: Mapping[str, str] = _NO_LABELS, namespace: str = ""
) -> dict[str, Any]:
    """Build a cluster role, or the role of a namespace."""
    kind = "Role" if namespace else "ClusterRole"
    return _build_document(kind, name, labels, namespace) | {"rules": build_rules(rules)}


def build_binding(role: str, subjects: Sequence[str], name: str = "", namespace: str = "") -> dict[str, Any]:
    """Build the binding of a role, which has the name of the role unless it is given another."""
    kind = "Role" if namespace else "ClusterRole"
    return _build_document(f"{kind}Binding", name or role, _NO_LABELS, namespace) | {
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": [_build_subject(*subject.split(":", 1)) for subject in subjects],
    }


def _build_subject(kind: str, name: str) -> dict[str, str]:
    if kind == "Account":
        return {"kind": "ServiceAccount", "name": name, "namespace": SYSTEM_NAMESPACE}
    return {"apiGroup": GROUP, "kind": kind, "name": name}


def _build_document(kind: str, name: str, labels: Mapping[str, str], namespace: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults", **labels},
    }
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata}
