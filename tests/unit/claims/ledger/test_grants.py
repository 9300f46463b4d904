"""The ledger: whole devices, shares, counters, quarantine."""

from __future__ import annotations

import pytest

from dray.claims.ledger import grants
from dray.claims.ledger.grants import LedgerTransaction
from dray.claims.ledger.published_devices import EMPTY_POOL
from tests.unit.claims.ledger_objects import Ledger, claim, device, result, slice_of

GPU = result("gpu-0")
SHARED = slice_of([device("gpu-0", memory="40Gi", shared=True)])


@pytest.mark.req("K5075-129")
def test_a_device_as_a_whole_has_one_holder():
    books = Ledger(slice_of([device("gpu-0")]))
    assert books.grant("a", GPU) == []
    assert books.grant("b", GPU) == ["device gpu.example.com/pool/gpu-0 is held by claim default/a"]
    books.release("a", GPU)
    assert books.rows == {}
    assert books.grant("b", GPU) == []


def test_every_device_in_the_way_is_named():
    books = Ledger(slice_of([device("gpu-0"), device("gpu-1"), device("gpu-2")]))
    books.grant("a", GPU)
    books.grant("b", result("gpu-2"))
    assert books.grant("c", GPU, result("gpu-1"), result("gpu-2")) == [
        "device gpu.example.com/pool/gpu-0 is held by claim default/a",
        "device gpu.example.com/pool/gpu-2 is held by claim default/b",
    ]
    assert books.devices() == ["gpu-0", "gpu-2"]


def test_admin_access_holds_nothing():
    books = Ledger(slice_of([device("gpu-0")]))
    assert books.grant("a", GPU) == []
    assert books.grant("admin", result("gpu-0", admin=True)) == []
    assert books.grant("other", result("gpu-1", admin=True)) == []
    assert books.devices() == ["gpu-0"]


def test_the_same_claim_asking_again_changes_nothing():
    books = Ledger(SHARED)
    share = result("gpu-0", share="s1", memory="10Gi")
    assert books.grant("a", share) == []
    before = dict(books.rows)
    reads = LedgerTransaction(books.rows.get)
    assert grants.grant_allocation(reads, claim("a"), [share], books.catalogue) == []
    assert reads.build_decision().changes == {}
    assert books.rows == before


def test_another_claim_of_the_same_name_is_another_claim():
    books = Ledger(slice_of([device("gpu-0")]))
    assert books.grant("a", GPU) == []
    assert books.grant("a", GPU, uid="uid-later") == [
        "device gpu.example.com/pool/gpu-0 is held by claim default/a"
    ]


def test_one_allocation_names_a_device_once():
    books = Ledger(slice_of([device("gpu-0")]))
    assert books.grant("a", GPU, GPU) == [
        "device gpu.example.com/pool/gpu-0 is named twice in this allocation"
    ]


def test_an_unpublished_device_can_be_held_as_a_whole_but_not_shared():
    books = Ledger()
    assert books.grant("a", GPU) == []
    assert books.grant("b", result("gpu-1", share="s", memory="1Gi")) == [
        "device gpu.example.com/pool/gpu-1 is not published by any slice, "
        "so nothing is known of what a share may take"
    ]


@pytest.mark.req("K5075-003", "K5075-083")
def test_shares_fit_the_capacity_together():
    books = Ledger(SHARED)
    assert books.grant("a", result("gpu-0", share="s1", memory="20Gi")) == []
    assert books.grant("b", result("gpu-0", share="s2", memory="16Gi")) == []
    assert books.grant("c", result("gpu-0", share="s3", memory="10Gi")) == [
        "capacity memory of device gpu.example.com/pool/gpu-0: 10Gi asked, 4Gi left of 40Gi, "
        "shares: default/a 20Gi, default/b 16Gi"
    ]
    assert books.grant("c", result("gpu-0", share="s3", memory="4Gi")) == []
    books.release("a", result("gpu-0"))
    assert books.grant("d", result("gpu-0", share="s4", memory="20Gi")) == []


def test_negative_amounts_add_nothing():
    books = Ledger(SHARED)
    assert books.grant("a", result("gpu-0", share="s1", memory="-40Gi")) == []
    assert books.grant("b", result("gpu-0", share="s2", memory="41Gi")) == [
        "capacity memory of device gpu.example.com/pool/gpu-0: 41Gi asked, 40Gi left of 40Gi, "
        "shares: default/a 0"
    ]


def test_a_capacity_that_is_not_published_cannot_be_shared():
    books = Ledger(SHARED)
    assert books.grant("a", result("gpu-0", share="s1", cores="1")) == [
        "capacity cores of device gpu.example.com/pool/gpu-0 is not published: 1 asked"
    ]


def test_a_claim_can_have_two_shares_of_one_device():
    books = Ledger(SHARED)
    both = (result("gpu-0", share="s1", memory="20Gi"), result("gpu-0", share="s2", memory="20Gi"))
    assert books.grant("a", *both) == []
    assert [held.share for held in books.row("gpu-0").holdings] == ["s1", "s2"]  # type: ignore[union-attr]
    books.release("a", *both)
    assert books.rows == {}


@pytest.mark.req("K5075-079")
def test_share_ids_of_a_device_differ():
    books = Ledger(SHARED)
    assert books.grant("a", result("gpu-0", share="s1", memory="1Gi")) == []
    assert books.grant("b", result("gpu-0", share="s1", memory="1Gi")) == [
        "share id s1 of device gpu.example.com/pool/gpu-0 is in use by claim default/a; draw another one"
    ]


def test_shares_keep_the_whole_from_everybody_and_the_whole_all_shares():
    books = Ledger(SHARED)
    share = result("gpu-0", share="s1", memory="1Gi")
    assert books.grant("a", share) == []
    assert books.grant("b", GPU) == [
        "device gpu.example.com/pool/gpu-0 is shared by claim default/a; "
        "a device as a whole needs all shares to be given back"
    ]
    books.release("a", share)
    assert books.grant("b", GPU) == []
    assert books.grant("a", share) == ["device gpu.example.com/pool/gpu-0 is held by claim default/b"]


@pytest.mark.req("K5075-097")
def test_a_shared_device_that_becomes_dedicated_is_in_use_for_everyone_until_the_last_share_is_gone():
    books = Ledger(SHARED)
    share = result("gpu-0", share="s1", memory="1Gi")
    assert books.grant("a", share) == []
    books.publish(slice_of([device("gpu-0", memory="40Gi")]))
    assert books.grant("b", result("gpu-0", share="s2", memory="1Gi")) == [
        "device gpu.example.com/pool/gpu-0 does not allow multiple allocations; "
        "it is still in use by claim default/a, who got shares before"
    ]
    assert len(books.grant("c", GPU)) == 1
    books.release("a", share)
    assert books.grant("c", GPU) == []


@pytest.mark.req("K5075-023", "K5075-096")
def test_a_dedicated_device_that_becomes_shared_stays_blocked_by_its_holder():
    books = Ledger(slice_of([device("gpu-0", memory="40Gi")]))
    assert books.grant("a", GPU) == []
    books.publish(SHARED)
    assert books.grant("b", result("gpu-0", share="s1", memory="1Gi")) == [
        "device gpu.example.com/pool/gpu-0 is held by claim default/a"
    ]


PARTS = slice_of([device(f"part-{i}", draws={"c": "4"}) for i in range(3)], generation=1, count=2)
BUDGET = slice_of(counters={"c": "10"}, generation=1, count=2)


@pytest.mark.req("K5075-006")
def test_counters_are_charged_once_per_device_and_given_back_with_the_last_share():
    shared = slice_of([device("part-0", memory="8Gi", shared=True, draws={"c": "4"})], count=2)
    books = Ledger(shared, BUDGET)
    first, second = result("part-0", share="s1", memory="1Gi"), result("part-0", share="s2", memory="1Gi")
    assert books.grant("a", first) == []
    assert books.grant("b", second) == []
    assert books.charged() == "4"
    books.release("a", first)
    assert books.charged() == "4"
    books.release("b", second)
    assert books.rows == {}


def test_counters_are_not_overdrawn():
    books = Ledger(PARTS, BUDGET)
    assert books.grant("a", result("part-0"), result("part-1")) == []
    assert books.grant("b", result("part-2")) == [
        "counter c of set gpu.example.com/pool/set: device gpu.example.com/pool/part-2 draws 4, "
        "2 left of 10; devices that overlap with it are in use"
    ]
    assert books.devices() == ["part-0", "part-1"]
    books.release("a", result("part-0"), result("part-1"))
    assert books.counter_sets() == []


def test_what_was_charged_is_given_back_whatever_is_published_by_then():
    books = Ledger(PARTS, BUDGET)
    assert books.grant("a", result("part-0")) == []
    books.publish(slice_of([device("part-0", draws={"c": "9"})], count=2), BUDGET)
    books.release("a", result("part-0"))
    assert books.rows == {}


def test_a_counter_that_is_not_published_cannot_be_drawn_from():
    books = Ledger(slice_of([device("part-0", draws={"c": "4"})]))
    assert books.grant("a", result("part-0")) == [
        "device gpu.example.com/pool/part-0 draws from counter set gpu.example.com/pool/set, "
        "which is not published; wait for the driver to publish it"
    ]


def test_a_device_let_go_while_prepared_is_quarantined_until_the_node_confirms():
    books = Ledger(slice_of([device("gpu-0")]))
    books.grant("old", GPU)
    assert books.prepare("old", "n1", GPU) == []
    books.release("old", GPU)
    assert books.grant("new", GPU) == [
        "device gpu.example.com/pool/gpu-0 is quarantined on node n1: claim default/old was removed while "
        "prepared; confirm release or run `dray fence node n1`"
    ]
    assert books.free("n1-old") == ["gpu-0"]
    assert books.rows == {}
    assert books.grant("new", GPU) == []


def test_a_claim_prepared_on_two_nodes_needs_both_to_let_go():
    books = Ledger(slice_of([device("gpu-0")]))
    books.grant("old", GPU)
    books.prepare("old", "n1", GPU)
    books.prepare("old", "n2", GPU)
    books.release("old", GPU)
    assert books.free("n1-old") == []
    assert len(books.grant("new", GPU)) == 1
    assert books.free("n2-old") == ["gpu-0"]


def test_a_node_that_lets_go_first_leaves_nothing_behind():
    books = Ledger(slice_of([device("gpu-0")]))
    books.grant("a", GPU)
    books.prepare("a", "n1", GPU)
    assert books.free("n1-a") == []
    books.release("a", GPU)
    assert books.rows == {}


def test_quarantined_shares_count():
    books = Ledger(SHARED)
    share = result("gpu-0", share="s1", memory="30Gi")
    books.grant("old", share)
    books.prepare("old", "n1", share)
    books.release("old", share)
    assert books.grant("new", result("gpu-0", share="s2", memory="20Gi")) == [
        "capacity memory of device gpu.example.com/pool/gpu-0: 20Gi asked, 10Gi left of 40Gi, "
        "shares: default/old (quarantined on node n1) 30Gi"
    ]
    assert books.grant("new", result("gpu-0", share="s2", memory="10Gi")) == []
    assert len(books.grant("whole", GPU)) == 1


def test_quarantine_keeps_counters_charged():
    books = Ledger(PARTS, BUDGET)
    books.grant("old", result("part-0"))
    books.prepare("old", "n1", result("part-0"))
    books.release("old", result("part-0"))
    assert books.charged() == "4"
    books.free("n1-old")
    assert books.counter_sets() == []


def test_a_preparation_covers_the_allocation_it_was_made_for():
    books = Ledger(slice_of([device("gpu-0"), device("gpu-1")]))
    books.grant("a", GPU)
    books.prepare("a", "n1", GPU, preparation="first")
    books.release("a", GPU)
    books.grant("a", result("gpu-1"))
    books.prepare("a", "n1", result("gpu-1"), preparation="second")
    assert books.free("first") == ["gpu-0"]
    books.release("a", result("gpu-1"))
    assert len(books.grant("b", result("gpu-1"))) == 1
    assert books.free("second") == ["gpu-1"]


def test_a_claim_does_not_get_its_own_device_out_of_quarantine():
    books = Ledger(slice_of([device("gpu-0")]))
    books.grant("a", GPU)
    books.prepare("a", "n1", GPU)
    books.release("a", GPU)
    assert len(books.grant("a", GPU)) == 1


def test_nothing_can_be_prepared_that_the_ledger_does_not_know():
    books = Ledger(slice_of([device("gpu-0")]))
    assert books.prepare("a", "n1", GPU) == [
        "the ledger does not know that the claim has device gpu.example.com/pool/gpu-0; "
        "see `dray doctor ledger`"
    ]
    assert books.free("never-there") == []


def test_a_grant_names_the_slices_it_relied_on():
    pool = Ledger(PARTS, BUDGET)
    books = LedgerTransaction(pool.rows.get)
    assert grants.grant_allocation(books, claim("a"), [result("part-0")], pool.catalogue) == []
    assert books.build_decision().sources == {(b"slice-0", 1), (b"slice-1", 2)}
    assert len(books.build_decision().reads) == 2
    nowhere = LedgerTransaction(pool.rows.get)
    assert grants.grant_allocation(nowhere, claim("a"), [result("part-0")], lambda pool: EMPTY_POOL) == []
    assert nowhere.build_decision().sources == frozenset()
