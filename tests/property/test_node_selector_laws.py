"""Merging node selectors is conjunction, and a selector survives conversion to a document."""

from __future__ import annotations

from hypothesis import given

from dray.values.node_selectors import (
    NodeSelector,
    UnmergeableSelectors,
    build_node_name_selector,
    check_node_selector,
)
from tests.property.strategies import values as v


@given(v.node_selectors(), v.node_selectors(), v.node_names, v.labels)
def test_a_merged_selector_matches_exactly_what_both_match(
    one: NodeSelector, other: NodeSelector, name: str, labels: dict[str, str]
) -> None:
    merged = one.merge(other)
    several = max(len(one.node_selector_terms), len(other.node_selector_terms)) > 1
    assert isinstance(merged, UnmergeableSelectors) == several
    if isinstance(merged, NodeSelector):
        assert merged.matches(name, labels) == (one.matches(name, labels) and other.matches(name, labels))
        assert len(merged.node_selector_terms) <= 1


@given(v.node_selectors(most_terms=1))
def test_merging_a_selector_with_itself_only_drops_repetitions(selector: NodeSelector) -> None:
    merged = selector.merge(selector)
    assert isinstance(merged, NodeSelector)
    assert merged.merge(selector) == merged
    for term in merged.node_selector_terms:
        assert set(term.match_expressions) <= set(selector.node_selector_terms[0].match_expressions)
        assert set(term.match_fields) <= set(selector.node_selector_terms[0].match_fields)


@given(v.node_selectors(), v.node_names, v.labels)
def test_a_selector_matches_when_one_of_its_terms_does(
    selector: NodeSelector, name: str, labels: dict[str, str]
) -> None:
    alone = [NodeSelector(node_selector_terms=(term,)) for term in selector.node_selector_terms]
    assert selector.matches(name, labels) == any(one.matches(name, labels) for one in alone)


@given(v.node_selectors())
def test_a_selector_survives_its_document(selector: NodeSelector) -> None:
    again = NodeSelector.from_document(selector.to_document())
    assert again == selector
    assert hash(again) == hash(selector)
    assert check_node_selector(again) == check_node_selector(selector)


@given(v.node_names, v.node_names, v.labels)
def test_the_selector_for_a_node_matches_its_name_alone(one: str, other: str, labels: dict[str, str]) -> None:
    assert build_node_name_selector(one).matches(other, labels) == (one == other)
    assert check_node_selector(build_node_name_selector(one)) == ()
