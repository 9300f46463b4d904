"""What nodes have in their hands, in the ledger: taken for a claim, found after a restore, and given back.

Theory of operation: a node that prepares a claim covers the claim's holdings with its preparation. Nobody
else may have the device in hand then: what a claim left behind that is gone must be given back first. After a
restore the rows may know less than the nodes. What a node says it has is then entered as it is: covered, if
its claim holds it, and otherwise in quarantine beside whoever the rows say has it. How much of the device
that is nobody knows any more, so it counts as all of it: nobody new gets a part, and the holder that the rows
know cannot be prepared, until the node has given it back.

Rules for this file: rows only; who may say what is judged by whoever asks.
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
"""A device that a node has, with the share when it has one."""


def record_preparation(
    transaction: LedgerTransaction, name: str, node: str, holder: Holder, results: Iterable[AllocatedResult]
) -> list[Denial]:
    """A node takes the devices of a claim into its hands."""
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
    """A node says what it has in its hands, whatever the rows say."""
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
    """A node let go of what a preparation covered; the devices that became free with it."""
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
