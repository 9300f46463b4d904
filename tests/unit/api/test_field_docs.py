"""Every field of every kind is described, and nothing is described that does not exist."""

from __future__ import annotations

import pytest

from dray.api import conversion
from dray.api.decode_report import list_field_names
from dray.api.field_docs import FIELD_DOCS, get_field_docs, get_struct_doc
from dray.api.kinds import KINDS
from dray.api.transactions import Transaction
from tests.fieldtree import fields_of

SHAPES = sorted(
    {
        shape
        for kind in KINDS
        for version in kind.versions
        for root in [conversion.get_struct_type(kind, version)]
        for shape in (root, *(field.holder for field in fields_of(root).values()))
    }
    | {Transaction, *(field.holder for field in fields_of(Transaction).values())},
    key=lambda shape: (shape.__module__, shape.__name__),
)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_every_field_is_described_in_a_sentence(shape):
    words = get_field_docs(shape)
    for field in list_field_names(shape):
        assert words.get(field, "").endswith("."), field
    assert get_struct_doc(shape).endswith("."), shape


def test_nothing_is_described_that_is_not_there():
    for shape, words in FIELD_DOCS.items():
        assert words.keys() <= set(list_field_names(shape)), shape


def test_nothing_that_is_described_is_unused():
    assert set(FIELD_DOCS) <= set(SHAPES)
