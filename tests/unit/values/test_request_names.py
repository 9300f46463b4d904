"""Names of requests and of their alternatives."""

from __future__ import annotations

import pytest

from dray.values.request_names import RequestName


@pytest.mark.parametrize(
    ("text", "name"), [("gpu", RequestName("gpu")), ("gpu/large", RequestName("gpu", "large"))]
)
def test_a_name_is_split_at_the_slash_and_written_back(text: str, name: RequestName) -> None:
    assert RequestName.parse(text) == name
    assert str(name) == text
