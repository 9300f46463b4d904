"""The guard's ledger: stored and admitted allocations, and what a denial says."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.json_text import write_json
from dray.claims.ledger import grants
from dray.claims.ledger.published_devices import read_slice
from dray.claims.ledger.rows import Holder
from dray.claims.ledger.stored_claims import StoredResult
from dray.guard.admitted import MAX_PER_CLAIM
from dray.guard.allocation_ledger import AllocationLedger
from dray.guard.conflicts import AllocationConflict
from dray.guard.reviews import AllocationReview
from dray.guard.seen_objects import PodReference, SeenClaim, SeenSlice
from dray.values.quantity import Quantity
from tests.unit.claims.ledger_objects import DRIVER, POOL, device, slice_of

Results = tuple[StoredResult, ...]


def result(name: str, share: str | None = None, memory: str = "", **more: Any) -> StoredResult:
    consumed = {"memory": Quantity.parse(memory)} if memory else {}
    return StoredResult(
        driver=DRIVER, pool=POOL, device=name, share_id=share, consumed_capacity=consumed, **more
    )


def holder(name: str) -> Holder:
    return Holder(namespace="default", name=name, uid=f"uid-of-{name}")


def claim(name: str, revision: int, *results: StoredResult, pods: tuple[PodReference, ...] = ()) -> SeenClaim:
    held = tuple(grants.list_holdings(holder(name), results))
    return SeenClaim(holder(name), revision, bool(results), held, pods)


def write(name: str, revision: int, *results: StoredResult, before: Results = ()) -> AllocationReview:
    return AllocationReview("review", holder(name), revision, results, before)


def published(*documents: dict[str, Any]) -> AllocationLedger:
    ledger = AllocationLedger()
    for number, document in enumerate(documents):
        source = (f"s{number}".encode(), 1)
        seen = SeenSlice((DRIVER, POOL), source, read_slice(write_json(document)))
        ledger.observe_slice(None, seen)
    return ledger


def two_devices() -> AllocationLedger:
    return published(slice_of([device("gpu-0"), device("gpu-1")]))


def admit(ledger: AllocationLedger, review: AllocationReview, now: float = 0.0) -> None:
    assert ledger.review(review).is_granted
    ledger.admit(review, now)


def reasons(ledger: AllocationLedger, review: AllocationReview) -> list[str]:
    return [denial.reason.value for denial in ledger.review(review).denials]


def test_an_admitted_allocation_holds_its_device_before_the_watch_shows_it():
    ledger = two_devices()
    ledger.observe_claim(claim("a", 5))
    ledger.observe_claim(claim("b", 6))
    admit(ledger, write("a", 5, result("gpu-0")), now=10.0)
    verdict = ledger.review(write("b", 6, result("gpu-0")))
    (denial,) = ledger.explain(verdict, 10.012)
    assert denial.message == (
        "device gpu.example.com/pool/gpu-0 is held by claim default/a (default/a was admitted 12 ms ago and "
        "is not stored yet); allocate another device, or wait until that claim is deallocated"
    )
    assert verdict.stored_holders == ()
    ledger.observe_claim(claim("a", 7, result("gpu-0")))
    assert len(ledger.admitted) == 0
    verdict = ledger.review(write("b", 6, result("gpu-0")))
    assert "(default/a is stored at revision 7)" in ledger.explain(verdict, 11.0)[0].message
    assert verdict.stored_holders == (holder("a"),)


def test_the_revision_that_was_admitted_does_not_end_it_and_any_later_one_does():
    ledger = two_devices()
    admit(ledger, write("a", 5, result("gpu-0")))
    ledger.observe_claim(claim("a", 4))
    ledger.observe_claim(claim("a", 5))
    assert reasons(ledger, write("b", 6, result("gpu-0"))) == ["DeviceHeld"]
    ledger.observe_claim(claim("a", 8))
    assert reasons(ledger, write("b", 6, result("gpu-0"))) == []


def test_two_writes_for_one_revision_hold_the_devices_of_both_until_one_is_seen():
    ledger = two_devices()
    ledger.observe_claim(claim("a", 5))
    admit(ledger, write("a", 5, result("gpu-0")))
    admit(ledger, write("a", 5, result("gpu-1")))
    for name in ("gpu-0", "gpu-1"):
        assert reasons(ledger, write("b", 6, result(name))) == ["DeviceHeld"]
    ledger.observe_claim(claim("a", 7, result("gpu-1")))
    assert reasons(ledger, write("b", 6, result("gpu-0"))) == []
    assert reasons(ledger, write("b", 6, result("gpu-1"))) == ["DeviceHeld"]


def test_a_repeated_write_counts_once_and_too_many_different_ones_are_not_admitted():
    ledger = published(slice_of([device(f"gpu-{i}") for i in range(MAX_PER_CLAIM)]))
    for _ in range(3):
        admit(ledger, write("a", 5, result("gpu-0")))
    assert len(ledger.admitted) == 1
    for i in range(MAX_PER_CLAIM):
        assert ledger.admitted.can_admit("uid-of-a")
        admit(ledger, write("a", 5, result(f"gpu-{i}")))
    assert not ledger.admitted.can_admit("uid-of-a")
    assert ledger.admitted.can_admit("uid-of-b")


def test_a_deallocation_frees_when_the_watch_shows_it():
    ledger = two_devices()
    ledger.observe_claim(claim("a", 5, result("gpu-0")))
    assert reasons(ledger, write("b", 6, result("gpu-0"))) == ["DeviceHeld"]
    ledger.observe_claim(claim("a", 9))
    assert reasons(ledger, write("b", 6, result("gpu-0"))) == []


def test_what_a_claim_has_already_is_always_granted_and_recorded_nowhere():
    ledger = two_devices()
    ledger.observe_claim(claim("a", 5, result("gpu-0")))
    again = write("a", 5, result("gpu-0"), before=(result("gpu-0"), result("gpu-1")))
    admit(ledger, again)
    assert len(ledger.admitted) == 0


def test_a_claim_that_takes_its_device_again_after_an_unseen_deallocation_holds_it():
    """The watch shows the deallocation after the new write was admitted: the device must not become free."""
    ledger = two_devices()
    ledger.observe_claim(claim("a", 5, result("gpu-0")))
    admit(ledger, write("a", 7, result("gpu-0")))
    ledger.observe_claim(claim("a", 7))
    assert reasons(ledger, write("b", 6, result("gpu-0"))) == ["DeviceHeld"]


def test_a_write_that_replaces_an_old_revision_is_outdated():
    ledger = two_devices()
    ledger.observe_claim(claim("a", 5))
    assert not ledger.is_outdated(write("a", 5))
    assert not ledger.is_outdated(write("a", 6))
    assert ledger.is_outdated(write("a", 4))


def test_admin_access_holds_nothing():
    ledger = two_devices()
    admit(ledger, write("a", 5, result("gpu-0", admin_access=True)))
    assert len(ledger.admitted) == 0
    ledger.observe_claim(claim("b", 6, result("gpu-0")))
    assert reasons(ledger, write("c", 7, result("gpu-0", admin_access=True))) == []


def test_shares_add_up_over_stored_and_admitted_ones():
    ledger = published(slice_of([device("gpu-0", memory="40Gi", shared=True)]))
    ledger.observe_claim(claim("a", 5, result("gpu-0", "s1", "20Gi")))
    admit(ledger, write("b", 6, result("gpu-0", "s2", "15Gi")))
    verdict = ledger.review(write("c", 7, result("gpu-0", "s3", "10Gi")))
    assert verdict.denials[0].message.startswith(
        "capacity memory of device gpu.example.com/pool/gpu-0: 10Gi asked, 5Gi left of 40Gi"
    )
    assert verdict.stored_holders == (holder("a"),)
    assert reasons(ledger, write("c", 7, result("gpu-0"))) == ["DeviceShared"]
    assert reasons(ledger, write("c", 7, result("gpu-0", "s2", "1Gi"))) == ["ShareIDInUse"]


def test_a_claim_that_names_a_device_twice_is_denied():
    ledger = two_devices()
    assert reasons(ledger, write("a", 5, result("gpu-0"), result("gpu-0"))) == ["DeviceTwice"]


def test_of_several_devices_each_that_is_held_is_denied_with_its_place():
    ledger = published(slice_of([device(f"gpu-{number}") for number in range(3)]))
    ledger.observe_claim(claim("a", 5, result("gpu-0")))
    admit(ledger, write("b", 6, result("gpu-2")))
    verdict = ledger.review(write("c", 7, result("gpu-0"), result("gpu-1"), result("gpu-2")))
    assert [(denial.position, denial.device.device) for denial in verdict.denials if denial.device] == [
        (0, "gpu-0"),
        (2, "gpu-2"),
    ]
    assert reasons(ledger, write("d", 8, result("gpu-1"))) == []


def test_what_expires_is_free_and_later_writes_of_the_claim_are_not():
    ledger = two_devices()
    ledger.observe_claim(claim("a", 5))
    admit(ledger, write("a", 5, result("gpu-0")), now=10.0)
    admit(ledger, write("a", 5, result("gpu-1")), now=20.0)
    ledger.expire("uid-of-a", 15.0)
    assert reasons(ledger, write("b", 6, result("gpu-0"))) == []
    assert reasons(ledger, write("b", 6, result("gpu-1"))) == ["DeviceHeld"]


def test_devices_that_no_slice_publishes_are_told_unless_the_claim_has_them():
    ledger = two_devices()
    new, old, admin = result("gone"), result("old"), result("other", admin_access=True)
    review = write("a", 5, new, old, admin, result("gpu-0"), before=(old,))
    assert [each.device for each in ledger.list_unpublished(review)] == ["gone"]


def partitions(generation: int = 1, draw: str = "4") -> list[dict[str, Any]]:
    parts = [device(f"part-{x}", draws={"c": draw}) for x in "abc"]
    return [
        slice_of(parts, generation=generation, count=2),
        slice_of(counters={"c": "10"}, generation=generation, count=2),
    ]


def test_counters_follow_the_slices_that_are_published_now():
    ledger = published(*partitions())
    admit(ledger, write("a", 5, result("part-a")))
    admit(ledger, write("b", 6, result("part-b")))
    verdict = ledger.review(write("c", 7, result("part-c")))
    assert [denial.reason.value for denial in verdict.denials] == ["CounterExceeded"]
    old = [
        SeenSlice((DRIVER, POOL), (f"s{i}".encode(), 1), read_slice(write_json(d)))
        for i, d in enumerate(partitions())
    ]
    new = [
        SeenSlice((DRIVER, POOL), (f"s{i}".encode(), 2), read_slice(write_json(d)))
        for i, d in enumerate(partitions(generation=2, draw="3"))
    ]
    for before, after in zip(old, new, strict=True):
        ledger.observe_slice(before, after)
    assert reasons(ledger, write("c", 7, result("part-c"))) == []
    for each in new:
        ledger.observe_slice(each, None)
    assert reasons(ledger, write("c", 7, result("part-c"))) == ["DeviceNotPublished"]


def test_a_device_of_no_slice_can_be_held_as_a_whole_and_not_shared():
    ledger = two_devices()
    assert reasons(ledger, write("a", 5, result("gone"))) == []
    assert reasons(ledger, write("a", 5, result("gone", "s1", "1Gi"))) == ["DeviceNotPublished"]


def test_a_claim_that_is_deleted_while_pods_have_its_devices_keeps_them_until_it_is_released():
    ledger = two_devices()
    pods = (PodReference("default", "p", "uid-of-p"),)
    ledger.observe_deletion(claim("a", 5, result("gpu-0"), pods=pods))
    assert list(ledger.orphans) == ["uid-of-a"]
    assert reasons(ledger, write("b", 6, result("gpu-0"))) == ["DeviceHeld"]
    ledger.release("uid-of-a")
    assert reasons(ledger, write("b", 6, result("gpu-0"))) == []
    ledger.observe_claim(claim("c", 7, result("gpu-1")))
    ledger.observe_deletion(claim("c", 7, result("gpu-1")))
    assert ledger.orphans == {}
    assert ledger.claims == {}
    assert ledger.list_rows() == {}


@pytest.mark.parametrize(
    ("documents", "first", "second", "message"),
    [
        (
            [slice_of([device("gpu-0")])],
            result("gpu-0"),
            result("gpu-0"),
            "device gpu.example.com/pool/gpu-0 is held by claims default/a and default/b, and at least one "
            "of them has it as a whole",
        ),
        (
            [slice_of([device("gpu-0", memory="40Gi", shared=True)])],
            result("gpu-0", "s1", "30Gi"),
            result("gpu-0", "s2", "20Gi"),
            "claims default/a and default/b have 50Gi of capacity memory of device "
            "gpu.example.com/pool/gpu-0, which has 40Gi",
        ),
        (
            partitions(draw="6"),
            result("part-a"),
            result("part-b"),
            "devices of claims default/a and default/b draw 12 from counter c of set "
            "gpu.example.com/pool/set, which has 10",
        ),
    ],
    ids=["device", "capacity", "counter"],
)
def test_stored_claims_in_conflict_are_found_and_end_with_the_conflict(
    documents: list[dict[str, Any]], first: StoredResult, second: StoredResult, message: str
):
    ledger = published(*documents)
    found: list[AllocationConflict] = []
    ledger.conflicts.on_found = found.append
    ledger.observe_claim(claim("a", 5, first))
    assert len(ledger.conflicts) == 0
    ledger.observe_claim(claim("b", 6, second))
    assert [conflict.message for conflict in ledger.conflicts.list_conflicts()] == [message]
    assert found == ledger.conflicts.list_conflicts()
    ledger.observe_claim(at_revision(claim("a", 5, first), 8))
    assert len(found) == 1
    ledger.observe_claim(claim("b", 9))
    assert len(ledger.conflicts) == 0


def at_revision(seen: SeenClaim, revision: int) -> SeenClaim:
    return SeenClaim(seen.holder, revision, seen.is_allocated, seen.holdings, seen.pods)
