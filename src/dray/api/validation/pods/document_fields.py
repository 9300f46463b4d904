"""Typed access to the fields of a document, where a value of another type counts as absent.

Decoding reports values of the wrong type, so the rules of pods skip them. `null` is the same as an absent
field; an item `null` of a list is an empty object, as it is for Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from dray.values.quantity import ZERO, Quantity, QuantityError

Document: TypeAlias = Mapping[str, Any]

EMPTY: Final[Document] = {}
"""Stands for an absent object; nobody changes it. Documents are plain dictionaries, and to test for these is
many times faster than to test for any mapping.
"""


def get_text(document: Document, name: str) -> str:
    """Return a text; empty when it is absent."""
    value = document.get(name)
    return value if isinstance(value, str) else ""


def find_text(document: Document, name: str) -> str | None:
    """Return a text, or None when it is absent: an empty text is one that was written."""
    value = document.get(name)
    return value if isinstance(value, str) else None


def find_number(document: Document, name: str) -> int | None:
    """Return a whole number, or None when it is absent."""
    value = document.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def get_number(document: Document, name: str) -> int:
    """Return a whole number; 0 when it is absent."""
    return find_number(document, name) or 0


def is_true(document: Document, name: str) -> bool:
    """Whether a field is set to true."""
    return document.get(name) is True


def is_set(document: Document, name: str) -> bool:
    """Whether a field has a value at all."""
    return document.get(name) is not None


def find_mapping(document: Document, name: str) -> Document | None:
    """Return an object, or None when it is absent."""
    value = document.get(name)
    return value if isinstance(value, dict) else None


def get_mapping(document: Document, name: str) -> Document:
    """Return an object; empty when it is absent."""
    value = document.get(name)
    return value if isinstance(value, dict) else EMPTY


def get_list(document: Document, name: str) -> list[Any]:
    """Return a list; empty when it is absent."""
    value = document.get(name)
    return value if isinstance(value, list) else []


def get_texts(document: Document, name: str) -> list[str]:
    """Return a list of texts; other items count as empty texts, so that positions stay."""
    return [item if isinstance(item, str) else "" for item in get_list(document, name)]


def get_objects(document: Document, name: str) -> list[Document]:
    """Return a list of objects; other items count as empty objects, so that positions stay."""
    return [item if isinstance(item, dict) else EMPTY for item in get_list(document, name)]


def iterate_objects(document: Document, name: str) -> Iterator[tuple[int, Document]]:
    """Yield the objects of a list with their positions; items of other types are skipped."""
    for position, item in enumerate(get_list(document, name)):
        if item is None:
            yield position, EMPTY
        elif isinstance(item, dict):
            yield position, item


def iterate_texts(document: Document, name: str) -> Iterator[tuple[str, str]]:
    """Yield the entries of a map of texts; others are skipped."""
    for key, value in get_mapping(document, name).items():
        if isinstance(value, str):
            yield key, value


def find_quantity(document: Document, name: str) -> Quantity | None:
    """Return a quantity, or None when it is absent or is none."""
    value = document.get(name)
    if value is None or isinstance(value, bool):
        return None
    try:
        return Quantity.from_json_value(value)
    except (QuantityError, TypeError, ValueError):
        return None


def read_quantities(document: Document, name: str) -> dict[str, Quantity]:
    """Return a map of quantities, without those that are none; `null` is an amount of 0."""
    amounts = get_mapping(document, name)
    found = ((key, ZERO if amounts[key] is None else find_quantity(amounts, key)) for key in amounts)
    return {key: amount for key, amount in found if amount is not None}
