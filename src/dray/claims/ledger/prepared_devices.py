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
from dray.claims.ledger.grants import Books, Catalogue, Result, charge_published, held_by, is_same, settle
from dray.claims.ledger.rows import (
    Covered,
    DeviceId,
    Holder,
    Holding,
    PreparationRow,
    device_key,
    preparation_key,
)

Found = tuple[DeviceId, str | None]
"""A device that a node has, with the share when it has one."""


def prepare(books: Books, name: str, node: str, holder: Holder, results: Iterable[Result]) -> list[Denial]:
    """A node takes the devices of a claim into its hands."""
    denied: list[Denial] = []
    covered: list[Covered] = []
    for position, (device, wanted) in enumerate(held_by(holder, results)):
        row = books.device(device)
        mine = next((held for held in row.holdings if is_same(wanted, held)), None)
        if mine is None:
            denied.append(denials.unrecorded(device))
            continue
        left = [held for held in row.holdings if held.gone and (held.is_whole or wanted.is_whole)]
        if left:
            denied.append(denials.in_the_way(device, left, position))
            continue
        _cover(books, device, mine, (name, node))
        covered.append(_covered(device, mine))
    books.write(preparation_key(name), PreparationRow(node=node, holder=holder, covered=tuple(covered)))
    return denied


def find(
    books: Books, name: str, node: str, holder: Holder, found: Iterable[Found], catalogue: Catalogue
) -> None:
    """A node says what it has in its hands, whatever the rows say."""
    covered: list[Covered] = []
    for device, share in found:
        row = books.device(device)
        mine = next((held for held in row.holdings if held.identity == (holder.uid, share or "")), None)
        if mine is None:
            mine = Holding(holder=holder, share=share, gone=True)
            books.write(device_key(device), msgspec.structs.replace(row, holdings=(*row.holdings, mine)))
            facts = catalogue((device.driver, device.pool)).devices.get(device.device)
            if facts is not None:
                books.sources.update(facts.sources)
                charge_published(books, device, facts.draws)
        _cover(books, device, mine, (name, node))
        covered.append(_covered(device, mine))
    books.write(preparation_key(name), PreparationRow(node=node, holder=holder, covered=tuple(covered)))


def _cover(books: Books, device: DeviceId, mine: Holding, preparation: tuple[str, str]) -> None:
    row = books.device(device)
    name, node = preparation
    holdings = tuple(
        msgspec.structs.replace(held, prepared={**held.prepared, name: node})
        if held.identity == mine.identity
        else held
        for held in row.holdings
    )
    books.write(device_key(device), msgspec.structs.replace(row, holdings=holdings))


def _covered(device: DeviceId, holding: Holding) -> Covered:
    return Covered(
        driver=device.driver,
        pool=device.pool,
        device=device.device,
        share=holding.share,
        amounts=holding.amounts,
    )


def free(books: Books, name: str) -> list[DeviceId]:
    """A node let go of what a preparation covered; the devices that became free with it."""
    row = books.preparation(name)
    if row is None:
        return []
    freed: list[DeviceId] = []
    for device in dict.fromkeys(covered.id for covered in row.covered):
        held = books.device(device)
        kept = tuple(
            msgspec.structs.replace(
                holding, prepared={key: node for key, node in holding.prepared.items() if key != name}
            )
            for holding in held.holdings
        )
        kept = tuple(holding for holding in kept if holding.prepared or not holding.gone)
        if held.holdings and settle(books, device, held, kept):
            freed.append(device)
    books.write(preparation_key(name), None)
    return freed
