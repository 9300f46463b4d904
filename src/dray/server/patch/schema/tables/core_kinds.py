"""The kinds of the core group beside pods, and those of RBAC, coordination and events."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dray.server.patch.schema.field_structure import (
    ALWAYS,
    CONDITIONS,
    MERGE,
    ONE,
    Structure,
    always,
    keyed,
    rows,
    set_of_values,
    struct,
)
from dray.server.patch.schema.tables.pod_kinds import CLAIM_SPEC, POD, TEMPLATE, VOLUME_HEALTH
from dray.server.patch.schema.tables.shared_fragments import METADATA, NODE_SELECTOR, kind

_WITH_CONDITIONS = always(struct(conditions=CONDITIONS))

_NODE_CONFIG = struct(configMap=struct())

_NODE = kind(
    spec=always(
        struct(
            configSource=_NODE_CONFIG,
            podCIDRs=set_of_values(MERGE),
            podPreemptionPolicy=struct(disableResizePreemption=set_of_values()),
        )
    ),
    status=always(
        struct(
            addresses=keyed("type"),
            conditions=CONDITIONS,
            config=struct(active=_NODE_CONFIG, assigned=_NODE_CONFIG, lastKnownGood=_NODE_CONFIG),
            daemonEndpoints=always(struct(kubeletEndpoint=ALWAYS)),
            nodeInfo=ALWAYS,
        )
    ),
)

_SERVICE = kind(
    spec=always(struct(ports=keyed("port", "protocol", protocol="TCP"), selector=ONE)),
    status=always(struct(conditions=CONDITIONS, loadBalancer=ALWAYS)),
)

_SECRET_REF = struct(secretRef=ONE)

_VOLUME_SPEC = struct(
    cephfs=_SECRET_REF,
    cinder=_SECRET_REF,
    claimRef=struct(),
    csi=struct(
        controllerExpandSecretRef=ONE,
        controllerPublishSecretRef=ONE,
        nodeExpandSecretRef=ONE,
        nodePublishSecretRef=ONE,
        nodeStageSecretRef=ONE,
    ),
    flexVolume=_SECRET_REF,
    iscsi=_SECRET_REF,
    nodeAffinity=struct(required=NODE_SELECTOR),
    rbd=_SECRET_REF,
    scaleIO=_SECRET_REF,
    storageos=struct(secretRef=ONE),
)

_EVENT = kind(
    deprecatedSource=ALWAYS,
    involvedObject=always(ONE),
    regarding=always(ONE),
    related=ONE,
    source=ALWAYS,
)

_RBAC = "rbac.authorization.k8s.io"

_BINDING = kind(roleRef=always(ONE), subjects=rows(ONE))

CORE: Mapping[tuple[str, str], Structure] = MappingProxyType(
    {
        ("", "Pod"): POD,
        ("", "Node"): _NODE,
        ("", "Namespace"): kind(spec=ALWAYS, status=_WITH_CONDITIONS),
        ("", "Service"): _SERVICE,
        ("", "Event"): _EVENT,
        ("events.k8s.io", "Event"): _EVENT,
        ("", "ConfigMap"): kind(),
        ("", "Secret"): kind(),
        ("", "ServiceAccount"): kind(imagePullSecrets=rows(ONE), secrets=keyed("name", of=ONE)),
        ("", "ResourceQuota"): kind(spec=always(struct(scopeSelector=ONE)), status=ALWAYS),
        ("", "LimitRange"): kind(spec=ALWAYS),
        ("", "Endpoints"): kind(),
        ("", "PodTemplate"): kind(template=always(TEMPLATE)),
        ("", "ReplicationController"): kind(
            spec=always(struct(selector=ONE, template=TEMPLATE)), status=_WITH_CONDITIONS
        ),
        ("", "PersistentVolumeClaim"): kind(
            spec=always(CLAIM_SPEC),
            status=always(struct(conditions=CONDITIONS, healthStatus=VOLUME_HEALTH)),
        ),
        ("", "PersistentVolume"): kind(spec=always(_VOLUME_SPEC), status=ALWAYS),
        ("coordination.k8s.io", "Lease"): kind(spec=ALWAYS),
        ("coordination.k8s.io", "LeaseCandidate"): kind(spec=ALWAYS),
        (_RBAC, "Role"): kind(),
        (_RBAC, "ClusterRole"): kind(aggregationRule=struct(clusterRoleSelectors=rows(ONE))),
        (_RBAC, "RoleBinding"): _BINDING,
        (_RBAC, "ClusterRoleBinding"): _BINDING,
    }
)

CLAIM_TEMPLATE: Structure = struct(metadata=METADATA, spec=always(CLAIM_SPEC), status=_WITH_CONDITIONS)
"""A persistent volume claim inside another object."""
