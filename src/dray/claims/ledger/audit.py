"""Whether the ledger agrees with the claims, and what each row should be.

Theory of operation: the ledger is derived. Allocations of claims say who holds what; preparations that
stand, with the rows that tell what they cover, say what is in nodes' hands. From these every row follows,
except what a device drew from counters when it was taken: that is only in its row, so a row that can be read
is believed in this, and one that is missing is charged as the device is published now. Sums of counters
follow from the rows of devices. Every row that differs is a finding with what it should be.

Two claims that hold one device as a whole cannot both be right; the ledger then blocks the device for
everybody, and somebody has to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from dray.claims.ledger.grants import Catalogue, held_by
from dray.claims.ledger.published_devices import Source
from dray.claims.ledger.rows import (
    COUNTERS,
    DEVICES,
    PREPARATIONS,
    AnyRow,
    CounterRow,
    CounterSetId,
    Covered,
    DeviceId,
    DeviceRow,
    Holder,
    Holding,
    PreparationRow,
    counter_key,
    counter_set_at,
    device_at,
    device_key,
    preparation_at,
    preparation_key,
    read_row,
    row_bytes,
)
from dray.claims.ledger.stored_claims import SeenClaim
from dray.errors import DecodeError
from dray.values.quantity import ZERO, Quantity

_PLACES: tuple[tuple[bytes, str, Callable[[bytes], object]], ...] = (
    (DEVICES, "device", device_at),
    (COUNTERS, "counter set", counter_set_at),
    (PREPARATIONS, "preparation", preparation_at),
)


class Flaw(Enum):
    """How a row can be wrong."""

    UNREADABLE = "unreadable row"
    MISSING = "missing row"
    ORPHAN = "row without claim"
    HOLDER = "other holder"
    AMOUNTS = "wrong amounts"
    QUARANTINE = "quarantine without preparation"
    PREPARED = "wrong preparations"
    COUNTERS = "wrong counter sums"
    PREPARATION = "preparation row differs"
    OVERBOOKED = "held twice"


@dataclass(frozen=True, slots=True)
class Finding:
    """A row that is not what claims and preparations say."""

    flaw: Flaw
    key: bytes
    message: str
    wanted: bytes | None
    """The row as it should be; None: it should not be there."""
    involved: tuple[Source, ...] = ()
    """Claims and preparations that say so."""
    repairable: bool = True

    @property
    def place(self) -> str:
        """The row in words."""
        for start, what, named in _PLACES:
            if self.key.startswith(start):
                return f"{what} {named(self.key)}"
        return f"row {self.key.decode(errors='backslashreplace')}"


@dataclass(frozen=True, slots=True)
class Standing:
    """A preparation that stands."""

    name: str
    node: str
    holder: Holder
    source: Source
    found: tuple[Covered, ...] = ()
    """What the node said by itself that it has."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything the ledger follows from, and the ledger itself, at one moment."""

    claims: Sequence[tuple[Source, SeenClaim]]
    preparations: Sequence[Standing]
    rows: Mapping[bytes, bytes]


def examine(snapshot: Snapshot, catalogue: Catalogue) -> list[Finding]:
    """Every row that differs from what it should be, in the order of keys."""
    return sorted(_Examination(snapshot, catalogue).findings(), key=lambda finding: finding.key)


class _Examination:
    """One comparison; the tables it fills are read by the steps after."""

    def __init__(self, snapshot: Snapshot, catalogue: Catalogue) -> None:
        self._snapshot = snapshot
        self._catalogue = catalogue
        self._actual: dict[bytes, AnyRow] = {}
        self._broken: dict[bytes, str] = {}
        self._by_uid = {claim.metadata.uid: (source, claim) for source, claim in snapshot.claims}
        self._involved: dict[bytes, list[Source]] = {}

    def findings(self) -> Iterator[Finding]:
        self._read()
        covering = self._covering()
        wanted: dict[bytes, AnyRow] = dict(covering)
        devices = self._devices(covering)
        wanted |= devices
        wanted |= self._sums(devices)
        for key in wanted.keys() | self._snapshot.rows.keys():
            finding = self._compared(key, wanted.get(key))
            if finding is not None:
                yield finding
        yield from self._overbooked(devices)

    def _read(self) -> None:
        for key, value in self._snapshot.rows.items():
            try:
                self._actual[key] = read_row(key, value)
            except DecodeError as broken:
                self._broken[key] = str(broken)

    def _covering(self) -> dict[bytes, PreparationRow]:
        """What each standing preparation covers: as its row says, else as the node or its claim says."""
        found: dict[bytes, PreparationRow] = {}
        for standing in self._snapshot.preparations:
            key = preparation_key(standing.name)
            self._involved.setdefault(key, []).append(standing.source)
            row = self._actual.get(key)
            if isinstance(row, PreparationRow) and row.holder.uid == standing.holder.uid:
                found[key] = msgspec.structs.replace(row, node=standing.node)
                continue
            source, claim = self._by_uid.get(standing.holder.uid, (None, SeenClaim()))
            if source is not None:
                self._involved[key].append(source)
            covered = standing.found or tuple(
                _covered(*held) for held in held_by(standing.holder, claim.results)
            )
            found[key] = PreparationRow(node=standing.node, holder=standing.holder, covered=covered)
        return found

    def _devices(self, covering: Mapping[bytes, PreparationRow]) -> dict[bytes, DeviceRow]:
        holdings: dict[DeviceId, dict[tuple[str, str], Holding]] = {}
        for source, claim in self._snapshot.claims:
            for device, holding in held_by(claim.holder, claim.results):
                holdings.setdefault(device, {})[holding.identity] = holding
                self._involved.setdefault(device_key(device), []).append(source)
        for standing in self._snapshot.preparations:
            row = covering[preparation_key(standing.name)]
            for covered in row.covered:
                self._involved.setdefault(device_key(covered.id), []).append(standing.source)
                _take_into_hands(holdings.setdefault(covered.id, {}), standing, row.holder, covered)
        return {device_key(device): self._row(device, held) for device, held in holdings.items()}

    def _row(self, device: DeviceId, held: Mapping[tuple[str, str], Holding]) -> DeviceRow:
        known = self._actual.get(device_key(device))
        if isinstance(known, DeviceRow) and known.holdings:
            charged = known.charged
        else:
            facts = self._catalogue((device.driver, device.pool)).devices.get(device.device)
            charged = {} if facts is None else {name: dict(drawn) for name, drawn in facts.draws.items()}
        return DeviceRow(holdings=tuple(held.values()), charged=charged).in_order

    def _sums(self, devices: Mapping[bytes, DeviceRow]) -> dict[bytes, CounterRow]:
        sums: dict[CounterSetId, dict[str, Quantity]] = {}
        for key, row in devices.items():
            if not row.charged:
                continue
            driver, pool, _ = device_at(key)
            for name, drawn in row.charged.items():
                charged = sums.setdefault(CounterSetId(driver, pool, name), {})
                for counter, amount in drawn.items():
                    charged[counter] = charged.get(counter, ZERO) + amount
        return {
            counter_key(place): CounterRow(charged=kept)
            for place, charged in sums.items()
            if (kept := {counter: amount for counter, amount in charged.items() if amount.nanos})
        }

    def _compared(self, key: bytes, wanted: AnyRow | None) -> Finding | None:
        actual = self._actual.get(key)
        if isinstance(actual, DeviceRow):
            actual = actual.in_order
        if key in self._broken:
            flaw, message = Flaw.UNREADABLE, self._broken[key]
        elif actual == wanted:
            return None
        else:
            flaw, message = _differing(key, wanted, actual)
        involved = tuple(dict.fromkeys(self._involved.get(key, ())))
        return Finding(flaw, key, message, None if wanted is None else row_bytes(wanted), involved)

    def _overbooked(self, devices: Mapping[bytes, DeviceRow]) -> Iterator[Finding]:
        for key, row in devices.items():
            if _is_overbooked(row):
                names = " and ".join(dict.fromkeys(str(holding.holder) for holding in row.holdings))
                message = (
                    f"held by {names}, and at least one of them has it as a whole; "
                    "delete or deallocate all but one"
                )
                involved = tuple(dict.fromkeys(self._involved.get(key, ())))
                yield Finding(Flaw.OVERBOOKED, key, message, row_bytes(row), involved, repairable=False)


def _is_overbooked(row: DeviceRow) -> bool:
    """Whether two have what only one can have: two claims, or two that nodes have in their hands.

    A claim and what a node has yet to give back of another is no mistake after a restore: the claim waits.
    """
    claimed = [holding for holding in row.holdings if not holding.gone]
    in_hand = [holding for holding in row.holdings if holding.prepared]
    return any(len(some) > 1 and any(holding.is_whole for holding in some) for some in (claimed, in_hand))


def _covered(device: DeviceId, holding: Holding) -> Covered:
    return Covered(
        driver=device.driver,
        pool=device.pool,
        device=device.device,
        share=holding.share,
        amounts=holding.amounts,
    )


def _take_into_hands(
    held: dict[tuple[str, str], Holding], standing: Standing, holder: Holder, covered: Covered
) -> None:
    """Note a preparation with what it covers; what no claim holds any more is quarantined by it."""
    gone = Holding(holder=holder, share=covered.share, amounts=covered.amounts, gone=True)
    holding = held.get(gone.identity)
    if holding is None or holding.amounts != covered.amounts:
        holding = gone
    prepared = {**holding.prepared, standing.name: standing.node}
    held[gone.identity] = msgspec.structs.replace(holding, prepared=prepared)


def _differing(key: bytes, wanted: AnyRow | None, actual: AnyRow | None) -> tuple[Flaw, str]:
    if key.startswith(COUNTERS):
        return (
            Flaw.COUNTERS,
            f"counters charged: {_charged(actual)} in the ledger, {_charged(wanted)} by devices",
        )
    if key.startswith(PREPARATIONS):
        return Flaw.PREPARATION, _words(wanted, actual, "a preparation that stands", "no preparation stands")
    if actual is None:
        return Flaw.MISSING, f"held by {_holders(wanted)}, and the ledger does not know"
    if wanted is None:
        gone = isinstance(actual, DeviceRow) and all(holding.gone for holding in actual.holdings)
        if gone:
            return Flaw.QUARANTINE, f"quarantined for {_holders(actual)}, and no preparation stands"
        return Flaw.ORPHAN, f"the ledger says {_holders(actual)}, and no claim holds it"
    return _different_holdings(wanted, actual)


def _different_holdings(wanted: AnyRow, actual: AnyRow) -> tuple[Flaw, str]:
    assert isinstance(wanted, DeviceRow)
    assert isinstance(actual, DeviceRow)
    said = f"the ledger says {_holders(actual)}, claims say {_holders(wanted)}"
    should = {holding.identity: holding for holding in wanted.holdings}
    are = {holding.identity: holding for holding in actual.holdings}
    if should.keys() != are.keys() or any(should[who].gone != are[who].gone for who in should):
        left = [who for who in are if who not in should and are[who].gone]
        return (Flaw.QUARANTINE if left and should.keys() <= are.keys() else Flaw.HOLDER), said
    if any(should[who].amounts != are[who].amounts for who in should):
        return Flaw.AMOUNTS, f"amounts of {_holders(wanted)} differ from what their claims say"
    if any(should[who].prepared != are[who].prepared for who in should):
        return Flaw.PREPARED, f"preparations of {_holders(wanted)} differ from those that stand"
    return Flaw.HOLDER, said


def _holders(row: AnyRow | None) -> str:
    holdings: Iterable[Holding] = row.holdings if isinstance(row, DeviceRow) else ()
    return ", ".join(dict.fromkeys(str(holding.holder) for holding in holdings)) or "nobody"


def _charged(row: AnyRow | None) -> str:
    charged = row.charged if isinstance(row, CounterRow) else {}
    return ", ".join(f"{name}={amount}" for name, amount in sorted(charged.items())) or "nothing"


def _words(wanted: AnyRow | None, actual: AnyRow | None, there: str, gone: str) -> str:
    if wanted is None:
        return f"the ledger has a row, and {gone}"
    if actual is None:
        return f"{there} has no row in the ledger"
    return f"the ledger's row differs from {there}"
