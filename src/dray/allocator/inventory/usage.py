"""Device usage: devices allocated as a whole, and shares with their amounts, pool by pool.

Theory of operation: usage is read from the allocations of claims. Admin access uses nothing. A result with a
share ID or consumed amounts is a share; any other result uses its device as a whole. Which of the two blocks
a device is decided where the device is seen (its flag may have changed since). A pool that is not touched
keeps its object, so that whatever was derived from it stays valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dray.allocator.requests import format_claim_name
from dray.api.resource import ResourceClaim
from dray.values.mapping_copies import copy_mapping

PoolId = tuple[str, str]
"""Driver and pool."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolUsage:
    """Usage of one pool; amounts are nanos, summed over all shares of a device.

    `extra_holders` are further claims with the same whole device: that is an error made elsewhere, and when
    one of them is released the device is still in use.
    """

    whole: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    holders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    extra_holders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def devices(self) -> frozenset[str]:
        """The devices in use, whole or in part."""
        return frozenset(self.whole) | frozenset(self.shares)


NO_USAGE = PoolUsage()


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """Usage of all pools."""

    pools: Mapping[PoolId, PoolUsage] = field(default_factory=lambda: MappingProxyType({}))

    def get_pool(self, pool: PoolId) -> PoolUsage:
        """The usage of one pool."""
        return self.pools.get(pool, NO_USAGE)

    @classmethod
    def from_claims(cls, claims: Iterable[ResourceClaim]) -> DeviceUsage:
        """The usage of the allocations of these claims."""
        return cls().add_claims(claims)

    def add_claims(self, claims: Iterable[ResourceClaim]) -> DeviceUsage:
        """This usage with the allocations of more claims."""
        return self._apply(claims, _PoolUsageBuilder.add)

    def remove_claims(self, claims: Iterable[ResourceClaim]) -> DeviceUsage:
        """This usage without the allocations of these claims."""
        return self._apply(claims, _PoolUsageBuilder.remove)

    def _apply(
        self,
        claims: Iterable[ResourceClaim],
        change: Callable[[_PoolUsageBuilder, str, str, Mapping[str, int] | None], None],
    ) -> DeviceUsage:
        touched: dict[PoolId, _PoolUsageBuilder] = {}
        for claim in claims:
            if claim.status.allocation is None:
                continue
            holder = format_claim_name(claim)
            for result in claim.status.allocation.devices.results:
                if result.admin_access:
                    continue
                pool = (result.driver, result.pool)
                draft = touched.get(pool) or touched.setdefault(pool, _PoolUsageBuilder(self.get_pool(pool)))
                # A negative amount was stored by mistake; it must not add to what others can take.
                amounts = {name: max(amount.nanos, 0) for name, amount in result.consumed_capacity.items()}
                shared = result.share_id is not None or bool(amounts)
                change(draft, result.device, holder, amounts if shared else None)
        if not touched:
            return self
        pools = copy_mapping(self.pools)
        for pool, draft in touched.items():
            usage = draft.build()
            if usage.holders:
                pools[pool] = usage
            else:
                pools.pop(pool, None)
        return DeviceUsage(pools)


class _PoolUsageBuilder:
    """The usage of a pool while it is being changed."""

    def __init__(self, current: PoolUsage) -> None:
        self._whole = dict(current.whole)
        self._shares = {device: dict(amounts) for device, amounts in current.shares.items()}
        self._holders = dict(current.holders)
        self._extra_holders = dict(current.extra_holders)

    def add(self, device: str, holder: str, amounts: Mapping[str, int] | None) -> None:
        self._holders[device] = (*self._holders.get(device, ()), holder)
        if amounts is None:
            if device in self._whole:
                self._extra_holders[device] = (*self._extra_holders.get(device, ()), self._whole[device])
            self._whole[device] = holder
            return
        held = self._shares.setdefault(device, {})
        for name, nanos in amounts.items():
            held[name] = held.get(name, 0) + nanos

    def remove(self, device: str, holder: str, amounts: Mapping[str, int] | None) -> None:
        others = list(self._holders.get(device, ()))
        if holder not in others:
            return
        others.remove(holder)
        if others:
            self._holders[device] = tuple(others)
        else:
            del self._holders[device]
        if amounts is None:
            self._remove_whole(device, holder)
        else:
            self._remove_share(device, amounts, len(others))

    def _remove_whole(self, device: str, holder: str) -> None:
        wholly = [*self._extra_holders.pop(device, ()), self._whole.pop(device)]
        wholly.remove(holder)
        if wholly:
            self._whole[device] = wholly.pop()
        if wholly:
            self._extra_holders[device] = tuple(wholly)

    def _remove_share(self, device: str, amounts: Mapping[str, int], others: int) -> None:
        if others == (device in self._whole) + len(self._extra_holders.get(device, ())):
            self._shares.pop(device, None)
            return
        held = self._shares[device]
        for name, nanos in amounts.items():
            held[name] -= nanos

    def build(self) -> PoolUsage:
        return PoolUsage(self._whole, self._shares, self._holders, self._extra_holders)
