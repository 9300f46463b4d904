"""Properties of the guard: in whatever order writes, answers and events come, no device is held twice by what
is stored, and a guard that has seen everything knows exactly what is stored.

The machine is an API server as far as admission goes: a write is reviewed against a revision of its claim,
which may be outdated, and is stored later, or never, and only if the claim is still at that revision. Events
reach the guard late. A guard may be replaced by another one at any moment, which knows only what is stored,
and fences the claims that have no allocation.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dray.api.json_text import write_json
from dray.claims.ledger import grants
from dray.claims.ledger.published_devices import read_slice
from dray.claims.ledger.rows import Holder
from dray.claims.ledger.stored_claims import StoredResult
from dray.guard.allocation_ledger import AllocationLedger
from dray.guard.reviews import AllocationReview
from dray.guard.seen_objects import SeenClaim, SeenSlice
from dray.values.quantity import Quantity
from tests.effort import effort
from tests.property.test_ledger_laws import BUDGET, MEMORY, devices, results, wanted
from tests.unit.claims.ledger_objects import DRIVER, POOL, slice_of

NAMES = [f"c{i}" for i in range(5)]
Results = tuple[StoredResult, ...]


@dataclass(frozen=True)
class Stored:
    """A claim in the store."""

    holder: Holder
    revision: int
    allocated: Results = ()

    def seen(self) -> SeenClaim:
        held = tuple(grants.list_holdings(self.holder, self.allocated))
        return SeenClaim(self.holder, self.revision, bool(self.allocated), held)


def converted(asked: list[dict[str, Any]]) -> Results:
    return tuple(msgspec.json.decode(write_json(asked), type=tuple[StoredResult, ...], dec_hook=_quantity))


def _quantity(wanted: type, value: Any) -> Any:
    return Quantity.from_json_value(value)


class GuardMachine(RuleBasedStateMachine):
    """Claims, writes on their way, events on their way, and the guard."""

    def __init__(self) -> None:
        super().__init__()
        self.revision = 1
        self.created = 0
        self.claims: dict[str, Stored] = {}
        self.history: dict[str, list[Stored]] = defaultdict(list)
        self.events: deque[tuple[str, Stored]] = deque()
        self.writes: list[tuple[str, AllocationReview]] = []
        self.generation = 0
        self.flipped = False
        self.guard = AllocationLedger()
        self.slices: list[SeenSlice] = []
        self.publish(flipped=False)

    # --- the store ---

    def put(self, name: str, claim: Stored) -> None:
        self.claims[name] = claim
        self.history[name].append(claim)
        self.events.append(("put", claim))

    def advance(self) -> int:
        self.revision += 1
        return self.revision

    @rule(name=st.sampled_from(NAMES))
    def create(self, name: str) -> None:
        if name not in self.claims:
            self.created += 1
            holder = Holder(namespace="default", name=name, uid=f"uid-{self.created}")
            self.history[name].clear()
            self.put(name, Stored(holder, self.advance()))

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        if name in self.claims:
            self.advance()
            self.events.append(("deleted", self.claims.pop(name)))

    @rule(name=st.sampled_from(NAMES))
    def deallocate(self, name: str) -> None:
        if name in self.claims:
            self.put(name, Stored(self.claims[name].holder, self.advance()))

    @rule(name=st.sampled_from(NAMES))
    def label(self, name: str) -> None:
        """Somebody writes something else."""
        if name in self.claims:
            old = self.claims[name]
            self.put(name, Stored(old.holder, self.advance(), old.allocated))

    # --- writes ---

    @rule(name=st.sampled_from(NAMES), asked=results, age=st.sampled_from([0, 0, 0, 1, 2]))
    def ask(self, name: str, asked: list[dict[str, Any]], age: int) -> None:
        """A scheduler writes an allocation; the API server may read the claim from an outdated cache."""
        if name not in self.claims:
            return
        old = self.history[name][max(0, len(self.history[name]) - 1 - age)]
        if old.allocated:
            return
        review = AllocationReview("r", old.holder, old.revision, converted(asked))
        if self.guard.is_outdated(review):
            self.writes.append((name, review))
        elif self.guard.review(review).is_granted:
            self.guard.admit(review, 0.0)
            self.writes.append((name, review))

    @rule(
        name=st.sampled_from(NAMES),
        where=st.sampled_from(["shared", "part-a"]),
        amount=st.sampled_from([6, 4]),
    )
    def ask_for_share(self, name: str, where: str, amount: int) -> None:
        self.ask(name, [wanted(where, f"share-of-{name}-{amount}", amount)], 0)

    @rule(which=st.integers(0, 20))
    def commit(self, which: int) -> None:
        """A write that was admitted is stored, if its claim has not changed since."""
        if not self.writes:
            return
        name, review = self.writes.pop(which % len(self.writes))
        claim = self.claims.get(name)
        if claim is not None and (claim.holder.uid, claim.revision) == (review.holder.uid, review.revision):
            self.put(name, Stored(claim.holder, self.advance(), review.allocated or ()))

    # --- the guard ---

    @rule(count=st.integers(1, 4))
    def deliver(self, count: int) -> None:
        for _ in range(min(count, len(self.events))):
            sort, claim = self.events.popleft()
            if sort == "put":
                self.guard.observe_claim(claim.seen())
            else:
                self.guard.observe_deletion(claim.seen())

    @rule()
    def take_over(self) -> None:
        """Another guard begins with a list, and fences what has no allocation; writes may still be stored."""
        self.guard = AllocationLedger()
        for published in self.slices:
            self.guard.observe_slice(None, published)
        self.events.clear()
        for claim in self.claims.values():
            self.guard.observe_claim(claim.seen())
        for name, claim in list(self.claims.items()):
            if not claim.allocated:
                self.put(name, Stored(claim.holder, self.advance()))
        self.deliver(len(self.events))

    @rule(flipped=st.booleans())
    def publish(self, flipped: bool) -> None:
        self.generation += 1
        documents = [
            slice_of(devices(flipped=flipped), generation=self.generation, count=2),
            slice_of(counters={"c": str(BUDGET)}, generation=self.generation, count=2),
        ]
        published = [
            SeenSlice((DRIVER, POOL), (f"s{i}".encode(), self.generation), read_slice(write_json(each)))
            for i, each in enumerate(documents)
        ]
        for i, new in enumerate(published):
            self.guard.observe_slice(self.slices[i] if self.slices else None, new)
        self.slices = published

    # --- what must hold ---

    @invariant()
    def nothing_is_held_twice(self) -> None:
        taken: dict[str, dict[tuple[str, str | None], int | None]] = defaultdict(dict)
        for claim in self.claims.values():
            for each in claim.allocated:
                amount = each.consumed_capacity.get("memory")
                taken[each.device][claim.holder.uid, each.share_id] = (
                    None if amount is None else amount.to_int()
                )
        for name, holders in taken.items():
            amounts = list(holders.values())
            assert None not in amounts or len(amounts) == 1, (name, holders)
            assert sum(amount or 0 for amount in amounts) <= MEMORY, (name, holders)
        assert 4 * sum(name.startswith("part") for name in taken) <= BUDGET

    @invariant()
    def a_guard_that_has_seen_everything_equals_a_new_one(self) -> None:
        if self.events:
            return
        assert {uid: seen.revision for uid, seen in self.guard.claims.items()} == {
            claim.holder.uid: claim.revision for claim in self.claims.values()
        }
        current = {claim.holder.uid: claim.revision for claim in self.claims.values()}
        assert all(each.revision == current[each.holder.uid] for each in self.guard.admitted)
        assert len(self.guard.conflicts) == 0
        if not len(self.guard.admitted):
            fresh = AllocationLedger()
            for published in self.slices:
                fresh.observe_slice(None, published)
            for claim in self.claims.values():
                fresh.observe_claim(claim.seen())
            fresh.refresh_conflicts()
            self.guard.refresh_conflicts()
            assert self.guard.list_rows() == fresh.list_rows()


GuardMachine.TestCase.settings = effort(1.0, stateful_step_count=50)
TestGuard = pytest.mark.req("K5075-003", "K5075-129")(GuardMachine.TestCase)
