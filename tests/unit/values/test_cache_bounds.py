"""Bounds of caches: a full cache evicts its oldest entries, an eighth at once."""

from __future__ import annotations

from itertools import count

import pytest

from dray.values.cache_bounds import CACHE_BOUNDS, CacheBound

_numbers = count()


@pytest.fixture
def bound_of():
    """Bounds with names of their own, gone after the test."""
    made = []

    def make(most):
        made.append(f"test {next(_numbers)}")
        return CacheBound(made[-1], most, "a test")

    yield make
    for name in made:
        CACHE_BOUNDS.pop(name, None)


@pytest.mark.parametrize("most", [1, 2, 7, 8, 64, 1000])
def test_a_cache_never_has_more_entries_than_its_bound(bound_of, most):
    bound = bound_of(most)
    cache: dict[int, str] = {}
    for number in range(3 * most + 5):
        assert bound.put(cache, number, str(number)) == str(number)
        assert cache[number] == str(number)
        assert len(cache) <= most


def test_the_oldest_entries_go_first_and_most_stay(bound_of):
    bound = bound_of(16)
    cache: dict[int, None] = {}
    for number in range(17):
        bound.put(cache, number, None)
    assert list(cache) == list(range(3, 17))


def test_a_bound_that_became_smaller_holds_from_the_next_entry_on(bound_of):
    bound, cache = bound_of(100), dict.fromkeys(range(100))
    bound.max_entries = 8
    bound.put(cache, 100, None)
    assert len(cache) <= 8


def test_a_bound_is_at_least_one_and_has_a_name_of_its_own(bound_of):
    bound = bound_of(1)
    with pytest.raises(ValueError, match="there is a bound"):
        CacheBound(bound.name, 2, "a test")
    with pytest.raises(ValueError, match="must be at least 1"):
        CacheBound("none", 0, "a test")
    assert "none" not in CACHE_BOUNDS
