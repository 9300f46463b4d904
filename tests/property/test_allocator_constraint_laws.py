"""Properties of constraints: a broken one stays broken, and scalars behave like lists of one value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.allocator.checks import constraints
from dray.allocator.partial_solution import PartialSolution
from dray.allocator.requests import ClaimConstraint

ITEMS = st.sampled_from([("int", 1), ("int", 2), ("int", 3), ("string", "1"), ("version", "1.0.0")])
VALUES = st.lists(st.frozensets(ITEMS, max_size=3), min_size=1, max_size=6)
SCALARS = st.lists(ITEMS.map(lambda item: frozenset({item})), min_size=1, max_size=6)
RULES = st.booleans().map(lambda distinct: ClaimConstraint(0, 0, "dra.example/numa", distinct))


def accepted(rule, devices, board=None):
    """How many devices, taken in this order, a constraint lets pass before it refuses one."""
    board = board or PartialSolution()
    for i, values in enumerate(devices):
        if constraints.check(board, rule, values) is not None:
            return i
        constraints.take(board, rule, values)
    return len(devices)


def holds(rule, devices):
    """What the constraint means, said of all devices at once."""
    if not all(devices):
        return False
    if rule.distinct:
        return all(devices[i].isdisjoint(devices[j]) for i in range(len(devices)) for j in range(i))
    return bool(frozenset.intersection(*devices))


@pytest.mark.req("K5491-003", "K5491-004", "K5491-014", "K5491-016")
@given(rule=RULES, devices=VALUES)
def test_one_by_one_is_the_same_as_all_at_once(rule, devices):
    assert (accepted(rule, devices) == len(devices)) is holds(rule, devices)


@pytest.mark.req("K5491-006")
@given(rule=RULES, devices=VALUES, more=VALUES)
def test_a_broken_constraint_stays_broken(rule, devices, more):
    """No further device makes devices acceptable that were not, wherever it comes in."""
    if accepted(rule, devices) < len(devices):
        assert accepted(rule, devices + more) < len(devices + more)
        assert accepted(rule, more + devices) < len(more + devices)


@given(rule=RULES, devices=VALUES, data=st.data())
def test_the_order_of_devices_does_not_matter(rule, devices, data):
    mixed = data.draw(st.permutations(devices))
    assert (accepted(rule, devices) == len(devices)) is (accepted(rule, mixed) == len(mixed))


@pytest.mark.req("K5491-007", "K5491-013", "K5491-015")
@given(rule=RULES, devices=SCALARS)
def test_on_scalars_match_is_all_equal_and_distinct_is_all_different(rule, devices):
    """The rule from before there were lists, word for word."""
    values = [value for device in devices for value in device]
    before = len(set(values)) == len(values) if rule.distinct else len(set(values)) == 1
    assert (accepted(rule, devices) == len(devices)) is before


@pytest.mark.req("K5491-032")
@given(rule=RULES, first=VALUES, tried=VALUES, then=VALUES)
def test_a_step_back_restores_what_was_common(rule, first, tried, then):
    board = PartialSolution()
    accepted(rule, first, board)
    before, mark = dict(board.constraint_values), board.mark()
    accepted(rule, tried, board)
    board.rewind(mark)
    assert board.constraint_values == before
    fresh = PartialSolution()
    accepted(rule, first, fresh)
    assert accepted(rule, then, board) == accepted(rule, then, fresh)
