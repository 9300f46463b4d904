"""Structures of pods, and of the pod templates of other kinds."""

from __future__ import annotations

from dray.server.patch.schema.field_structure import (
    ALWAYS_PRESENT_MAP,
    ATOMIC_MAP,
    CONDITIONS,
    MERGE_RETAIN,
    Structure,
    define_atomic_list,
    define_keyed_list,
    define_merged_list,
    define_struct,
    make_always_present,
)
from dray.server.patch.schema.tables.shared_fragments import METADATA, NODE_SELECTOR, define_kind

_ENV = define_struct(
    valueFrom=define_struct(
        configMapKeyRef=ATOMIC_MAP,
        fieldRef=ATOMIC_MAP,
        fileKeyRef=ATOMIC_MAP,
        resourceFieldRef=ATOMIC_MAP,
        secretKeyRef=ATOMIC_MAP,
    )
)

RESOURCES: Structure = define_struct(claims=define_keyed_list("name", strategy=()))

_CONTAINER = define_struct(
    env=define_keyed_list("name", of=_ENV),
    envFrom=define_atomic_list(define_struct(configMapRef=ATOMIC_MAP, secretRef=ATOMIC_MAP)),
    ports=define_keyed_list("containerPort", "protocol", protocol="TCP"),
    resources=make_always_present(RESOURCES),
    volumeDevices=define_keyed_list("devicePath"),
    volumeMounts=define_keyed_list("mountPath"),
)

VOLUME_HEALTH: Structure = define_struct(healthConditions=define_keyed_list("status", "reason", strategy=()))

CLAIM_SPEC: Structure = define_struct(
    dataSource=ATOMIC_MAP, resources=ALWAYS_PRESENT_MAP, selector=ATOMIC_MAP
)
"""The spec of a persistent volume claim."""

_SECRET_REF = define_struct(secretRef=ATOMIC_MAP)

_PROJECTED = define_struct(
    sources=define_atomic_list(
        define_struct(
            clusterTrustBundle=define_struct(labelSelector=ATOMIC_MAP),
            downwardAPI=define_struct(
                items=define_atomic_list(define_struct(fieldRef=ATOMIC_MAP, resourceFieldRef=ATOMIC_MAP))
            ),
        )
    )
)

_VOLUME = define_struct(
    cephfs=_SECRET_REF,
    cinder=_SECRET_REF,
    csi=define_struct(nodePublishSecretRef=ATOMIC_MAP),
    downwardAPI=define_struct(
        items=define_atomic_list(define_struct(fieldRef=ATOMIC_MAP, resourceFieldRef=ATOMIC_MAP))
    ),
    ephemeral=define_struct(
        volumeClaimTemplate=define_struct(metadata=METADATA, spec=make_always_present(CLAIM_SPEC))
    ),
    flexVolume=_SECRET_REF,
    iscsi=_SECRET_REF,
    projected=_PROJECTED,
    rbd=_SECRET_REF,
    scaleIO=_SECRET_REF,
    storageos=_SECRET_REF,
)

_POD_TERM = define_struct(labelSelector=ATOMIC_MAP, namespaceSelector=ATOMIC_MAP)

_POD_AFFINITY = define_struct(
    preferredDuringSchedulingIgnoredDuringExecution=define_atomic_list(
        define_struct(podAffinityTerm=make_always_present(_POD_TERM))
    ),
    requiredDuringSchedulingIgnoredDuringExecution=define_atomic_list(_POD_TERM),
)

_AFFINITY = define_struct(
    nodeAffinity=define_struct(
        preferredDuringSchedulingIgnoredDuringExecution=define_atomic_list(
            define_struct(preference=make_always_present(ATOMIC_MAP))
        ),
        requiredDuringSchedulingIgnoredDuringExecution=NODE_SELECTOR,
    ),
    podAffinity=_POD_AFFINITY,
    podAntiAffinity=_POD_AFFINITY,
)

# `containers` is present in every pod, also in one that has none: nobody owns the list for filling it.
POD_SPEC: Structure = define_struct(
    affinity=_AFFINITY,
    containers=make_always_present(define_keyed_list("name", of=_CONTAINER)),
    ephemeralContainers=define_keyed_list("name", of=_CONTAINER),
    hostAliases=define_keyed_list("ip"),
    imagePullSecrets=define_keyed_list("name", of=ATOMIC_MAP),
    initContainers=define_keyed_list("name", of=_CONTAINER),
    nodeSelector=ATOMIC_MAP,
    resourceClaims=define_keyed_list("name", strategy=MERGE_RETAIN),
    resources=RESOURCES,
    schedulingGates=define_keyed_list("name"),
    topologySpreadConstraints=define_keyed_list(
        "topologyKey", "whenUnsatisfiable", of=define_struct(labelSelector=ATOMIC_MAP)
    ),
    volumes=define_keyed_list("name", of=_VOLUME, strategy=MERGE_RETAIN),
)

_POD_STATUS = define_struct(
    conditions=CONDITIONS,
    hostIPs=define_merged_list("ip"),
    podIPs=define_keyed_list("ip"),
    resourceClaimStatuses=define_keyed_list("name", strategy=MERGE_RETAIN),
    resources=RESOURCES,
    volumeHealth=define_keyed_list("name", of=VOLUME_HEALTH, strategy=()),
)

POD: Structure = define_kind(spec=make_always_present(POD_SPEC), status=make_always_present(_POD_STATUS))

TEMPLATE: Structure = define_struct(metadata=METADATA, spec=make_always_present(POD_SPEC))
"""A template of pods."""
