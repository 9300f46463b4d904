"""Reads a cluster from its server: everything that decides where pods go, once, as a bundle."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Node, Pod
from dray.api.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dray.client.client import Client
from dray.client.object_refs import resolve_kind
from dray.cluster.live.access import (
    AccessGap,
    ReadableObjects,
    describe_gaps,
    describe_unserved,
    find_served_versions,
    list_readable,
)
from dray.simulation.bundle import Bundle, name_nodes_of_slices

SNAPSHOT_TYPES: tuple[type[msgspec.Struct], ...] = (
    Node,
    ResourceSlice,
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
    Pod,
    ClassicResourceClaim,
    DeviceTaintRule,
)
"""What decides where pods go, and so what the role `dray:viewer` reads."""


@dataclass(frozen=True, slots=True)
class LiveSnapshot:
    """A cluster as one user can read it; `bundle.remarks` say in words what is missing."""

    bundle: Bundle
    gaps: tuple[AccessGap, ...] = ()
    serves_devices: bool = True

    def is_readable(self, kind: type[msgspec.Struct], namespace: str = "") -> bool:
        """Whether all objects of a kind, or all of them in a namespace, are in the bundle."""
        row = resolve_kind(kind)
        return all(gap.kind is not row or (namespace in gap.namespaces) for gap in self.gaps)

    @property
    def can_list_devices(self) -> bool:
        """Whether devices could be read."""
        return self.serves_devices and self.is_readable(ResourceSlice)

    @property
    def shows_devices(self) -> bool:
        """Whether devices and their classes could be read, without which no search has an answer."""
        return self.can_list_devices and self.is_readable(DeviceClass)


async def read_snapshot(client: Client, namespaces: Sequence[str] = ()) -> LiveSnapshot:
    """Read the cluster. Kinds are read concurrently, so the cluster may change in between.

    A user without rights in the whole cluster gets what can be read in the namespaces given.
    """
    listed = await asyncio.gather(*(_list_objects(client, kind, namespaces) for kind in SNAPSHOT_TYPES))
    found: dict[type[msgspec.Struct], ReadableObjects] = dict(zip(SNAPSHOT_TYPES, listed, strict=True))
    gaps = tuple(readable.gap for readable in listed if readable.gap is not None)
    serves_devices = found[ResourceSlice].is_served
    remarks: list[str] = []
    if not serves_devices:
        served = await find_served_versions(client)
        remarks.append(describe_unserved(resolve_kind(ResourceSlice), served))
    remarks += describe_gaps(gaps)

    def get_items(kind: type[msgspec.Struct]) -> tuple[Any, ...]:
        return found[kind].items

    nodes, slices = get_items(Node), get_items(ResourceSlice)
    if found[Node].gap is not None:
        nodes = name_nodes_of_slices(slices)
        if nodes:
            remarks.append("nodes are those that slices name; their labels, taints and resources are unknown")
    bundle = Bundle(
        nodes=tuple(sorted(nodes, key=lambda node: node.metadata.name)),
        slices=slices,
        classes=get_items(DeviceClass),
        claims=get_items(ResourceClaim),
        templates=get_items(ResourceClaimTemplate),
        pods=get_items(Pod),
        classic_claims=get_items(ClassicResourceClaim),
        rules=get_items(DeviceTaintRule),
        remarks=tuple(remarks),
    )
    return LiveSnapshot(bundle, gaps, serves_devices)


async def _list_objects(
    client: Client, kind: type[msgspec.Struct], namespaces: Sequence[str]
) -> ReadableObjects:
    async def list_in(namespace: str) -> Sequence[object]:
        return (await client.list(kind, namespace)).items

    return await list_readable(client, resolve_kind(kind), list_in, namespaces)
