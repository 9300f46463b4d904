"""Prepared devices in the ledger: taken for a claim, reported after a restore, and released.

Theory of operation: a node that prepares a claim covers the claim's holdings with its preparation. No other
node may have the device prepared then: what a deleted claim left behind must be released first. After a
restore the rows may have less than the nodes. What a node reports is then entered as it is: covered, if its
claim holds it, and otherwise in quarantine beside the holder in the rows. How much of the device that is, is
unknown, so it counts as all of it: no new claim gets a part, and the holder in the rows cannot be prepared,
until the node has released it.

This module must not contain who may write what; the caller decides that.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dray.claims.ledger import denials
from dray.claims.ledger.denials import Denial
from dray.claims.ledger.grants import (
    AllocatedResult,
    LedgerTransaction,
    PublishedPools,
    charge_published,
    is_same_holding,
    keep_holdings,
    list_holdings,
)
from dray.claims.ledger.rows import (
    CoveredDevice,
    DeviceId,
    Holder,
    Holding,
    PreparationRow,
    build_device_key,
    build_preparation_key,
)

NodeReportedDevice = tuple[DeviceId, str | None]
"""A device that a node has prepared, with the share if it has one."""


def record_preparation(
    transaction: LedgerTransaction, name: str, node: str, holder: Holder, results: Iterable[AllocatedResult]
) -> list[Denial]:
    """Cover the devices of a claim with the preparation of a node."""
    denied: list[Denial] = []
    covered: list[CoveredDevice] = []
    for position, (device, wanted) in enumerate(list_holdings(holder, results)):
        row = transaction.read_device(device)
        mine = next((held for held in row.holdings if is_same_holding(wanted, held)), None)
        if mine is None:
            denied.append(denials.deny_unrecorded(device))
            continue
        left = [held for held in row.holdings if held.gone and (held.is_whole or wanted.is_whole)]
        if left:
            denied.append(denials.deny_held(device, left, position))
            continue
        _cover_holding(transaction, device, mine, (name, node))
        covered.append(_build_covered_device(device, mine))
    transaction.write(
        build_preparation_key(name), PreparationRow(node=node, holder=holder, covered=tuple(covered))
    )
    return denied


def record_found_devices(
    transaction: LedgerTransaction,
    name: str,
    node: str,
    holder: Holder,
    found: Iterable[NodeReportedDevice],
    published_pools: PublishedPools,
) -> None:
    """Enter what a node reports to have prepared, whatever is in the rows."""
    covered: list[CoveredDevice] = []
    for device, share in found:
        row = transaction.read_device(device)
        mine = next((held for held in row.holdings if held.identity == (holder.uid, share or "")), None)
        if mine is None:
            mine = Holding(holder=holder, share=share, gone=True)
            transaction.write(
                build_device_key(device), msgspec.structs.replace(row, holdings=(*row.holdings, mine))
            )
            facts = published_pools((device.driver, device.pool)).devices.get(device.device)
            if facts is not None:
                transaction.sources.update(facts.sources)
                charge_published(transaction, device, facts.draws)
        _cover_holding(transaction, device, mine, (name, node))
        covered.append(_build_covered_device(device, mine))
    transaction.write(
        build_preparation_key(name), PreparationRow(node=node, holder=holder, covered=tuple(covered))
    )


def _cover_holding(
    transaction: LedgerTransaction, device: DeviceId, mine: Holding, preparation: tuple[str, str]
) -> None:
    row = transaction.read_device(device)
    name, node = preparation
    holdings = tuple(
        msgspec.structs.replace(held, prepared={**held.prepared, name: node})
        if held.identity == mine.identity
        else held
        for held in row.holdings
    )
    transaction.write(build_device_key(device), msgspec.structs.replace(row, holdings=holdings))


def _build_covered_device(device: DeviceId, holding: Holding) -> CoveredDevice:
    return CoveredDevice(
        driver=device.driver,
        pool=device.pool,
        device=device.device,
        share=holding.share,
        amounts=holding.amounts,
    )


def release_preparation(transaction: LedgerTransaction, name: str) -> list[DeviceId]:
    """Remove a preparation; returns the devices that became free with it."""
    row = transaction.read_preparation(name)
    if row is None:
        return []
    freed: list[DeviceId] = []
    for device in dict.fromkeys(covered.id for covered in row.covered):
        held = transaction.read_device(device)
        kept = tuple(
            msgspec.structs.replace(
                holding, prepared={key: node for key, node in holding.prepared.items() if key != name}
            )
            for holding in held.holdings
        )
        kept = tuple(holding for holding in kept if holding.prepared or not holding.gone)
        if held.holdings and keep_holdings(transaction, device, held, kept):
            freed.append(device)
    transaction.write(build_preparation_key(name), None)
    return freed
