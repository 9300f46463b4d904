"""Every field of every kind is described, and nothing is described that does not exist."""

from __future__ import annotations

import pytest

from dray.api import conversion
from dray.api.decode_report import field_names
from dray.api.field_docs import WORDS, about, words_of
from dray.api.kinds import KINDS
from tests.fieldtree import fields_of

SHAPES = sorted(
    {
        shape
        for kind in KINDS
        for version in kind.versions
        for root in [conversion.shape_of(kind, version)]
        for shape in (root, *(field.holder for field in fields_of(root).values()))
    },
    key=lambda shape: (shape.__module__, shape.__name__),
)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_every_field_is_described_in_a_sentence(shape):
    words = words_of(shape)
    for field in field_names(shape):
        assert words.get(field, "").endswith("."), field
    assert about(shape).endswith("."), shape


def test_nothing_is_described_that_is_not_there():
    for shape, words in WORDS.items():
        assert words.keys() <= set(field_names(shape)), shape


def test_nothing_that_is_described_is_unused():
    assert set(WORDS) <= set(SHAPES)
