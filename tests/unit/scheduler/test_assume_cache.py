"""The assume cache of claims: which version counts, and how long a pending allocation lasts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dray.api.resource import AllocationResult, ResourceClaim
from dray.scheduler import assume_cache
from dray.scheduler.assume_cache import ClaimAssumeCache
from tests.unit.placement.claim_objects import claim, having

Told = list[tuple[ResourceClaim | None, ResourceClaim | None]]


def book() -> tuple[ClaimAssumeCache, Told]:
    told: Told = []
    return ClaimAssumeCache(lambda before, now: told.append((before, now))), told


def at(version: int, known: ResourceClaim, **metadata: Any) -> ResourceClaim:
    return replace(known, metadata=replace(known.metadata, resource_version=str(version), **metadata))


BARE = claim()
GIVEN = having(BARE, "a/d0", where="a")
ALLOCATION = GIVEN.status.allocation or AllocationResult()


def counted(known: ClaimAssumeCache) -> object:
    found = known.get("ml", "c")
    return None if found is None else found.status.allocation


def test_the_higher_version_counts_however_they_come() -> None:
    known, _ = book()
    known.update(at(3, GIVEN))
    known.update(at(2, BARE))
    assert counted(known) == ALLOCATION
    known.update(at(4, BARE))
    assert counted(known) is None
    known.update(at(3, GIVEN))
    assert counted(known) is None


def test_what_is_gone_does_not_come_back() -> None:
    known, _ = book()
    known.update(at(1, BARE))
    known.remove(at(1, BARE))
    known.update(at(2, GIVEN))
    assert known.get("ml", "c") is None
    assert list(known) == []


def test_what_the_watch_shows_again_was_restored() -> None:
    known, _ = book()
    known.add(at(1, BARE))
    known.remove(at(1, BARE))
    known.add(at(1_000_000_001, GIVEN))
    assert counted(known) == ALLOCATION
    known.update(at(1_000_000_002, BARE))
    assert counted(known) is None


def test_another_claim_of_the_same_name_takes_its_place() -> None:
    known, told = book()
    known.update(at(1, GIVEN))
    known.update(at(5, BARE, uid="another"))
    known.remove(at(4, GIVEN))
    found = known.get("ml", "c")
    assert found is not None
    assert found.metadata.uid == "another"
    assert known.get_stored(GIVEN) is None
    # The devices of the first were given back before the second was there.
    assert [now for _, now in told][1] is None
    known.update(at(3, GIVEN, uid="an older one"))
    assert known.get("ml", "c") is found


def test_only_so_many_deleted_claims_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assume_cache, "MAX_DELETED_REMEMBERED", 2)
    known, _ = book()
    for uid in ("one", "two", "three"):
        known.remove(at(1, BARE, uid=uid))
    known.update(at(2, BARE, uid="three"))
    assert known.get("ml", "c") is None
    known.update(at(2, BARE, uid="one"))
    assert known.get("ml", "c") is not None


def test_a_promise_counts_until_the_last_user_lets_go() -> None:
    known, told = book()
    known.update(BARE)
    known.add_pending_allocation(BARE, ALLOCATION, "p")
    known.add_pending_user(BARE, "q")
    assert counted(known) == ALLOCATION
    assert known.get_stored(BARE) is BARE
    assert (known.has_pending_allocation(BARE), known.count_pending_allocations()) == (True, 1)
    known.remove_pending_user(BARE, "p")
    known.remove_pending_user(BARE, "p")
    known.remove_pending_user(BARE, "somebody")
    assert counted(known) == ALLOCATION
    known.remove_pending_user(BARE, "q")
    assert counted(known) is None
    assert (known.has_pending_allocation(BARE), known.count_pending_allocations()) == (False, 0)
    held = [(before and before.status.allocation, now and now.status.allocation) for before, now in told]
    assert held == [(None, None), (None, ALLOCATION), (ALLOCATION, None)]


def test_a_promise_ends_in_the_step_in_which_it_is_kept() -> None:
    known, told = book()
    known.update(BARE)
    known.add_pending_allocation(BARE, ALLOCATION, "p")
    known.update(at(2, GIVEN))
    assert not known.has_pending_allocation(BARE)
    assert counted(known) == ALLOCATION
    assert all(now is not None and now.status.allocation for _, now in told[1:])
    known.remove_pending_user(BARE, "p")
    assert counted(known) == ALLOCATION


def test_a_promise_stays_when_something_else_about_the_claim_changes() -> None:
    known, _ = book()
    known.update(BARE)
    known.add_pending_allocation(BARE, ALLOCATION, "p")
    known.update(at(2, BARE, labels={"a": "b"}))
    assert counted(known) == ALLOCATION
    assert known.has_pending_allocation(BARE)


def test_nobody_builds_on_what_was_not_promised() -> None:
    known, _ = book()
    known.update(BARE)
    known.add_pending_user(BARE, "p")
    assert not known.has_pending_allocation(BARE)


def test_a_promise_goes_with_its_claim() -> None:
    known, _ = book()
    known.update(BARE)
    known.add_pending_allocation(BARE, ALLOCATION, "p")
    known.remove(BARE)
    assert (known.count_pending_allocations(), known.get("ml", "c")) == (0, None)
    known.remove_pending_user(BARE, "p")


def test_versions_that_are_no_numbers_are_the_oldest() -> None:
    assert assume_cache.parse_claim_version(at(7, BARE)) == 7
    odd = replace(BARE, metadata=replace(BARE.metadata, resource_version="x7"))
    assert assume_cache.parse_claim_version(odd) == -1
