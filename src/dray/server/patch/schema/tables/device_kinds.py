"""resource.k8s.io, and the kinds of our own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dray.server.patch.schema.field_structure import (
    ALWAYS,
    CONDITIONS,
    Structure,
    always,
    keyed,
    rows,
    set_of_values,
    struct,
)
from dray.server.patch.schema.tables.shared_fragments import METADATA, NODE_SELECTOR, kind

_CLAIM_SPEC = always(struct(devices=ALWAYS))

_DEVICE_STATUS = struct(conditions=keyed("type", strategy=()))

_RESULTS = always(struct(results=rows(struct(skipNodeOperations=set_of_values()))))

_CLAIM_STATUS = always(
    struct(
        allocation=struct(devices=_RESULTS, nodeSelector=NODE_SELECTOR),
        devices=keyed("driver", "device", "pool", "shareID", of=_DEVICE_STATUS, strategy=()),
        reservedFor=keyed("uid"),
    )
)

_SLICE_SPEC = always(
    struct(
        devices=rows(struct(nodeSelector=NODE_SELECTOR, basic=struct(nodeSelector=NODE_SELECTOR))),
        nodeSelector=NODE_SELECTOR,
        pool=ALWAYS,
        skipNodeOperations=set_of_values(),
    )
)

_RULE_SPEC = always(struct(taint=ALWAYS))

DEVICES: Mapping[tuple[str, str], Structure] = MappingProxyType(
    {
        ("resource.k8s.io", "DeviceClass"): kind(spec=ALWAYS),
        ("resource.k8s.io", "ResourceClaim"): kind(spec=_CLAIM_SPEC, status=_CLAIM_STATUS),
        ("resource.k8s.io", "ResourceClaimTemplate"): kind(
            spec=always(struct(metadata=METADATA, spec=_CLAIM_SPEC))
        ),
        ("resource.k8s.io", "ResourceSlice"): kind(spec=_SLICE_SPEC),
        ("resource.k8s.io", "DeviceTaintRule"): kind(
            spec=_RULE_SPEC, status=always(struct(conditions=CONDITIONS))
        ),
        ("cdi.k8s.io", "ResourceClass"): kind(suitableNodes=NODE_SELECTOR),
        ("cdi.k8s.io", "ResourceClaim"): kind(spec=ALWAYS, status=always(struct(reservedFor=keyed("uid")))),
        ("dray.dev", "Preparation"): kind(spec=always(struct(claim=ALWAYS))),
    }
)
