"""A label selector and its text are equivalent."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from dray.values.label_selectors import (
    LabelRequirement,
    LabelSelectorError,
    ParsedLabelSelector,
    SelectorOperator,
)
from tests.property.strategies import values as v


def satisfied(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    """What a requirement means, said again without a table."""
    key, values = requirement.key, requirement.values
    if (
        requirement.operator in (SelectorOperator.NOT_IN, SelectorOperator.DOES_NOT_EXIST)
        and key not in labels
    ):
        return True
    if key not in labels or requirement.operator is SelectorOperator.DOES_NOT_EXIST:
        return False
    if requirement.operator in (SelectorOperator.GT, SelectorOperator.LT):
        if not labels[key].isdecimal():
            return False
        distance = int(labels[key]) - int(values[0])
        return distance > 0 if requirement.operator is SelectorOperator.GT else distance < 0
    named = labels[key] in values
    return {SelectorOperator.IN: named, SelectorOperator.NOT_IN: not named, SelectorOperator.EXISTS: True}[
        requirement.operator
    ]


@given(v.label_selectors)
def test_reading_the_text_of_a_selector_gives_the_selector(selector: ParsedLabelSelector) -> None:
    assert ParsedLabelSelector.parse(str(selector)) == selector


@given(v.label_selectors, v.labels)
def test_a_selector_selects_what_satisfies_every_requirement(
    selector: ParsedLabelSelector, labels: dict[str, str]
) -> None:
    assert selector.matches(labels) == all(satisfied(some, labels) for some in selector.requirements)


@given(v.label_selectors, v.label_selectors, v.labels)
def test_joining_two_texts_by_a_comma_selects_what_both_select(
    one: ParsedLabelSelector, other: ParsedLabelSelector, labels: dict[str, str]
) -> None:
    joined = ParsedLabelSelector.parse(",".join(text for text in (str(one), str(other)) if text))
    assert joined.matches(labels) == (one.matches(labels) and other.matches(labels))


@given(st.text(max_size=40) | st.text("ab=!(),<>in not1 ", max_size=40))
def test_any_text_is_parsed_or_refused_at_a_position(text: str) -> None:
    try:
        selector = ParsedLabelSelector.parse(text)
    except LabelSelectorError as refusal:
        place = refusal.position
    else:
        place = 0
        assert ParsedLabelSelector.parse(str(selector)) == selector
    assert place is not None
    assert 0 <= place <= len(text)
