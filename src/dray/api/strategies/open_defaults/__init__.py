"""Defaults of open kinds, as tables of rows on documents.

Contains one table per kind (`OPEN_DEFAULTS`) and the walk that applies it; kinds without a table have no
defaults. Must not contain admission, validation or defaults that need another object; they are in the server.
The server's write path and the reference may import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from dray.api.kinds import Kind
from dray.api.strategies.open_defaults import cluster, networking, volumes, workloads
from dray.api.strategies.open_defaults.plan import DocumentDefaultsPlan
from dray.api.strategies.open_defaults.pods import POD_ROWS
from dray.api.strategies.open_defaults.rows import DefaultsRow, DocumentDefault, DocumentRewrite

__all__ = ["OPEN_DEFAULTS", "DefaultsRow", "DocumentDefault", "DocumentRewrite", "apply_open_defaults"]

_ADMISSION = "admissionregistration.k8s.io"
_CERTIFICATES = "certificates.k8s.io"
_FLOW = "flowcontrol.apiserver.k8s.io"
_NETWORK = "networking.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_STORAGE = "storage.k8s.io"

OPEN_DEFAULTS: Mapping[tuple[str, str], tuple[DefaultsRow, ...]] = MappingProxyType(
    {
        ("", "Pod"): POD_ROWS,
        ("", "Node"): cluster.NODE_ROWS,
        ("", "Namespace"): cluster.NAMESPACE_ROWS,
        ("", "Event"): cluster.EVENT_ROWS,
        ("", "Secret"): cluster.SECRET_ROWS,
        ("", "ResourceQuota"): cluster.STATUS_ROWS,
        ("", "LimitRange"): cluster.LIMIT_RANGE_ROWS,
        ("", "Service"): networking.SERVICE_ROWS,
        ("", "Endpoints"): networking.ENDPOINTS_ROWS,
        ("", "PersistentVolume"): volumes.VOLUME_ROWS,
        ("", "PersistentVolumeClaim"): volumes.VOLUME_CLAIM_ROWS,
        ("", "PodTemplate"): workloads.POD_TEMPLATE_OBJECT_ROWS,
        ("", "ReplicationController"): workloads.REPLICATION_CONTROLLER_ROWS,
        ("apps", "DaemonSet"): workloads.DAEMON_SET_ROWS,
        ("apps", "Deployment"): workloads.DEPLOYMENT_ROWS,
        ("apps", "ReplicaSet"): workloads.REPLICA_SET_ROWS,
        ("apps", "StatefulSet"): workloads.STATEFUL_SET_ROWS,
        ("autoscaling", "HorizontalPodAutoscaler"): workloads.AUTOSCALER_ROWS,
        ("batch", "CronJob"): workloads.CRON_JOB_ROWS,
        ("batch", "Job"): workloads.JOB_ROWS,
        ("policy", "PodDisruptionBudget"): workloads.DISRUPTION_BUDGET_ROWS,
        ("scheduling.k8s.io", "PodGroup"): workloads.POD_GROUP_ROWS,
        ("scheduling.k8s.io", "PriorityClass"): workloads.PRIORITY_CLASS_ROWS,
        ("coordination.k8s.io", "Lease"): cluster.LEASE_ROWS,
        ("discovery.k8s.io", "EndpointSlice"): networking.ENDPOINT_SLICE_ROWS,
        (_NETWORK, "Ingress"): networking.INGRESS_ROWS,
        (_NETWORK, "IngressClass"): networking.INGRESS_CLASS_ROWS,
        (_NETWORK, "NetworkPolicy"): networking.NETWORK_POLICY_ROWS,
        (_NETWORK, "ServiceCIDR"): networking.SERVICE_CIDR_ROWS,
        (_RBAC, "RoleBinding"): cluster.BINDING_ROWS,
        (_RBAC, "ClusterRoleBinding"): cluster.BINDING_ROWS,
        (_STORAGE, "CSIDriver"): volumes.CSI_DRIVER_ROWS,
        (_STORAGE, "StorageClass"): volumes.STORAGE_CLASS_ROWS,
        (_STORAGE, "VolumeAttachment"): volumes.VOLUME_ATTACHMENT_ROWS,
        (_ADMISSION, "ValidatingAdmissionPolicy"): cluster.ADMISSION_POLICY_ROWS,
        (_ADMISSION, "ValidatingAdmissionPolicyBinding"): cluster.ADMISSION_POLICY_BINDING_ROWS,
        (_CERTIFICATES, "CertificateSigningRequest"): cluster.STATUS_ROWS,
        (_CERTIFICATES, "PodCertificateRequest"): cluster.POD_CERTIFICATE_ROWS,
        (_FLOW, "FlowSchema"): cluster.FLOW_SCHEMA_ROWS,
        (_FLOW, "PriorityLevelConfiguration"): cluster.PRIORITY_LEVEL_ROWS,
        ("apiextensions.k8s.io", "CustomResourceDefinition"): cluster.CUSTOM_RESOURCE_DEFINITION_ROWS,
        ("apiregistration.k8s.io", "APIService"): cluster.API_SERVICE_ROWS,
        ("storagemigration.k8s.io", "StorageVersionMigration"): cluster.STATUS_ROWS,
    }
)
"""The defaults of each open kind, by group and name."""


def apply_open_defaults(
    kind: Kind, document: dict[str, Any], stored: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the document with the defaults of its kind; the same document when nothing was unset.

    Parts that are the very same object as in the stored document are skipped.
    """
    plan = _get_plan(kind)
    return document if plan is None else plan.fill(document, stored)


@lru_cache(maxsize=256)
def _get_plan(kind: Kind) -> DocumentDefaultsPlan | None:
    rows = OPEN_DEFAULTS.get(kind.stored_as or (kind.group, kind.name))
    return None if rows is None else DocumentDefaultsPlan.build(rows)
