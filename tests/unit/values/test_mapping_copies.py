"""Copies of mappings: equal, in the same order, and independent."""

from __future__ import annotations

from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from dray.values.mapping_copies import copy_mapping

KEYS = st.lists(st.integers(0, 40), max_size=60)


@given(KEYS, KEYS, KEYS)
def test_a_copy_has_the_entries_in_their_order(
    added: list[int], removed: list[int], again: list[int]
) -> None:
    known = dict.fromkeys(added, "x")
    for key in removed:
        known.pop(key, None)
    known |= dict.fromkeys(again, "y")
    assert list(copy_mapping(known).items()) == list(known.items())


def test_a_changed_copy_leaves_the_mapping_as_it_is() -> None:
    known = {"a": 1}
    copy_mapping(known)["b"] = 2
    assert known == {"a": 1}


def test_a_read_only_mapping_gives_a_copy_that_can_be_changed() -> None:
    copied = copy_mapping(MappingProxyType({"a": 1}))
    copied["b"] = 2
    assert copied == {"a": 1, "b": 2}
