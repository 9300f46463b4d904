"""Structures of the core group except pods, and of RBAC, coordination and events."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dray.server.patch.schema.field_structure import (
    ALWAYS_PRESENT_MAP,
    ATOMIC_MAP,
    CONDITIONS,
    MERGE,
    Structure,
    define_atomic_list,
    define_keyed_list,
    define_set,
    define_struct,
    make_always_present,
)
from dray.server.patch.schema.tables.pod_kinds import CLAIM_SPEC, POD, TEMPLATE, VOLUME_HEALTH
from dray.server.patch.schema.tables.shared_fragments import METADATA, NODE_SELECTOR, define_kind

_WITH_CONDITIONS = make_always_present(define_struct(conditions=CONDITIONS))

_NODE_CONFIG = define_struct(configMap=define_struct())

_NODE = define_kind(
    spec=make_always_present(
        define_struct(
            configSource=_NODE_CONFIG,
            podCIDRs=define_set(MERGE),
            podPreemptionPolicy=define_struct(disableResizePreemption=define_set()),
        )
    ),
    status=make_always_present(
        define_struct(
            addresses=define_keyed_list("type"),
            conditions=CONDITIONS,
            config=define_struct(active=_NODE_CONFIG, assigned=_NODE_CONFIG, lastKnownGood=_NODE_CONFIG),
            daemonEndpoints=make_always_present(define_struct(kubeletEndpoint=ALWAYS_PRESENT_MAP)),
            nodeInfo=ALWAYS_PRESENT_MAP,
        )
    ),
)

_SERVICE = define_kind(
    spec=make_always_present(
        define_struct(ports=define_keyed_list("port", "protocol", protocol="TCP"), selector=ATOMIC_MAP)
    ),
    status=make_always_present(define_struct(conditions=CONDITIONS, loadBalancer=ALWAYS_PRESENT_MAP)),
)

_SECRET_REF = define_struct(secretRef=ATOMIC_MAP)

_VOLUME_SPEC = define_struct(
    cephfs=_SECRET_REF,
    cinder=_SECRET_REF,
    claimRef=define_struct(),
    csi=define_struct(
        controllerExpandSecretRef=ATOMIC_MAP,
        controllerPublishSecretRef=ATOMIC_MAP,
        nodeExpandSecretRef=ATOMIC_MAP,
        nodePublishSecretRef=ATOMIC_MAP,
        nodeStageSecretRef=ATOMIC_MAP,
    ),
    flexVolume=_SECRET_REF,
    iscsi=_SECRET_REF,
    nodeAffinity=define_struct(required=NODE_SELECTOR),
    rbd=_SECRET_REF,
    scaleIO=_SECRET_REF,
    storageos=define_struct(secretRef=ATOMIC_MAP),
)

_EVENT = define_kind(
    deprecatedSource=ALWAYS_PRESENT_MAP,
    involvedObject=make_always_present(ATOMIC_MAP),
    regarding=make_always_present(ATOMIC_MAP),
    related=ATOMIC_MAP,
    source=ALWAYS_PRESENT_MAP,
)

_RBAC = "rbac.authorization.k8s.io"

_BINDING = define_kind(roleRef=make_always_present(ATOMIC_MAP), subjects=define_atomic_list(ATOMIC_MAP))

CORE: Mapping[tuple[str, str], Structure] = MappingProxyType(
    {
        ("", "Pod"): POD,
        ("", "Node"): _NODE,
        ("", "Namespace"): define_kind(spec=ALWAYS_PRESENT_MAP, status=_WITH_CONDITIONS),
        ("", "Service"): _SERVICE,
        ("", "Event"): _EVENT,
        ("events.k8s.io", "Event"): _EVENT,
        ("", "ConfigMap"): define_kind(),
        ("", "Secret"): define_kind(),
        ("", "ServiceAccount"): define_kind(
            imagePullSecrets=define_atomic_list(ATOMIC_MAP), secrets=define_keyed_list("name", of=ATOMIC_MAP)
        ),
        ("", "ResourceQuota"): define_kind(
            spec=make_always_present(define_struct(scopeSelector=ATOMIC_MAP)), status=ALWAYS_PRESENT_MAP
        ),
        ("", "LimitRange"): define_kind(spec=ALWAYS_PRESENT_MAP),
        ("", "Endpoints"): define_kind(),
        ("", "PodTemplate"): define_kind(template=make_always_present(TEMPLATE)),
        ("", "ReplicationController"): define_kind(
            spec=make_always_present(define_struct(selector=ATOMIC_MAP, template=TEMPLATE)),
            status=_WITH_CONDITIONS,
        ),
        ("", "PersistentVolumeClaim"): define_kind(
            spec=make_always_present(CLAIM_SPEC),
            status=make_always_present(define_struct(conditions=CONDITIONS, healthStatus=VOLUME_HEALTH)),
        ),
        ("", "PersistentVolume"): define_kind(
            spec=make_always_present(_VOLUME_SPEC), status=ALWAYS_PRESENT_MAP
        ),
        ("coordination.k8s.io", "Lease"): define_kind(spec=ALWAYS_PRESENT_MAP),
        ("coordination.k8s.io", "LeaseCandidate"): define_kind(spec=ALWAYS_PRESENT_MAP),
        (_RBAC, "Role"): define_kind(),
        (_RBAC, "ClusterRole"): define_kind(
            aggregationRule=define_struct(clusterRoleSelectors=define_atomic_list(ATOMIC_MAP))
        ),
        (_RBAC, "RoleBinding"): _BINDING,
        (_RBAC, "ClusterRoleBinding"): _BINDING,
    }
)

CLAIM_TEMPLATE: Structure = define_struct(
    metadata=METADATA, spec=make_always_present(CLAIM_SPEC), status=_WITH_CONDITIONS
)
"""A persistent volume claim inside another object."""
