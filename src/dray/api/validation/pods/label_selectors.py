"""Validation of selectors of labels, and of the values that the operators of all selectors take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from dray.api.fields import FieldError, FieldPath, forbidden, invalid, required
from dray.api.validation.field_rules import FieldErrors, report_name_faults
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    get_list,
    get_mapping,
    get_text,
    get_texts,
    iterate_objects,
)
from dray.api.validation.pods.value_rules import validate_labels
from dray.values.names import check_label_value, check_qualified_name

ValueCount: TypeAlias = tuple[range, Callable[[FieldPath, str], FieldError], str]
"""How many values an operator takes, the error for another number, and why."""

_SOME: Final = (range(1, 2**31), required, "must have a value for this operator")
_ONE: Final = (range(1, 2), required, "must have exactly one value for this operator")
_NO: Final = (range(1), forbidden, "may not have a value for this operator")

LABEL_OPERATORS: Final = MappingProxyType({"In": _SOME, "NotIn": _SOME, "Exists": _NO, "DoesNotExist": _NO})
NODE_OPERATORS: Final = MappingProxyType({**LABEL_OPERATORS, "Gt": _ONE, "Lt": _ONE})


def validate_value_count(item: Document, counts: Mapping[str, ValueCount], path: FieldPath) -> FieldErrors:
    operator = get_text(item, "operator")
    if operator not in counts:
        yield invalid(path.child("operator"), operator, "not a valid selector operator")
        return
    allowed, report, text = counts[operator]
    if len(get_list(item, "values")) not in allowed:
        yield report(path.child("values"), text)


def validate_values(item: Document, path: FieldPath) -> FieldErrors:
    for position, value in enumerate(get_texts(item, "values")):
        if faults := check_label_value(value):
            yield from report_name_faults(faults, path.child("values").index(position))


# --- labels ---


def validate_label_selector(selector: Document, path: FieldPath) -> FieldErrors:
    """Check a selector of labels."""
    yield from validate_labels(get_mapping(selector, "matchLabels"), path.child("matchLabels"))
    for position, item in iterate_objects(selector, "matchExpressions"):
        place = path.child("matchExpressions").index(position)
        yield from validate_value_count(item, LABEL_OPERATORS, place)
        yield from report_name_faults(check_qualified_name(get_text(item, "key")), place.child("key"))
        yield from validate_values(item, place)


def validate_label_keys(term: Document, path: FieldPath) -> FieldErrors:
    """Check the labels whose values a pod takes from itself: they need a selector, and stand in it once."""
    selector = find_mapping(term, "labelSelector")
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        keys = get_texts(term, field)
        if keys and selector is None:
            yield forbidden(path.child(field), "may not be set without `labelSelector`")
        elif keys:
            for position, key in enumerate(keys):
                yield from report_name_faults(check_qualified_name(key), path.child(field).index(position))
    matched, mismatched = get_texts(term, "matchLabelKeys"), get_texts(term, "mismatchLabelKeys")
    if matched and selector is not None:
        yield from _find_selected_keys(matched, selector, path)
    for position, key in enumerate(matched):
        if key in mismatched:
            text = "stands in both `matchLabelKeys` and `mismatchLabelKeys`"
            yield invalid(path.child("matchLabelKeys").index(position), key, text)


def _find_selected_keys(keys: list[str], selector: Document, path: FieldPath) -> FieldErrors:
    """Report keys that the selector has already. The server adds each key once itself, as an expression, so
    the first one is not reported.
    """
    seen = set(get_mapping(selector, "matchLabels"))
    positions = {key: position for position, key in enumerate(keys)}
    for _, item in iterate_objects(selector, "matchExpressions"):
        key = get_text(item, "key")
        if key in positions and key in seen:
            yield invalid(
                path.index(positions[key]), key, "stands in both `matchLabelKeys` and `labelSelector`"
            )
        seen.add(key)
