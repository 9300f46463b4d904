"""Writing documents as YAML and JSON."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dray.manifests import ManifestSource, read_documents, to_json, to_yaml
from dray.manifests.scalars import parse_exact_number


def reread(text: str) -> list[Any]:
    return [document.value for document in read_documents(ManifestSource.decode("f", text.encode()))]


TRICKY = ["on", "y", "null", "", "~", "12", "0x1f", "1e3", "1:30", "2026-01-31", "<<", ".inf", "a: b", "- x"]


@pytest.mark.parametrize(
    "word", [*TRICKY, "#", "x #y", " lead", "a\nb", "a\nb\n", "\n", "tab\t", "ü", "\x00", "*a", "!"]
)
def test_text_stays_text(word: str) -> None:
    assert reread(to_yaml([{"a": word, "b": [word], word: 1}])) == [{"a": word, "b": [word], word: 1}]


@pytest.mark.parametrize("word", TRICKY)
def test_text_stays_text_for_other_readers_too(word: str) -> None:
    assert yaml.safe_load(to_yaml([{"a": word}])) == {"a": word}


def test_yaml_is_in_block_style() -> None:
    document = {
        "kind": "Pod",
        "spec": {"args": ["x y", "on"], "count": 2, "empty": {}, "none": None, "script": "a\nb\n"},
    }
    assert to_yaml([document, {"b": True}]) == (
        "kind: Pod\n"
        "spec:\n"
        "  args:\n"
        "  - x y\n"
        "  - 'on'\n"
        "  count: 2\n"
        "  empty: {}\n"
        "  none: null\n"
        "  script: |\n"
        "    a\n"
        "    b\n"
        "---\n"
        "b: true\n"
    )


def test_long_lines_are_not_folded() -> None:
    assert to_yaml([{"a": "word " * 100 + "end"}]).count("\n") == 1


def test_json_is_indented_and_exact() -> None:
    assert to_json([{"a": Decimal("1.50")}, {"b": []}]) == '{\n  "a": 1.50\n}\n{\n  "b": []\n}\n'


numbers = st.decimals(
    allow_nan=False, allow_infinity=False, places=6, min_value=-(10**9), max_value=10**9
).map(lambda number: parse_exact_number(str(number)))
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | st.text() | st.sampled_from(TRICKY),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(min_size=1), plain, min_size=1))
def test_what_is_written_reads_back(document: dict[str, Any]) -> None:
    # A surrogate alone is no text; it can be in no file.
    try:
        str(document).encode()
    except UnicodeEncodeError:
        return
    assert reread(to_yaml([document])) == [document]
    assert reread(to_json([document])) == [document]
