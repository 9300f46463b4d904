"""The book of claims: which version counts, and how long a promise lasts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dray.api.resource import AllocationResult, ResourceClaim
from dray.scheduler import assume_cache
from dray.scheduler.assume_cache import ClaimBook
from tests.unit.placement.claimed import claim, having

Told = list[tuple[ResourceClaim | None, ResourceClaim | None]]


def book() -> tuple[ClaimBook, Told]:
    told: Told = []
    return ClaimBook(lambda before, now: told.append((before, now))), told


def at(version: int, known: ResourceClaim, **metadata: Any) -> ResourceClaim:
    return replace(known, metadata=replace(known.metadata, resource_version=str(version), **metadata))


BARE = claim()
GIVEN = having(BARE, "a/d0", where="a")
ALLOCATION = GIVEN.status.allocation or AllocationResult()


def counted(known: ClaimBook) -> object:
    found = known.get("ml", "c")
    return None if found is None else found.status.allocation


def test_the_higher_version_counts_however_they_come() -> None:
    known, _ = book()
    known.saw(at(3, GIVEN))
    known.saw(at(2, BARE))
    assert counted(known) == ALLOCATION
    known.saw(at(4, BARE))
    assert counted(known) is None
    known.saw(at(3, GIVEN))
    assert counted(known) is None


def test_what_is_gone_does_not_come_back() -> None:
    known, _ = book()
    known.saw(at(1, BARE))
    known.lost(at(1, BARE))
    known.saw(at(2, GIVEN))
    assert known.get("ml", "c") is None
    assert list(known) == []


def test_what_the_watch_shows_again_was_restored() -> None:
    known, _ = book()
    known.came(at(1, BARE))
    known.lost(at(1, BARE))
    known.came(at(1_000_000_001, GIVEN))
    assert counted(known) == ALLOCATION
    known.saw(at(1_000_000_002, BARE))
    assert counted(known) is None


def test_another_claim_of_the_same_name_takes_its_place() -> None:
    known, told = book()
    known.saw(at(1, GIVEN))
    known.saw(at(5, BARE, uid="another"))
    known.lost(at(4, GIVEN))
    found = known.get("ml", "c")
    assert found is not None
    assert found.metadata.uid == "another"
    assert known.stored(GIVEN) is None
    # The devices of the first were given back before the second was there.
    assert [now for _, now in told][1] is None
    known.saw(at(3, GIVEN, uid="an older one"))
    assert known.get("ml", "c") is found


def test_only_so_many_deleted_claims_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assume_cache, "MANY_GONE", 2)
    known, _ = book()
    for uid in ("one", "two", "three"):
        known.lost(at(1, BARE, uid=uid))
    known.saw(at(2, BARE, uid="three"))
    assert known.get("ml", "c") is None
    known.saw(at(2, BARE, uid="one"))
    assert known.get("ml", "c") is not None


def test_a_promise_counts_until_the_last_user_lets_go() -> None:
    known, told = book()
    known.saw(BARE)
    known.promise(BARE, ALLOCATION, "p")
    known.build_on(BARE, "q")
    assert counted(known) == ALLOCATION
    assert known.stored(BARE) is BARE
    assert (known.is_promised(BARE), known.in_flight()) == (True, 1)
    known.let_go(BARE, "p")
    known.let_go(BARE, "p")
    known.let_go(BARE, "somebody")
    assert counted(known) == ALLOCATION
    known.let_go(BARE, "q")
    assert counted(known) is None
    assert (known.is_promised(BARE), known.in_flight()) == (False, 0)
    held = [(before and before.status.allocation, now and now.status.allocation) for before, now in told]
    assert held == [(None, None), (None, ALLOCATION), (ALLOCATION, None)]


def test_a_promise_ends_in_the_step_in_which_it_is_kept() -> None:
    known, told = book()
    known.saw(BARE)
    known.promise(BARE, ALLOCATION, "p")
    known.saw(at(2, GIVEN))
    assert not known.is_promised(BARE)
    assert counted(known) == ALLOCATION
    assert all(now is not None and now.status.allocation for _, now in told[1:])
    known.let_go(BARE, "p")
    assert counted(known) == ALLOCATION


def test_a_promise_stays_when_something_else_about_the_claim_changes() -> None:
    known, _ = book()
    known.saw(BARE)
    known.promise(BARE, ALLOCATION, "p")
    known.saw(at(2, BARE, labels={"a": "b"}))
    assert counted(known) == ALLOCATION
    assert known.is_promised(BARE)


def test_nobody_builds_on_what_was_not_promised() -> None:
    known, _ = book()
    known.saw(BARE)
    known.build_on(BARE, "p")
    assert not known.is_promised(BARE)


def test_a_promise_goes_with_its_claim() -> None:
    known, _ = book()
    known.saw(BARE)
    known.promise(BARE, ALLOCATION, "p")
    known.lost(BARE)
    assert (known.in_flight(), known.get("ml", "c")) == (0, None)
    known.let_go(BARE, "p")


def test_versions_that_are_no_numbers_are_the_oldest() -> None:
    assert assume_cache.version(at(7, BARE)) == 7
    odd = replace(BARE, metadata=replace(BARE.metadata, resource_version="x7"))
    assert assume_cache.version(odd) == 0
