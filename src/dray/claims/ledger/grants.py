"""Grants of the ledger: no device is ever allocated twice.

Theory of operation: an allocation is a list of devices and shares. It is granted when every row of a device
allows it: for a whole device no other holder may be in the row; for a share no holder may have the whole, the
device must be published as shareable, and the amounts of all shares together must fit each capacity. A device
that is taken first draws from its counters, and the sums charged to a counter set must fit what is published.
Rows are read through a transaction, which records what was read and what changes; the caller writes the
changes only if nothing that was read has changed, together with the claim itself. So a denial is the truth
about one moment, and a grant cannot collide with another.

A device that is not published may be held, too: slices come and go, claims stay. What it draws is unknown
then, so it is charged when a slice publishes it, whatever is left; until it is released, no other claim gets
that.

A claim that releases its devices while a node has them prepared leaves its holdings behind as gone; they keep
blocking until the last preparation that covers them is deleted. See `prepared_devices`.

The ledger checks allocations, not whether they were a good choice; admin access holds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec

from dray.claims.ledger import denials
from dray.claims.ledger.denials import Denial
from dray.claims.ledger.published_devices import DeviceFacts, PublishedPool, Source
from dray.claims.ledger.rows import (
    AnyRow,
    CounterRow,
    CounterSetId,
    DeviceId,
    DeviceRow,
    Holder,
    Holding,
    PreparationRow,
    build_counter_key,
    build_device_key,
    build_preparation_key,
    encode_row,
    read_row,
)
from dray.values.quantity import ZERO, Quantity


class AllocatedResult(Protocol):
    """One result of an allocation, as far as the ledger reads it."""

    @property
    def driver(self) -> str: ...
    @property
    def pool(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def admin_access(self) -> bool | None: ...
    @property
    def share_id(self) -> str | None: ...
    @property
    def consumed_capacity(self) -> dict[str, Quantity]: ...


RowReader = Callable[[bytes], bytes | None]
"""The bytes of a row, or None when there is none."""

DrawsByCounterSet = Mapping[str, Mapping[str, Quantity]]
"""Amounts by counter, by counter set."""

Surplus = dict[tuple[CounterSetId, str], int]
"""Nanos charged to counters within one allocation beyond what its own devices draw."""

PublishedPools = Callable[[tuple[str, str]], PublishedPool]
"""What is published of a pool (driver and name)."""


@dataclass(frozen=True, slots=True)
class LedgerDecision:
    """The answer of the ledger: changes, what they rely on, and denials."""

    changes: dict[bytes, bytes | None]
    """Rows by key as they become; None: removed."""
    reads: frozenset[bytes]
    """Keys of rows that were read."""
    sources: frozenset[Source]
    """Slices that were read."""
    denials: tuple[Denial, ...] = ()


_EMPTY = DeviceRow()
_NO_CHARGE = CounterRow()


class LedgerTransaction:
    """Rows of the ledger while they are being changed."""

    def __init__(self, read: RowReader) -> None:
        self._load_row = read
        self._before: dict[bytes, AnyRow | None] = {}
        self._rows: dict[bytes, AnyRow | None] = {}
        self.sources: set[Source] = set()

    def _read_row(self, key: bytes) -> Any:
        if key not in self._rows:
            value = self._load_row(key)
            self._before[key] = self._rows[key] = None if value is None else read_row(key, value)
        return self._rows[key]

    def read_device(self, device: DeviceId) -> DeviceRow:
        return self._read_row(build_device_key(device)) or _EMPTY

    def read_counters(self, counter_set: CounterSetId) -> CounterRow:
        return self._read_row(build_counter_key(counter_set)) or _NO_CHARGE

    def read_preparation(self, name: str) -> PreparationRow | None:
        row: PreparationRow | None = self._read_row(build_preparation_key(name))
        return row

    def write(self, key: bytes, row: AnyRow | None) -> None:
        self._read_row(key)
        self._rows[key] = row

    def build_decision(self, denied: Iterable[Denial] = ()) -> LedgerDecision:
        """What was read and what changes."""
        changes = {
            key: None if row is None else encode_row(row)
            for key, row in self._rows.items()
            if row != self._before[key]
        }
        return LedgerDecision(changes, frozenset(self._rows), frozenset(self.sources), tuple(denied))


def build_holding(holder: Holder, result: AllocatedResult) -> Holding:
    """What a result of an allocation means for its device."""
    if result.share_id is None and not result.consumed_capacity:
        return Holding(holder=holder)
    # A negative amount must not add to what others can take.
    amounts = {
        name: amount if amount.nanos >= 0 else ZERO for name, amount in result.consumed_capacity.items()
    }
    return Holding(holder=holder, share=result.share_id, amounts=amounts)


def get_device_id(result: AllocatedResult) -> DeviceId:
    return DeviceId(result.driver, result.pool, result.device)


def list_holdings(holder: Holder, results: Iterable[AllocatedResult]) -> list[tuple[DeviceId, Holding]]:
    """What an allocation holds; admin access holds nothing."""
    return [
        (get_device_id(result), build_holding(holder, result))
        for result in results
        if not result.admin_access
    ]


def grant_allocation(
    transaction: LedgerTransaction,
    holder: Holder,
    results: Sequence[AllocatedResult],
    published_pools: PublishedPools,
    node: str = "",
) -> list[Denial]:
    """Add an allocation to the transaction, or return every denial.

    `node` is the one node that the allocation is for, if there is one.
    """
    denied: list[Denial] = []
    seen: set[tuple[DeviceId, str | None]] = set()
    surplus: Surplus = {}
    for position, result in enumerate(results):
        if result.admin_access:
            continue
        device, holding = get_device_id(result), build_holding(holder, result)
        if (device, holding.share) in seen:
            denied.append(denials.deny_duplicate(device, position))
            continue
        seen.add((device, holding.share))
        pool = published_pools((device.driver, device.pool))
        found = _enter_holding(transaction, device, holding, pool, (node, surplus))
        denied += [replace(denial, position=position) for denial in found]
    return denied


def _enter_holding(
    transaction: LedgerTransaction,
    device: DeviceId,
    holding: Holding,
    pool: PublishedPool,
    attempt: tuple[str, Surplus],
) -> list[Denial]:
    node, surplus = attempt
    row = transaction.read_device(device)
    if any(is_same_holding(holding, held) for held in row.holdings):
        return []
    facts = pool.devices.get(device.device)
    own = None if facts is None else facts.select_for_node(node)
    if facts is not None:
        transaction.sources.update(facts.sources)
    denial = _check_whole(device, row) if holding.is_whole else _check_share(device, row, holding, own)
    if denial is not None:
        return [denial]
    charged = row.charged
    if not row.holdings and facts is not None and own is not None and facts.draws:
        denied = _charge_counters(transaction, device, (own.draws, facts.draws), pool, surplus)
        if denied:
            return denied
        charged = {name: dict(drawn) for name, drawn in facts.draws.items()}
    transaction.write(build_device_key(device), DeviceRow(holdings=(*row.holdings, holding), charged=charged))
    return []


def is_same_holding(new: Holding, held: Holding) -> bool:
    """Whether a claim has this already."""
    return not held.gone and held.identity == new.identity and held.amounts == new.amounts


def _check_whole(device: DeviceId, row: DeviceRow) -> Denial | None:
    return denials.deny_held(device, row.holdings, 0) if row.holdings else None


def _check_share(device: DeviceId, row: DeviceRow, new: Holding, facts: DeviceFacts | None) -> Denial | None:
    whole = [held for held in row.holdings if held.is_whole]
    if whole:
        return denials.deny_held(device, whole, 0)
    if facts is None:
        return denials.deny_unpublished(device, 0)
    if not facts.shareable:
        return denials.deny_dedicated(device, row.holdings, 0)
    for held in row.holdings:
        if new.share is not None and held.share == new.share:
            return denials.deny_share_id(device, new.share, held, 0)
    return _check_capacity(device, row, new, facts)


def _check_capacity(device: DeviceId, row: DeviceRow, new: Holding, facts: DeviceFacts) -> Denial | None:
    for name, asked in (new.amounts or {}).items():
        total = facts.capacity.get(name)
        taken = sum((held.amounts or {}).get(name, ZERO).nanos for held in row.holdings)
        if total is None or taken + asked.nanos > total.nanos:
            return denials.deny_capacity(device, name, asked, total, row.holdings, 0)
    return None


def _charge_counters(
    transaction: LedgerTransaction,
    device: DeviceId,
    drawing: tuple[DrawsByCounterSet, DrawsByCounterSet],
    pool: PublishedPool,
    surplus: Surplus,
) -> list[Denial]:
    """Charge counters, or nothing at all: what the device itself draws must be left, more may be charged.

    The two differ where several nodes have a device of the name: only one of them is allocated, but from then
    on it is unknown which, and all of them count; only not for the rest of the same allocation.
    """
    own, draws = drawing
    denied: list[Denial] = []
    sums: list[tuple[CounterSetId, CounterRow]] = []
    for name, drawn in draws.items():
        place = CounterSetId(device.driver, device.pool, name)
        if name not in pool.counters:
            denied.append(denials.deny_unknown_counter(device, place, ""))
            continue
        totals, source = pool.counters[name]
        transaction.sources.add(source)
        charged = dict(transaction.read_counters(place).charged)
        for counter, amount in drawn.items():
            asked = own.get(name, {}).get(counter, ZERO)
            total, taken = totals.get(counter), charged.get(counter, ZERO)
            before = taken.nanos - surplus.get((place, counter), 0)
            if total is None:
                denied.append(denials.deny_unknown_counter(device, place, counter))
            elif before + asked.nanos > total.nanos:
                left = Quantity(total.nanos - before, total.form)
                denied.append(denials.deny_counter(device, place, counter, asked, total, left))
            elif amount.nanos:
                charged[counter] = taken + amount
                surplus[place, counter] = taken.nanos - before + amount.nanos - asked.nanos
        sums.append((place, CounterRow(charged=charged)))
    if not denied:
        for place, row in sums:
            transaction.write(build_counter_key(place), row if row.charged else None)
    return denied


def record_holdings(
    transaction: LedgerTransaction,
    holdings: Iterable[tuple[DeviceId, Holding]],
    published_pools: PublishedPools,
) -> None:
    """Add what a stored claim holds to the transaction, whatever others hold: nothing is checked."""
    for device, holding in holdings:
        row = transaction.read_device(device)
        if any(is_same_holding(holding, held) for held in row.holdings):
            continue
        added = msgspec.structs.replace(row, holdings=(*row.holdings, holding))
        transaction.write(build_device_key(device), added)
        facts = published_pools((device.driver, device.pool)).devices.get(device.device)
        if facts is not None:
            charge_published(transaction, device, facts.draws)


def charge_anew(transaction: LedgerTransaction, device: DeviceId, draws: DrawsByCounterSet) -> None:
    """Charge a device that is held with what it draws now, instead of what it drew when it was taken."""
    row = transaction.read_device(device)
    if row.holdings and row.charged != draws:
        keep_holdings(transaction, device, row, ())
        transaction.write(build_device_key(device), DeviceRow(holdings=row.holdings))
        charge_published(transaction, device, draws)


def charge_published(transaction: LedgerTransaction, device: DeviceId, draws: DrawsByCounterSet) -> None:
    """Charge a device that is published anew with what it draws, if it is held and was never charged."""
    row = transaction.read_device(device)
    if not row.holdings or row.charged:
        return
    for name, drawn in draws.items():
        place = CounterSetId(device.driver, device.pool, name)
        charged = dict(transaction.read_counters(place).charged)
        for counter, amount in drawn.items():
            charged[counter] = charged.get(counter, ZERO) + amount
        kept = {counter: amount for counter, amount in charged.items() if amount.nanos}
        transaction.write(build_counter_key(place), CounterRow(charged=kept) if kept else None)
    charged_to = {name: dict(drawn) for name, drawn in draws.items()}
    transaction.write(build_device_key(device), msgspec.structs.replace(row, charged=charged_to))


def release_claim(transaction: LedgerTransaction, uid: str, devices: Iterable[DeviceId]) -> None:
    """Release a claim; what a node still has prepared stays behind in quarantine."""
    for device in dict.fromkeys(devices):
        row = transaction.read_device(device)
        kept = tuple(
            msgspec.structs.replace(held, gone=True) if held.holder.uid == uid else held
            for held in row.holdings
            if held.holder.uid != uid or held.prepared
        )
        keep_holdings(transaction, device, row, kept)


def keep_holdings(
    transaction: LedgerTransaction, device: DeviceId, row: DeviceRow, kept: tuple[Holding, ...]
) -> bool:
    """Keep these holdings of a device; when none is left, it is free and its counters are credited."""
    if kept:
        transaction.write(build_device_key(device), msgspec.structs.replace(row, holdings=kept))
        return False
    for name, drawn in row.charged.items():
        place = CounterSetId(device.driver, device.pool, name)
        charged = dict(transaction.read_counters(place).charged)
        for counter, amount in drawn.items():
            charged[counter] = charged.get(counter, ZERO) - amount
        charged = {counter: amount for counter, amount in charged.items() if amount.nanos > 0}
        transaction.write(build_counter_key(place), CounterRow(charged=charged) if charged else None)
    transaction.write(build_device_key(device), None)
    return True
