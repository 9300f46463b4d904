"""Audit of the ledger: whether its rows agree with the claims, and what each row should be.

Theory of operation: the ledger is derived data. Allocations of claims tell who holds what; standing
preparations, with the rows that record what they cover, tell what nodes have prepared. From these every row
follows, except what a device drew from counters when it was taken: that is only in its row, so the audit
trusts a readable row in this, and charges a missing one as the device is published now. Sums of counters
follow from the rows of devices. Every row that differs is a finding with its expected value.

Two claims that hold one device as a whole cannot both be right; the ledger then blocks the device for all,
and an administrator has to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from dray.claims.ledger.grants import PublishedPools, list_holdings
from dray.claims.ledger.published_devices import Source
from dray.claims.ledger.rows import (
    COUNTER_PREFIX,
    DEVICE_PREFIX,
    PREPARATION_PREFIX,
    AnyRow,
    CounterRow,
    CounterSetId,
    CoveredDevice,
    DeviceId,
    DeviceRow,
    Holder,
    Holding,
    PreparationRow,
    build_counter_key,
    build_device_key,
    build_preparation_key,
    encode_row,
    parse_counter_key,
    parse_device_key,
    parse_preparation_key,
    read_row,
)
from dray.claims.ledger.stored_claims import StoredClaim
from dray.errors import DecodeError
from dray.values.quantity import ZERO, Quantity

_ROW_KINDS: tuple[tuple[bytes, str, Callable[[bytes], object]], ...] = (
    (DEVICE_PREFIX, "device", parse_device_key),
    (COUNTER_PREFIX, "counter set", parse_counter_key),
    (PREPARATION_PREFIX, "preparation", parse_preparation_key),
)


class LedgerFlaw(Enum):
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
class LedgerFinding:
    """A row that differs from what claims and preparations imply."""

    flaw: LedgerFlaw
    key: bytes
    message: str
    expected: bytes | None
    """The expected row; None: there should be none."""
    involved: tuple[Source, ...] = ()
    """The claims and preparations that imply it."""
    repairable: bool = True

    @property
    def row_name(self) -> str:
        """The row as text."""
        for start, what, named in _ROW_KINDS:
            if self.key.startswith(start):
                return f"{what} {named(self.key)}"
        return f"row {self.key.decode(errors='backslashreplace')}"


@dataclass(frozen=True, slots=True)
class ActivePreparation:
    """A preparation that stands."""

    name: str
    node: str
    holder: Holder
    source: Source
    found: tuple[CoveredDevice, ...] = ()
    """What the node itself reported to have."""


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """The ledger and everything it is derived from, at one moment."""

    claims: Sequence[tuple[Source, StoredClaim]]
    preparations: Sequence[ActivePreparation]
    rows: Mapping[bytes, bytes]


def audit_ledger(snapshot: LedgerSnapshot, published_pools: PublishedPools) -> list[LedgerFinding]:
    """Every row that differs from the expected one, in the order of keys."""
    return sorted(_LedgerAudit(snapshot, published_pools).find_all(), key=lambda finding: finding.key)


class _LedgerAudit:
    """One comparison; each step reads the tables that earlier ones filled."""

    def __init__(self, snapshot: LedgerSnapshot, published_pools: PublishedPools) -> None:
        self._snapshot = snapshot
        self._published_pools = published_pools
        self._actual: dict[bytes, AnyRow] = {}
        self._unreadable: dict[bytes, str] = {}
        self._by_uid = {claim.metadata.uid: (source, claim) for source, claim in snapshot.claims}
        self._involved: dict[bytes, list[Source]] = {}

    def find_all(self) -> Iterator[LedgerFinding]:
        self._decode_rows()
        covering = self._collect_preparations()
        wanted: dict[bytes, AnyRow] = dict(covering)
        devices = self._collect_devices(covering)
        wanted |= devices
        wanted |= self._sum_counters(devices)
        for key in wanted.keys() | self._snapshot.rows.keys():
            finding = self._compare_row(key, wanted.get(key))
            if finding is not None:
                yield finding
        yield from self._find_overbooked(devices)

    def _decode_rows(self) -> None:
        for key, value in self._snapshot.rows.items():
            try:
                self._actual[key] = read_row(key, value)
            except DecodeError as broken:
                self._unreadable[key] = str(broken)

    def _collect_preparations(self) -> dict[bytes, PreparationRow]:
        """What each standing preparation covers: by its row, else by its node or its claim."""
        found: dict[bytes, PreparationRow] = {}
        for standing in self._snapshot.preparations:
            key = build_preparation_key(standing.name)
            self._involved.setdefault(key, []).append(standing.source)
            row = self._actual.get(key)
            if isinstance(row, PreparationRow) and row.holder.uid == standing.holder.uid:
                found[key] = msgspec.structs.replace(row, node=standing.node)
                continue
            source, claim = self._by_uid.get(standing.holder.uid, (None, StoredClaim()))
            if source is not None:
                self._involved[key].append(source)
            covered = standing.found or tuple(
                _build_covered_device(*held) for held in list_holdings(standing.holder, claim.results)
            )
            found[key] = PreparationRow(node=standing.node, holder=standing.holder, covered=covered)
        return found

    def _collect_devices(self, preparations: Mapping[bytes, PreparationRow]) -> dict[bytes, DeviceRow]:
        holdings: dict[DeviceId, dict[tuple[str, str], Holding]] = {}
        for source, claim in self._snapshot.claims:
            for device, holding in list_holdings(claim.holder, claim.results):
                holdings.setdefault(device, {})[holding.identity] = holding
                self._involved.setdefault(build_device_key(device), []).append(source)
        for standing in self._snapshot.preparations:
            row = preparations[build_preparation_key(standing.name)]
            for covered in row.covered:
                self._involved.setdefault(build_device_key(covered.id), []).append(standing.source)
                _add_preparation(holdings.setdefault(covered.id, {}), standing, row.holder, covered)
        return {
            build_device_key(device): self._build_device_row(device, held)
            for device, held in holdings.items()
        }

    def _build_device_row(self, device: DeviceId, held: Mapping[tuple[str, str], Holding]) -> DeviceRow:
        known = self._actual.get(build_device_key(device))
        if isinstance(known, DeviceRow) and known.holdings:
            charged = known.charged
        else:
            facts = self._published_pools((device.driver, device.pool)).devices.get(device.device)
            charged = {} if facts is None else {name: dict(drawn) for name, drawn in facts.draws.items()}
        return DeviceRow(holdings=tuple(held.values()), charged=charged).normalized

    def _sum_counters(self, devices: Mapping[bytes, DeviceRow]) -> dict[bytes, CounterRow]:
        sums: dict[CounterSetId, dict[str, Quantity]] = {}
        for key, row in devices.items():
            if not row.charged:
                continue
            driver, pool, _ = parse_device_key(key)
            for name, drawn in row.charged.items():
                charged = sums.setdefault(CounterSetId(driver, pool, name), {})
                for counter, amount in drawn.items():
                    charged[counter] = charged.get(counter, ZERO) + amount
        return {
            build_counter_key(place): CounterRow(charged=kept)
            for place, charged in sums.items()
            if (kept := {counter: amount for counter, amount in charged.items() if amount.nanos})
        }

    def _compare_row(self, key: bytes, expected: AnyRow | None) -> LedgerFinding | None:
        actual = self._actual.get(key)
        if isinstance(actual, DeviceRow):
            actual = actual.normalized
        if key in self._unreadable:
            flaw, message = LedgerFlaw.UNREADABLE, self._unreadable[key]
        elif actual == expected:
            return None
        else:
            flaw, message = _describe_difference(key, expected, actual)
        involved = tuple(dict.fromkeys(self._involved.get(key, ())))
        return LedgerFinding(flaw, key, message, None if expected is None else encode_row(expected), involved)

    def _find_overbooked(self, devices: Mapping[bytes, DeviceRow]) -> Iterator[LedgerFinding]:
        for key, row in devices.items():
            if _is_overbooked(row):
                names = " and ".join(dict.fromkeys(str(holding.holder) for holding in row.holdings))
                message = (
                    f"held by {names}, and at least one of them has it as a whole; "
                    "delete or deallocate all but one"
                )
                involved = tuple(dict.fromkeys(self._involved.get(key, ())))
                yield LedgerFinding(
                    LedgerFlaw.OVERBOOKED, key, message, encode_row(row), involved, repairable=False
                )


def _is_overbooked(row: DeviceRow) -> bool:
    """Whether two have what only one can have: two claims, or two preparations.

    A claim beside a device that a node has yet to release for another claim is valid after a restore: the
    claim waits.
    """
    claimed = [holding for holding in row.holdings if not holding.gone]
    in_hand = [holding for holding in row.holdings if holding.prepared]
    return any(len(some) > 1 and any(holding.is_whole for holding in some) for some in (claimed, in_hand))


def _build_covered_device(device: DeviceId, holding: Holding) -> CoveredDevice:
    return CoveredDevice(
        driver=device.driver,
        pool=device.pool,
        device=device.device,
        share=holding.share,
        amounts=holding.amounts,
    )


def _add_preparation(
    held: dict[tuple[str, str], Holding],
    preparation: ActivePreparation,
    holder: Holder,
    covered: CoveredDevice,
) -> None:
    """Note a preparation with what it covers; it quarantines devices that no claim holds any more."""
    gone = Holding(holder=holder, share=covered.share, amounts=covered.amounts, gone=True)
    holding = held.get(gone.identity)
    if holding is None or holding.amounts != covered.amounts:
        holding = gone
    prepared = {**holding.prepared, preparation.name: preparation.node}
    held[gone.identity] = msgspec.structs.replace(holding, prepared=prepared)


def _describe_difference(
    key: bytes, expected: AnyRow | None, actual: AnyRow | None
) -> tuple[LedgerFlaw, str]:
    if key.startswith(COUNTER_PREFIX):
        return (
            LedgerFlaw.COUNTERS,
            f"counters charged: {_format_charges(actual)} in the ledger, "
            f"{_format_charges(expected)} by devices",
        )
    if key.startswith(PREPARATION_PREFIX):
        return LedgerFlaw.PREPARATION, _describe_presence(
            expected, actual, "a preparation that stands", "no preparation stands"
        )
    if actual is None:
        return LedgerFlaw.MISSING, f"held by {_format_holders(expected)}, and the ledger does not know"
    if expected is None:
        gone = isinstance(actual, DeviceRow) and all(holding.gone for holding in actual.holdings)
        if gone:
            return (
                LedgerFlaw.QUARANTINE,
                f"quarantined for {_format_holders(actual)}, and no preparation stands",
            )
        return LedgerFlaw.ORPHAN, f"the ledger says {_format_holders(actual)}, and no claim holds it"
    return _describe_holdings(expected, actual)


def _describe_holdings(expected: AnyRow, actual: AnyRow) -> tuple[LedgerFlaw, str]:
    assert isinstance(expected, DeviceRow)
    assert isinstance(actual, DeviceRow)
    detail = f"the ledger says {_format_holders(actual)}, claims say {_format_holders(expected)}"
    should = {holding.identity: holding for holding in expected.holdings}
    are = {holding.identity: holding for holding in actual.holdings}
    if should.keys() != are.keys() or any(should[who].gone != are[who].gone for who in should):
        left = [who for who in are if who not in should and are[who].gone]
        return (LedgerFlaw.QUARANTINE if left and should.keys() <= are.keys() else LedgerFlaw.HOLDER), detail
    if any(should[who].amounts != are[who].amounts for who in should):
        return LedgerFlaw.AMOUNTS, f"amounts of {_format_holders(expected)} differ from what their claims say"
    if any(should[who].prepared != are[who].prepared for who in should):
        return (
            LedgerFlaw.PREPARED,
            f"preparations of {_format_holders(expected)} differ from those that stand",
        )
    return LedgerFlaw.HOLDER, detail


def _format_holders(row: AnyRow | None) -> str:
    holdings: Iterable[Holding] = row.holdings if isinstance(row, DeviceRow) else ()
    return ", ".join(dict.fromkeys(str(holding.holder) for holding in holdings)) or "nobody"


def _format_charges(row: AnyRow | None) -> str:
    charged = row.charged if isinstance(row, CounterRow) else {}
    return ", ".join(f"{name}={amount}" for name, amount in sorted(charged.items())) or "nothing"


def _describe_presence(
    expected: AnyRow | None, actual: AnyRow | None, present_text: str, absent_text: str
) -> str:
    if expected is None:
        return f"the ledger has a row, and {absent_text}"
    if actual is None:
        return f"{present_text} has no row in the ledger"
    return f"the ledger's row differs from {present_text}"
