"""Which kind has which columns, and tables of them.

Theory of operation: a table is made of the objects as kept; a slice is only glanced at, because most of it is
never shown. Beside its cells a row carries the metadata of its object, the whole object, or nothing, as the
client asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

import msgspec

from dray.api.kinds import Kind
from dray.server.cache import Cache
from dray.server.forms import shown
from dray.server.held import Held
from dray.server.table import cluster, devices, pods, workloads
from dray.server.table.column import AGE, CREATED_AT, NAME, Column, Scene
from dray.server.table.partial import partial

Columns = tuple[Column, ...]

_PLAIN: Final[Columns] = (NAME, AGE)
_DEVICES = "resource.k8s.io"
_CLASSIC = "cdi.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_STORAGE = "storage.k8s.io"

_COLUMNS: Mapping[tuple[str, str], Columns] = MappingProxyType(
    {
        (_DEVICES, "ResourceClaim"): devices.CLAIMS,
        (_DEVICES, "ResourceSlice"): devices.SLICES,
        (_DEVICES, "DeviceClass"): devices.CLASSES,
        (_DEVICES, "ResourceClaimTemplate"): devices.TEMPLATES,
        (_DEVICES, "DeviceTaintRule"): devices.RULES,
        (_CLASSIC, "ResourceClaim"): devices.CLASSIC_CLAIMS,
        (_CLASSIC, "ResourceClass"): devices.CLASSIC_CLASSES,
        ("dray.dev", "Preparation"): devices.PREPARATIONS,
        ("", "Pod"): pods.PODS,
        ("", "Node"): cluster.NODES,
        ("", "Namespace"): cluster.NAMESPACES,
        ("", "Event"): cluster.EVENTS,
        ("events.k8s.io", "Event"): cluster.EVENTS,
        ("", "ResourceQuota"): cluster.QUOTAS,
        ("coordination.k8s.io", "Lease"): cluster.LEASES,
        ("coordination.k8s.io", "LeaseCandidate"): cluster.LEASE_CANDIDATES,
        ("", "ConfigMap"): cluster.CONFIG_MAPS,
        ("", "Secret"): cluster.SECRETS,
        ("", "ServiceAccount"): cluster.SERVICE_ACCOUNTS,
        (_RBAC, "Role"): cluster.ROLES,
        (_RBAC, "ClusterRole"): cluster.ROLES,
        (_RBAC, "RoleBinding"): cluster.BINDINGS,
        (_RBAC, "ClusterRoleBinding"): cluster.BINDINGS,
        ("scheduling.k8s.io", "PriorityClass"): cluster.PRIORITY_CLASSES,
        ("node.k8s.io", "RuntimeClass"): cluster.RUNTIME_CLASSES,
        ("certificates.k8s.io", "CertificateSigningRequest"): cluster.SIGNING_REQUESTS,
        ("apiregistration.k8s.io", "APIService"): cluster.API_SERVICES,
        ("apiextensions.k8s.io", "CustomResourceDefinition"): (NAME, CREATED_AT),
        ("", "LimitRange"): (NAME, CREATED_AT),
        ("", "Service"): workloads.SERVICES,
        ("", "Endpoints"): workloads.ENDPOINTS,
        ("", "ReplicationController"): workloads.REPLICATION_CONTROLLERS,
        ("", "PersistentVolumeClaim"): workloads.VOLUME_CLAIMS,
        ("", "PersistentVolume"): workloads.VOLUMES,
        ("apps", "Deployment"): workloads.DEPLOYMENTS,
        ("apps", "ReplicaSet"): workloads.REPLICA_SETS,
        ("apps", "StatefulSet"): workloads.STATEFUL_SETS,
        ("apps", "DaemonSet"): workloads.DAEMON_SETS,
        ("autoscaling", "HorizontalPodAutoscaler"): workloads.SCALERS,
        ("batch", "Job"): workloads.JOBS,
        ("batch", "CronJob"): workloads.CRON_JOBS,
        ("networking.k8s.io", "Ingress"): workloads.INGRESSES,
        ("networking.k8s.io", "NetworkPolicy"): workloads.POLICIES,
        ("policy", "PodDisruptionBudget"): workloads.BUDGETS,
        (_STORAGE, "StorageClass"): workloads.STORAGE_CLASSES,
        (_STORAGE, "CSINode"): workloads.STORAGE_NODES,
        (_STORAGE, "VolumeAttachment"): workloads.ATTACHMENTS,
    }
)

_READINGS: Mapping[tuple[str, str], Callable[[Held], Any]] = MappingProxyType(
    {(_DEVICES, "ResourceSlice"): devices.SliceGlance.of}
)
"""How objects of a kind are read for their cells, where that is not the whole document."""


def columns(kind: Kind) -> list[dict[str, Any]]:
    """The columns of a kind, as tables define them."""
    return [column.definition for column in _columns(kind)]


def row(
    kind: Kind, held: Held, *, now: datetime, include: str = "Metadata", cache: Cache | None = None
) -> dict[str, Any]:
    """One object as a row. `include` says what comes along: `Metadata`, `Object` or `None`."""
    return _row(kind, held, Scene(now, cache), include)


def table(
    kind: Kind,
    held: Sequence[Held],
    *,
    now: datetime,
    include: str = "Metadata",
    cache: Cache | None = None,
    version: str = "v1",
) -> dict[str, Any]:
    """Objects as a table; the caller adds where the list stands."""
    scene = Scene(now, cache)
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": {},
        "columnDefinitions": columns(kind),
        "rows": [_row(kind, one, scene, include) for one in held],
    }


def _columns(kind: Kind) -> Columns:
    return _COLUMNS.get((kind.group, kind.name), _PLAIN)


def _row(kind: Kind, held: Held, scene: Scene, include: str) -> dict[str, Any]:
    reading = _READINGS.get((kind.group, kind.name))
    glance = held.document if reading is None else reading(held)
    cells = [column.cell(glance, scene) for column in _columns(kind)]
    if include == "None":
        return {"cells": cells}
    if include == "Object":
        return {"cells": cells, "object": msgspec.Raw(shown(kind, kind.version, held))}
    return {"cells": cells, "object": partial(held)}
