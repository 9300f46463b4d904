"""Claims and slices as the guard keeps them: what they hold and what they publish, without the rest.

They are the transforms of the guard's informers, so that a cluster with many claims takes little memory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from dray.api.resource import ResourceClaim, ResourceSlice
from dray.claims.ledger.grants import list_holdings
from dray.claims.ledger.published_devices import Source, StoredSlice
from dray.claims.ledger.published_pools import PoolId, PublishedPoolIndex
from dray.claims.ledger.rows import DeviceId, Holder, Holding
from dray.guard.admitted import HeldDevices


@dataclass(frozen=True, slots=True)
class PodReference:
    """A pod that a claim is reserved for."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class SeenClaim:
    """A claim at a revision."""

    holder: Holder
    revision: int
    is_allocated: bool = False
    holdings: HeldDevices = ()
    pods: tuple[PodReference, ...] = ()
    """The pods that it is reserved for."""


@dataclass(frozen=True, slots=True)
class SeenSlice:
    """A slice at a revision."""

    pool: PoolId
    source: Source
    published: StoredSlice


def build_seen_claim(claim: ResourceClaim) -> SeenClaim:
    """Keep what counts of a claim."""
    metadata, allocation = claim.metadata, claim.status.allocation
    holder = Holder(namespace=sys.intern(metadata.namespace), name=metadata.name, uid=metadata.uid)
    revision = int(metadata.resource_version)
    if allocation is None:
        return SeenClaim(holder, revision)
    pods = tuple(
        PodReference(metadata.namespace, user.name, user.uid)
        for user in claim.status.reserved_for
        if user.resource == "pods" and not user.api_group
    )
    held = tuple(map(_intern_names, list_holdings(holder, allocation.devices.results)))
    return SeenClaim(holder, revision, is_allocated=True, holdings=held, pods=pods)


def _intern_names(held: tuple[DeviceId, Holding]) -> tuple[DeviceId, Holding]:
    (driver, pool, device), holding = held
    return DeviceId(sys.intern(driver), sys.intern(pool), device), holding


def list_published(slices: Iterable[ResourceSlice]) -> set[DeviceId]:
    """The devices that slices publish, as the ledger would read them."""
    pools: PublishedPoolIndex[StoredSlice] = PublishedPoolIndex(lambda stored: stored)
    found: dict[PoolId, None] = {}
    for seen in map(build_seen_slice, slices):
        pools.put(seen.pool, seen.source, seen.published)
        found[seen.pool] = None
    return {DeviceId(*pool, name) for pool in found for name in pools(pool).devices}


def build_seen_slice(published: ResourceSlice) -> SeenSlice:
    """Keep what counts of a slice."""
    metadata, spec = published.metadata, published.spec
    stored: Any = msgspec.convert(published, StoredSlice, from_attributes=True)
    source = (metadata.name.encode(), int(metadata.resource_version))
    return SeenSlice((spec.driver, spec.pool.name), source, stored)
