"""The ledger grants what the allocator allocates.

Both count which devices are in use, each in its own way: the allocator from claims, for a node; the ledger
from rows, for the cluster. If the ledger denied what the allocator finds, a scheduler would retry forever. If
it granted what the allocator counts as in use, it would protect nothing.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dray.api.json_text import write_json
from dray.claims.ledger import grants
from dray.claims.ledger.grants import LedgerTransaction
from dray.claims.ledger.published_devices import EMPTY_POOL, build_published_pool, read_slice
from dray.claims.ledger.rows import Holder
from tests.brute.generators import draw
from tests.brute.laws import results_of

FEATURES = ("held", "counters", "two_nodes")
SOURCES = st.randoms(use_true_random=False)

problems = SOURCES.map(lambda source: draw(source, always=FEATURES)) | SOURCES.map(
    # Among flawed pools are those with one name on two nodes.
    lambda source: draw(source, always=(*FEATURES, "flawed"))
)


class Ledger:
    """A ledger for the slices of a problem."""

    def __init__(self, slices):
        self.rows: dict[bytes, bytes] = {}
        pools: dict[Any, list[Any]] = {}
        for number, item in enumerate(slices):
            source = (f"slice-{number}".encode(), number + 1)
            pool = (item.spec.driver, item.spec.pool.name)
            pools.setdefault(pool, []).append((source, read_slice(write_json(item))))
        self._pools = {pool: build_published_pool(items) for pool, items in pools.items()}

    def grant(self, name, allocation):
        """What speaks against an allocation; nothing when it was entered."""
        books = LedgerTransaction(self.rows.get)
        holder = Holder(namespace="ml", name=name, uid=name)
        selector = allocation.node_selector
        node = "" if selector is None else selector.only_node
        results = allocation.devices.results
        denied = grants.grant_allocation(
            books, holder, results, lambda pool: self._pools.get(pool, EMPTY_POOL), node
        )
        for key, row in books.build_decision().changes.items() if not denied else ():
            if row is None:
                del self.rows[key]
            else:
                self.rows[key] = row
        return [denial.message for denial in denied]


def has_one_generation(problem):
    """While a driver publishes anew, a node may still use the old generation; the ledger has the new one."""
    said = {(item.spec.driver, item.spec.pool.name, item.spec.pool.generation) for item in problem.slices}
    return len(said) == len({(driver, pool) for driver, pool, _ in said})


def has_namesakes(problem):
    """Whether a pool has devices of one name in several slices."""
    names = [
        (item.spec.driver, item.spec.pool.name, device.name)
        for item in problem.slices
        for device in item.spec.devices
    ]
    return len(set(names)) < len(names)


def granted_before(problem):
    """A ledger with what is held; None when that contradicts itself already."""
    kept = Ledger(problem.slices)
    for number, claim in enumerate(problem.held):
        if kept.grant(f"held-{number}", claim.status.allocation):
            return None
    return kept


@given(problem=problems)
def test_what_the_allocator_gives_the_ledger_grants(problem):
    kept, found = granted_before(problem), results_of(problem)
    if kept is None or found is None or not has_one_generation(problem):
        return
    # Claims are written one by one. A name that stands on two nodes draws for both once the first is written.
    for number, allocation in enumerate(found[:1] if has_namesakes(problem) else found):
        assert kept.grant(f"new-{number}", allocation) == []


def test_what_was_granted_is_not_granted_again():
    """The law is not empty: many problems come this far, and the second claim for the same is denied."""
    denied = 0
    for number in range(300):
        problem = draw(Random(f"again/{number}"), always=FEATURES)
        kept, found = granted_before(problem), results_of(problem)
        if kept is None or not found or not has_one_generation(problem):
            continue
        exclusive = [r for r in found[0].devices.results if r.share_id is None and not r.admin_access]
        kept.grant("first", found[0])
        if exclusive:
            assert kept.grant("second", found[0])
            denied += 1
    assert denied > 20
