"""Bulk checks of names and versions agree with the checks of each."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dray.values.names import are_dns_labels, check_dns_label
from dray.values.semver import Version, are_plain_versions

NAMES = [
    "a",
    "gpu-0",
    "0",
    "",
    "-",
    "a-",
    "-a",
    "A",
    "a.b",
    "é",
    "a\n",
    "\n",
    "a\nb",
    "x" * 63,
    "x" * 64,
    "a" * 300,
]
VERSIONS = [
    "0.0.0",
    "1.2.3",
    "10.20.30",
    "1.2.3\n",
    "1.2",
    "01.2.3",
    "1.2.3-a",
    "",
    "1.2.3.4",
    "١.2.3",
    "v1.2.3",
]


@given(st.lists(st.sampled_from(NAMES) | st.from_regex(r"[a-z0-9-]{1,3}", fullmatch=True), max_size=4))
@example([])
@example(["a", "b"])
def test_checking_labels_in_bulk_equals_checking_each(names):
    assert are_dns_labels(names) == (not any(check_dns_label(name) for name in names))


@given(st.lists(st.sampled_from(VERSIONS) | st.from_regex(r"[0-9.]{5,7}", fullmatch=True), max_size=4))
def test_plain_versions_are_versions(texts):
    if are_plain_versions(texts):
        assert [str(Version.parse(text)) for text in texts] == texts


@pytest.mark.parametrize("text", ["0.0.0", "1.2.3", "1.2." + "9" * 19])
def test_versions_of_three_numbers_are_plain(text):
    assert are_plain_versions([text, text])


@pytest.mark.parametrize("text", ["1.2.3-a", "1.2.3+b", "1.2.3\n", "", "1.2", "01.2.3", "1.2." + "9" * 20])
def test_anything_else_is_not(text):
    assert not are_plain_versions(["1.2.3", text])
