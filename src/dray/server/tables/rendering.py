"""Tables: the columns of each kind, and rows of objects.

Theory of operation: a table is rendered from stored objects; a slice is decoded in part, because most of it
is never shown. Besides its cells a row carries the metadata of its object, the whole object, or nothing, as
the client requested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

import msgspec

from dray.api.kinds import Kind
from dray.server.objects.conversion import encode_object
from dray.server.objects.stored_object import StoredObject
from dray.server.tables import cluster_columns, device_columns, pod_columns, workload_columns
from dray.server.tables.columns import AGE, CREATED_AT, NAME, TableColumn, TableContext
from dray.server.tables.partial_metadata import build_partial_metadata
from dray.server.watch.cache import WatchCache

Columns = tuple[TableColumn, ...]

_PLAIN: Final[Columns] = (NAME, AGE)
_DEVICES = "resource.k8s.io"
_CLASSIC = "cdi.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_STORAGE = "storage.k8s.io"

_COLUMNS: Mapping[tuple[str, str], Columns] = MappingProxyType(
    {
        (_DEVICES, "ResourceClaim"): device_columns.CLAIMS,
        (_DEVICES, "ResourceSlice"): device_columns.SLICES,
        (_DEVICES, "DeviceClass"): device_columns.CLASSES,
        (_DEVICES, "ResourceClaimTemplate"): device_columns.TEMPLATES,
        (_DEVICES, "DeviceTaintRule"): device_columns.RULES,
        (_CLASSIC, "ResourceClaim"): device_columns.CLASSIC_CLAIMS,
        (_CLASSIC, "ResourceClass"): device_columns.CLASSIC_CLASSES,
        ("dray.dev", "Preparation"): device_columns.PREPARATIONS,
        ("", "Pod"): pod_columns.PODS,
        ("", "Node"): cluster_columns.NODES,
        ("", "Namespace"): cluster_columns.NAMESPACES,
        ("", "Event"): cluster_columns.EVENTS,
        ("events.k8s.io", "Event"): cluster_columns.EVENTS,
        ("", "ResourceQuota"): cluster_columns.QUOTAS,
        ("coordination.k8s.io", "Lease"): cluster_columns.LEASES,
        ("coordination.k8s.io", "LeaseCandidate"): cluster_columns.LEASE_CANDIDATES,
        ("", "ConfigMap"): cluster_columns.CONFIG_MAPS,
        ("", "Secret"): cluster_columns.SECRETS,
        ("", "ServiceAccount"): cluster_columns.SERVICE_ACCOUNTS,
        (_RBAC, "Role"): cluster_columns.ROLES,
        (_RBAC, "ClusterRole"): cluster_columns.ROLES,
        (_RBAC, "RoleBinding"): cluster_columns.BINDINGS,
        (_RBAC, "ClusterRoleBinding"): cluster_columns.BINDINGS,
        ("scheduling.k8s.io", "PriorityClass"): cluster_columns.PRIORITY_CLASSES,
        ("node.k8s.io", "RuntimeClass"): cluster_columns.RUNTIME_CLASSES,
        ("certificates.k8s.io", "CertificateSigningRequest"): cluster_columns.SIGNING_REQUESTS,
        ("apiregistration.k8s.io", "APIService"): cluster_columns.API_SERVICES,
        ("apiextensions.k8s.io", "CustomResourceDefinition"): (NAME, CREATED_AT),
        ("", "LimitRange"): (NAME, CREATED_AT),
        ("", "Service"): workload_columns.SERVICES,
        ("", "Endpoints"): workload_columns.ENDPOINTS,
        ("", "ReplicationController"): workload_columns.REPLICATION_CONTROLLERS,
        ("", "PersistentVolumeClaim"): workload_columns.VOLUME_CLAIMS,
        ("", "PersistentVolume"): workload_columns.VOLUMES,
        ("apps", "Deployment"): workload_columns.DEPLOYMENTS,
        ("apps", "ReplicaSet"): workload_columns.REPLICA_SETS,
        ("apps", "StatefulSet"): workload_columns.STATEFUL_SETS,
        ("apps", "DaemonSet"): workload_columns.DAEMON_SETS,
        ("autoscaling", "HorizontalPodAutoscaler"): workload_columns.SCALERS,
        ("batch", "Job"): workload_columns.JOBS,
        ("batch", "CronJob"): workload_columns.CRON_JOBS,
        ("networking.k8s.io", "Ingress"): workload_columns.INGRESSES,
        ("networking.k8s.io", "NetworkPolicy"): workload_columns.POLICIES,
        ("policy", "PodDisruptionBudget"): workload_columns.BUDGETS,
        (_STORAGE, "StorageClass"): workload_columns.STORAGE_CLASSES,
        (_STORAGE, "CSINode"): workload_columns.STORAGE_NODES,
        (_STORAGE, "VolumeAttachment"): workload_columns.ATTACHMENTS,
    }
)

_DECODERS: Mapping[tuple[str, str], Callable[[StoredObject], Any]] = MappingProxyType(
    {(_DEVICES, "ResourceSlice"): device_columns.SliceSummary.from_stored}
)
"""How objects of a kind are decoded for their cells, where that is not the whole document."""


def build_column_definitions(kind: Kind) -> list[dict[str, Any]]:
    """Return the column definitions of a kind."""
    return [column.definition for column in _get_columns(kind)]


def build_row(
    kind: Kind,
    stored: StoredObject,
    *,
    now: datetime,
    include: str = "Metadata",
    cache: WatchCache | None = None,
) -> dict[str, Any]:
    """Render one object as a row with its `Metadata`, `Object` or `None`, as `include` says."""
    return _build_row(kind, stored, TableContext(now, cache), include)


def build_table(
    kind: Kind,
    stored: Sequence[StoredObject],
    *,
    now: datetime,
    include: str = "Metadata",
    cache: WatchCache | None = None,
    version: str = "v1",
) -> dict[str, Any]:
    """Render objects as a table; the caller adds the metadata of the list."""
    context = TableContext(now, cache)
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": {},
        "columnDefinitions": build_column_definitions(kind),
        "rows": [_build_row(kind, one, context, include) for one in stored],
    }


def _get_columns(kind: Kind) -> Columns:
    return _COLUMNS.get((kind.group, kind.name), _PLAIN)


def _build_row(kind: Kind, stored: StoredObject, context: TableContext, include: str) -> dict[str, Any]:
    reading = _DECODERS.get((kind.group, kind.name))
    content = stored.document if reading is None else reading(stored)
    cells = [column.render(content, context) for column in _get_columns(kind)]
    if include == "None":
        return {"cells": cells}
    if include == "Object":
        return {"cells": cells, "object": msgspec.Raw(encode_object(kind, kind.version, stored))}
    return {"cells": cells, "object": build_partial_metadata(stored)}
