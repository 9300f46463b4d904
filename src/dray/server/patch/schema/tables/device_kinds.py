"""Structures of resource.k8s.io, and of the kinds of dray."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dray.server.patch.schema.field_structure import (
    ALWAYS_PRESENT_MAP,
    CONDITIONS,
    Structure,
    define_atomic_list,
    define_keyed_list,
    define_set,
    define_struct,
    make_always_present,
)
from dray.server.patch.schema.tables.shared_fragments import METADATA, NODE_SELECTOR, define_kind

_CLAIM_SPEC = make_always_present(define_struct(devices=ALWAYS_PRESENT_MAP))

_DEVICE_STATUS = define_struct(conditions=define_keyed_list("type", strategy=()))

_RESULTS = make_always_present(
    define_struct(results=define_atomic_list(define_struct(skipNodeOperations=define_set())))
)

_CLAIM_STATUS = make_always_present(
    define_struct(
        allocation=define_struct(devices=_RESULTS, nodeSelector=NODE_SELECTOR),
        devices=define_keyed_list("driver", "device", "pool", "shareID", of=_DEVICE_STATUS, strategy=()),
        reservedFor=define_keyed_list("uid"),
    )
)

_SLICE_SPEC = make_always_present(
    define_struct(
        devices=define_atomic_list(
            define_struct(nodeSelector=NODE_SELECTOR, basic=define_struct(nodeSelector=NODE_SELECTOR))
        ),
        nodeSelector=NODE_SELECTOR,
        pool=ALWAYS_PRESENT_MAP,
        skipNodeOperations=define_set(),
    )
)

_RULE_SPEC = make_always_present(define_struct(taint=ALWAYS_PRESENT_MAP))

DEVICES: Mapping[tuple[str, str], Structure] = MappingProxyType(
    {
        ("resource.k8s.io", "DeviceClass"): define_kind(spec=ALWAYS_PRESENT_MAP),
        ("resource.k8s.io", "ResourceClaim"): define_kind(spec=_CLAIM_SPEC, status=_CLAIM_STATUS),
        ("resource.k8s.io", "ResourceClaimTemplate"): define_kind(
            spec=make_always_present(define_struct(metadata=METADATA, spec=_CLAIM_SPEC))
        ),
        ("resource.k8s.io", "ResourceSlice"): define_kind(spec=_SLICE_SPEC),
        ("resource.k8s.io", "DeviceTaintRule"): define_kind(
            spec=_RULE_SPEC, status=make_always_present(define_struct(conditions=CONDITIONS))
        ),
        ("cdi.k8s.io", "ResourceClass"): define_kind(suitableNodes=NODE_SELECTOR),
        ("cdi.k8s.io", "ResourceClaim"): define_kind(
            spec=ALWAYS_PRESENT_MAP,
            status=make_always_present(define_struct(reservedFor=define_keyed_list("uid"))),
        ),
        ("dray.dev", "Preparation"): define_kind(
            spec=make_always_present(define_struct(claim=ALWAYS_PRESENT_MAP))
        ),
    }
)
