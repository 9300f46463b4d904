"""The table of rules on documents: kinds that are stored open and still have rules for all their fields.

Rules of `kind_rules` read the struct of a kind, which has only the fields that dray uses. The rules here read
the document. A change is checked by the rule of the subresource through which it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from dray.api.fields import FieldError
from dray.api.kinds import Kind
from dray.api.validation import workloads
from dray.api.validation.documents import config_objects, events, leases, namespaces, nodes, quotas, rbac
from dray.api.validation.pods.create import validate_new_pod
from dray.api.validation.pods.resize import validate_ephemeral_containers, validate_resize
from dray.api.validation.pods.status import validate_changed_status
from dray.api.validation.pods.update import validate_changed_pod

Document: TypeAlias = Mapping[str, Any]

_RBAC: Final = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class DocumentRules:
    """The rules of a kind: for a new object, and for a change by subresource (empty: the object itself)."""

    on_create: Callable[[Document], Iterable[FieldError]]
    on_change: Mapping[str, Callable[[Document, Document], Iterable[FieldError]]] = field(
        default_factory=dict
    )


def _build_workload_rules(rules: workloads.WorkloadRules) -> DocumentRules:
    return DocumentRules(rules.validate_new, {"": rules.validate_changed})


DOCUMENT_RULES: Final[Mapping[tuple[str, str], DocumentRules]] = MappingProxyType(
    {
        ("", "Pod"): DocumentRules(
            validate_new_pod,
            {
                "": validate_changed_pod,
                "status": validate_changed_status,
                "ephemeralcontainers": validate_ephemeral_containers,
                "resize": validate_resize,
            },
        ),
        ("", "PodTemplate"): _build_workload_rules(workloads.POD_TEMPLATE),
        ("", "ReplicationController"): _build_workload_rules(workloads.REPLICATION_CONTROLLER),
        ("apps", "ReplicaSet"): _build_workload_rules(workloads.REPLICA_SET),
        ("apps", "Deployment"): _build_workload_rules(workloads.DEPLOYMENT),
        ("apps", "DaemonSet"): _build_workload_rules(workloads.DAEMON_SET),
        ("apps", "StatefulSet"): DocumentRules(
            workloads.validate_stateful_set, {"": workloads.validate_changed_stateful_set}
        ),
        ("batch", "Job"): _build_workload_rules(workloads.JOB),
        ("batch", "CronJob"): DocumentRules(
            workloads.validate_cron_job, {"": workloads.validate_changed_cron_job}
        ),
        ("", "ConfigMap"): DocumentRules(
            config_objects.validate_config_map, {"": config_objects.validate_changed_config_map}
        ),
        ("", "Secret"): DocumentRules(
            config_objects.validate_secret, {"": config_objects.validate_changed_secret}
        ),
        ("", "Event"): DocumentRules(events.validate_event, {"": events.validate_changed_event}),
        ("events.k8s.io", "Event"): DocumentRules(
            events.validate_strict_event, {"": events.validate_changed_strict_event}
        ),
        ("", "Namespace"): DocumentRules(
            namespaces.validate_namespace,
            {
                "status": namespaces.validate_changed_namespace_status,
                "finalize": namespaces.validate_finalized_namespace,
            },
        ),
        ("", "Node"): DocumentRules(
            nodes.validate_node,
            {"": nodes.validate_changed_node, "status": nodes.validate_changed_node_status},
        ),
        ("", "ResourceQuota"): DocumentRules(
            quotas.validate_quota,
            {"": quotas.validate_changed_quota, "status": quotas.validate_changed_quota_status},
        ),
        ("coordination.k8s.io", "Lease"): DocumentRules(
            leases.validate_lease, {"": leases.validate_changed_lease}
        ),
        (_RBAC, "Role"): DocumentRules(rbac.validate_role, {"": rbac.validate_changed_role}),
        (_RBAC, "ClusterRole"): DocumentRules(
            rbac.validate_cluster_role, {"": rbac.validate_changed_cluster_role}
        ),
        (_RBAC, "RoleBinding"): DocumentRules(
            rbac.validate_role_binding, {"": rbac.validate_changed_role_binding}
        ),
        (_RBAC, "ClusterRoleBinding"): DocumentRules(
            rbac.validate_cluster_role_binding, {"": rbac.validate_changed_cluster_role_binding}
        ),
    }
)


def has_document_rules(kind: Kind) -> bool:
    """Whether the documents of a kind have rules."""
    return (kind.group, kind.name) in DOCUMENT_RULES


def validate_new_document(kind: Kind, document: Document) -> list[FieldError]:
    """Return all errors of a new object that its struct does not show."""
    rules = DOCUMENT_RULES.get((kind.group, kind.name))
    return [] if rules is None else list(rules.on_create(document))


def validate_changed_document(
    kind: Kind, new: Document, old: Document, subresource: str = ""
) -> list[FieldError]:
    """Return all errors of a change that the structs of an object do not show."""
    rules = DOCUMENT_RULES.get((kind.group, kind.name))
    rule = None if rules is None else rules.on_change.get(subresource)
    # Two rules may say the same of a change: that the pod is wrong, and that it may not become so.
    return [] if rule is None else list({str(error): error for error in rule(new, old)}.values())
