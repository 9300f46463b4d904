"""Properties of the ledger: no device is allocated twice or overdrawn, and rows always equal the claims.

A machine grants, releases, prepares and frees at random, publishes devices again, and crashes: a decision
that was computed is discarded, or comes too late because another one was faster. After every step the
properties are checked by counting allocations, without the code of the ledger.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any
from weakref import WeakValueDictionary

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dray.allocator.inventory.device_profiles import DeviceProfileTable
from dray.allocator.inventory.pool_views import PreparedSlice, build_pool_views
from dray.api.codec import decode_document
from dray.api.json_text import write_json
from dray.claims.ledger import grants, prepared_devices
from dray.claims.ledger.audit import ActivePreparation, LedgerSnapshot, audit_ledger
from dray.claims.ledger.grants import LedgerDecision, LedgerTransaction
from dray.claims.ledger.published_devices import (
    PublishedPool,
    build_published_pool,
    is_complete,
    is_sound,
    read_slice,
)
from dray.claims.ledger.rows import Holder
from dray.claims.ledger.stored_claims import StoredClaim, StoredResult, read_claim
from tests.effort import effort
from tests.unit.claims.ledger_objects import DRIVER, POOL, device, slice_of

CLAIMS = [f"c{i}" for i in range(6)]
DEVICES = ["whole", "shared", "part-a", "part-b", "part-c"]
NODES = ["n1", "n2"]
MEMORY, BUDGET = 10, 10


def devices(*, flipped: bool) -> list[dict[str, Any]]:
    return [
        device("whole", memory=str(MEMORY), shared=flipped),
        device("shared", memory=str(MEMORY), shared=not flipped),
        *(device(f"part-{x}", memory=str(MEMORY), shared=x == "a", draws={"c": "4"}) for x in "abc"),
    ]


def pool(generation: int, *, flipped: bool) -> PublishedPool:
    slices = [
        slice_of(devices(flipped=flipped), generation=generation, count=2),
        slice_of(counters={"c": str(BUDGET)}, generation=generation, count=2),
    ]
    return build_published_pool(
        ((f"s{i}".encode(), generation), read_slice(write_json(s))) for i, s in enumerate(slices)
    )


def wanted(name: str, share: str | None, amount: int) -> dict[str, Any]:
    found: dict[str, Any] = {"driver": DRIVER, "pool": POOL, "device": name}
    if share is not None:
        found |= {"shareID": share, "consumedCapacity": {"memory": str(amount)}}
    return found


results = st.lists(
    st.builds(
        wanted,
        st.sampled_from(DEVICES),
        st.none() | st.sampled_from(["s1", "s2", "s3", "s4"]),
        st.sampled_from([6, 4, 0]),
    ),
    min_size=1,
    max_size=3,
)


def document(name: str, uid: str, allocated: list[dict[str, Any]]) -> StoredClaim:
    status = {"allocation": {"devices": {"results": allocated}}} if allocated else {}
    metadata = {"namespace": "default", "name": name, "uid": uid}
    return read_claim(write_json({"metadata": metadata, "status": status}))


class LedgerMachine(RuleBasedStateMachine):
    """Claims, nodes and a ledger."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[bytes, bytes] = {}
        self.claims: dict[str, StoredClaim] = {}
        self.created = 0
        self.generation = 1
        self.published = pool(1, flipped=False)
        self.preparations: dict[str, tuple[str, Holder, tuple[StoredResult, ...]]] = {}

    def catalogue(self, place: tuple[str, str]) -> PublishedPool:
        return self.published

    def books(self) -> LedgerTransaction:
        return LedgerTransaction(self.rows.get)

    def keep(self, ruling: LedgerDecision) -> bool:
        if ruling.denials:
            return False
        for key, value in ruling.changes.items():
            if value is None:
                del self.rows[key]
            else:
                self.rows[key] = value
        return True

    def grant(self, name: str, asked: list[dict[str, Any]]) -> tuple[StoredClaim, LedgerDecision]:
        old = self.claims.get(name)
        if old is None:
            self.created += 1
        uid = f"uid-{self.created}" if old is None else old.metadata.uid
        claim = document(name, uid, asked)
        books = self.books()
        return claim, books.build_decision(
            grants.grant_allocation(books, claim.holder, claim.results, self.catalogue)
        )

    @rule(name=st.sampled_from(CLAIMS), asked=results)
    def allocate(self, name: str, asked: list[dict[str, Any]]) -> None:
        if name in self.claims:
            return
        claim, ruling = self.grant(name, asked)
        if self.keep(ruling):
            self.claims[name] = claim

    @rule(
        name=st.sampled_from(CLAIMS),
        amount=st.sampled_from([6, 4]),
        where=st.sampled_from(["shared", "part-a"]),
    )
    def share(self, name: str, amount: int, where: str) -> None:
        self.allocate(name, [wanted(where, f"share-of-{name}", amount)])

    @rule(names=st.permutations(CLAIMS), first=results, second=results)
    def race(self, names: list[str], first: list[dict[str, Any]], second: list[dict[str, Any]]) -> None:
        """Two are judged on one state; the second finds a row changed and is judged again."""
        free = [name for name in names if name not in self.claims][:2]
        if len(free) < 2:
            return
        before = dict(self.rows)
        one, early = self.grant(free[0], first)
        two, late = self.grant(free[1], second)
        if self.keep(early):
            self.claims[free[0]] = one
        if any(self.rows.get(key) != before.get(key) for key in late.reads):
            two, late = self.grant(free[1], second)
        if self.keep(late):
            self.claims[free[1]] = two

    @rule(name=st.sampled_from(CLAIMS), asked=results)
    def crash(self, name: str, asked: list[dict[str, Any]]) -> None:
        """A server dies between ruling and commit: nothing of it is stored."""
        self.grant(name, asked)

    @rule(name=st.sampled_from(CLAIMS))
    def remove(self, name: str) -> None:
        claim = self.claims.pop(name, None)
        if claim is None:
            return
        books = self.books()
        grants.release_claim(books, claim.metadata.uid, map(grants.get_device_id, claim.results))
        assert self.keep(books.build_decision())

    @rule(name=st.sampled_from(CLAIMS), node=st.sampled_from(NODES))
    def prepare(self, name: str, node: str) -> None:
        claim = self.claims.get(name)
        called = f"{node}-{name}"
        if claim is None or called in self.preparations:
            return
        books = self.books()
        assert self.keep(
            books.build_decision(
                prepared_devices.record_preparation(books, called, node, claim.holder, claim.results)
            )
        )
        self.preparations[called] = (node, claim.holder, claim.results)

    @rule(name=st.sampled_from(CLAIMS), node=st.sampled_from(NODES))
    def unprepare(self, name: str, node: str) -> None:
        if self.preparations.pop(f"{node}-{name}", None) is not None:
            books = self.books()
            prepared_devices.release_preparation(books, f"{node}-{name}")
            assert self.keep(books.build_decision())

    @rule(flipped=st.booleans())
    def publish(self, flipped: bool) -> None:
        self.generation += 1
        self.published = pool(self.generation, flipped=flipped)

    def taken(self) -> dict[str, dict[tuple[str, str | None], int | None]]:
        """Who has what of each device: claims, and nodes that have not let go. None: the whole."""
        found: dict[str, dict[tuple[str, str | None], int | None]] = defaultdict(dict)
        hands = [(claim.metadata.uid, claim.results) for claim in self.claims.values()]
        hands += [(holder.uid, covered) for _, holder, covered in self.preparations.values()]
        for uid, covered in hands:
            for each in covered:
                amount = each.consumed_capacity.get("memory")
                found[each.device][uid, each.share_id] = None if amount is None else amount.to_int()
        return found

    @invariant()
    def nobody_has_what_somebody_else_has(self) -> None:
        for name, holders in self.taken().items():
            amounts = list(holders.values())
            assert None not in amounts or len(amounts) == 1, (name, holders)
            assert sum(amount or 0 for amount in amounts) <= MEMORY, (name, holders)

    @invariant()
    def counters_are_not_overdrawn(self) -> None:
        assert 4 * sum(name.startswith("part") for name in self.taken()) <= BUDGET

    @invariant()
    def the_ledger_is_what_claims_and_preparations_say(self) -> None:
        claims = [((name.encode(), 1), claim) for name, claim in self.claims.items()]
        standing = [
            ActivePreparation(called, node, holder, (called.encode(), 1))
            for called, (node, holder, _) in self.preparations.items()
        ]
        assert audit_ledger(LedgerSnapshot(claims, standing, self.rows), self.catalogue) == []
        if not claims and not standing:
            assert self.rows == {}


LedgerMachine.TestCase.settings = effort(0.6, stateful_step_count=40)
TestLedger = pytest.mark.req("K5075-003", "K5075-129")(LedgerMachine.TestCase)


@st.composite
def pages(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Slices of one pool, complete or not, sound or not."""
    found = []
    for _ in range(draw(st.integers(1, 4))):
        names = draw(st.lists(st.sampled_from("abcd"), max_size=2))
        lent = [
            device(
                name, memory="1", shared=draw(st.booleans()), **({"draws": {"c": "1"}} if name == "a" else {})
            )
            for name in names
        ]
        counters = {"c": "3"} if not lent and draw(st.booleans()) else None
        found.append(
            slice_of(lent, counters, generation=draw(st.integers(1, 2)), count=draw(st.integers(1, 3)))
        )
    return found


@given(pages())
def test_the_ledger_evaluates_pools_as_the_allocator_does(found: list[dict[str, Any]]) -> None:
    contents = DeviceProfileTable(lambda expression, driver, device: True)
    named = [slice_ | {"metadata": {"name": f"s{i}"}} for i, slice_ in enumerate(found)]
    everything = [PreparedSlice(decode_document(slice_).object, contents) for slice_ in named]
    newest = max(slice_["spec"]["pool"]["generation"] for slice_ in named)
    edition = [
        ((slice_["metadata"]["name"].encode(), 1), read_slice(write_json(slice_)))
        for slice_ in named
        if slice_["spec"]["pool"]["generation"] == newest
    ]
    entries = [(page, tuple(range(len(page.profiles)))) for page in everything]
    (shelf,) = build_pool_views((DRIVER, POOL), entries, everything, WeakValueDictionary())
    assert (shelf.flaw is None) == (is_complete(edition) and is_sound(edition))
    if shelf.flaw is None:
        seen = build_published_pool(edition)
        assert set(shelf.names) == set(seen.devices)
        for name, content in zip(shelf.names, shelf.profiles, strict=True):
            facts = seen.devices[name]
            assert facts.shareable == content.shareable
            assert {key: amount.nanos for key, amount in facts.capacity.items()} == content.totals
        totals = {
            (group, name): amount.nanos
            for group, (amounts, _) in seen.counters.items()
            for name, amount in amounts.items()
        }
        assert totals == dict(shelf.counters)
