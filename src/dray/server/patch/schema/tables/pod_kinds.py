"""Pods, and the templates of pods that other kinds carry."""

from __future__ import annotations

from dray.server.patch.schema.field_structure import (
    ALWAYS,
    CONDITIONS,
    MERGE_RETAIN,
    ONE,
    Structure,
    always,
    keyed,
    merged_only,
    rows,
    struct,
)
from dray.server.patch.schema.tables.shared_fragments import METADATA, NODE_SELECTOR, kind

_ENV = struct(
    valueFrom=struct(
        configMapKeyRef=ONE, fieldRef=ONE, fileKeyRef=ONE, resourceFieldRef=ONE, secretKeyRef=ONE
    )
)

RESOURCES: Structure = struct(claims=keyed("name", strategy=()))

_CONTAINER = struct(
    env=keyed("name", of=_ENV),
    envFrom=rows(struct(configMapRef=ONE, secretRef=ONE)),
    ports=keyed("containerPort", "protocol", protocol="TCP"),
    resources=always(RESOURCES),
    volumeDevices=keyed("devicePath"),
    volumeMounts=keyed("mountPath"),
)

VOLUME_HEALTH: Structure = struct(healthConditions=keyed("status", "reason", strategy=()))

CLAIM_SPEC: Structure = struct(dataSource=ONE, resources=ALWAYS, selector=ONE)
"""The spec of a persistent volume claim."""

_SECRET_REF = struct(secretRef=ONE)

_PROJECTED = struct(
    sources=rows(
        struct(
            clusterTrustBundle=struct(labelSelector=ONE),
            downwardAPI=struct(items=rows(struct(fieldRef=ONE, resourceFieldRef=ONE))),
        )
    )
)

_VOLUME = struct(
    cephfs=_SECRET_REF,
    cinder=_SECRET_REF,
    csi=struct(nodePublishSecretRef=ONE),
    downwardAPI=struct(items=rows(struct(fieldRef=ONE, resourceFieldRef=ONE))),
    ephemeral=struct(volumeClaimTemplate=struct(metadata=METADATA, spec=always(CLAIM_SPEC))),
    flexVolume=_SECRET_REF,
    iscsi=_SECRET_REF,
    projected=_PROJECTED,
    rbd=_SECRET_REF,
    scaleIO=_SECRET_REF,
    storageos=_SECRET_REF,
)

_POD_TERM = struct(labelSelector=ONE, namespaceSelector=ONE)

_POD_AFFINITY = struct(
    preferredDuringSchedulingIgnoredDuringExecution=rows(struct(podAffinityTerm=always(_POD_TERM))),
    requiredDuringSchedulingIgnoredDuringExecution=rows(_POD_TERM),
)

_AFFINITY = struct(
    nodeAffinity=struct(
        preferredDuringSchedulingIgnoredDuringExecution=rows(struct(preference=always(ONE))),
        requiredDuringSchedulingIgnoredDuringExecution=NODE_SELECTOR,
    ),
    podAffinity=_POD_AFFINITY,
    podAntiAffinity=_POD_AFFINITY,
)

# `containers` is in every pod, also in one that has none: nobody owns the list for filling it.
POD_SPEC: Structure = struct(
    affinity=_AFFINITY,
    containers=always(keyed("name", of=_CONTAINER)),
    ephemeralContainers=keyed("name", of=_CONTAINER),
    hostAliases=keyed("ip"),
    imagePullSecrets=keyed("name", of=ONE),
    initContainers=keyed("name", of=_CONTAINER),
    nodeSelector=ONE,
    resourceClaims=keyed("name", strategy=MERGE_RETAIN),
    resources=RESOURCES,
    schedulingGates=keyed("name"),
    topologySpreadConstraints=keyed("topologyKey", "whenUnsatisfiable", of=struct(labelSelector=ONE)),
    volumes=keyed("name", of=_VOLUME, strategy=MERGE_RETAIN),
)

_POD_STATUS = struct(
    conditions=CONDITIONS,
    hostIPs=merged_only("ip"),
    podIPs=keyed("ip"),
    resourceClaimStatuses=keyed("name", strategy=MERGE_RETAIN),
    resources=RESOURCES,
    volumeHealth=keyed("name", of=VOLUME_HEALTH, strategy=()),
)

POD: Structure = kind(spec=always(POD_SPEC), status=always(_POD_STATUS))

TEMPLATE: Structure = struct(metadata=METADATA, spec=always(POD_SPEC))
"""A template of pods."""
