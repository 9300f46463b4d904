"""Consecutive JSON values without space between them are read as the decoder reads them."""

from __future__ import annotations

import pytest

from dray.manifests import ManifestSource, read_documents


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('{"a":1,"a":2}01', [{"a": 2}, 0, 1]),
        ('{"a":[1.5,-0,1e3],"a":[true]}{"b":null}', [{"a": [True]}, {"b": None}]),
        ("{}12true", [{}, 12, True]),
    ],
)
def test_consecutive_json_values_have_positions(text, values):
    documents = list(read_documents(ManifestSource("x.json", text)))
    assert [document.value for document in documents] == values
    assert all(document.locate("").line == 1 for document in documents)
