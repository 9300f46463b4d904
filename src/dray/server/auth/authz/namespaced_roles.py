"""The roles that Kubernetes 1.37 has in its own namespaces, with their bindings.

They are for components that keep their state there: who leads, which tokens join, and which CA authenticates
the clients of an extension API server.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from dray.server.auth.authz.controller_roles import EVENT_RULE, READ
from dray.server.auth.authz.role_documents import SYSTEM_NAMESPACE, build_binding, build_role

_LOCKING: Final = (f"{READ},create,update: leases.coordination.k8s.io leasecandidates.coordination.k8s.io",)


class NamespacedRole(NamedTuple):
    """One role of a namespace, who has it, and the name of its binding unless that is the same."""

    namespace: str
    name: str
    rules: tuple[str, ...]
    subjects: tuple[str, ...]
    binding: str = ""


NAMESPACED_ROLES: Final = (
    NamespacedRole(
        SYSTEM_NAMESPACE,
        "extension-apiserver-authentication-reader",
        (f"{READ}: configmaps [extension-apiserver-authentication]",),
        ("User:system:kube-controller-manager", "User:system:kube-scheduler"),
        "system::extension-apiserver-authentication-reader",
    ),
    NamespacedRole(
        SYSTEM_NAMESPACE,
        "system::leader-locking-kube-controller-manager",
        _LOCKING,
        (
            "User:system:kube-controller-manager",
            "Account:kube-controller-manager",
            "Account:leader-election-controller",
        ),
    ),
    NamespacedRole(
        SYSTEM_NAMESPACE,
        "system::leader-locking-kube-scheduler",
        _LOCKING,
        ("User:system:kube-scheduler", "Account:kube-scheduler"),
    ),
    NamespacedRole(
        SYSTEM_NAMESPACE,
        "system:controller:bootstrap-signer",
        (f"{READ}: secrets",),
        ("Account:bootstrap-signer",),
    ),
    NamespacedRole(
        SYSTEM_NAMESPACE,
        "system:controller:cloud-provider",
        (f"{READ},create: configmaps",),
        ("Account:cloud-provider",),
    ),
    NamespacedRole(
        SYSTEM_NAMESPACE,
        "system:controller:token-cleaner",
        (f"{READ},delete: secrets", EVENT_RULE),
        ("Account:token-cleaner",),
    ),
    NamespacedRole(
        "kube-public",
        "system:controller:bootstrap-signer",
        (f"{READ}: configmaps", "update: configmaps [cluster-info]", EVENT_RULE),
        ("Account:bootstrap-signer",),
    ),
)


def build_namespaced_documents() -> list[dict[str, Any]]:
    """Build the roles and bindings of the namespaces that every cluster has."""
    roles = [build_role(row.name, row.rules, namespace=row.namespace) for row in NAMESPACED_ROLES]
    return roles + [
        build_binding(row.name, row.subjects, row.binding, row.namespace) for row in NAMESPACED_ROLES
    ]
