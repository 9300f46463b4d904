"""Did you mean."""

from __future__ import annotations

import pytest

from dray.lint.suggestions import suggest_name


@pytest.mark.parametrize(
    ("name", "known", "answer"),
    [
        ("gpus", ["gpu", "nic"], "did you mean `gpu`?"),
        ("Resource_Claim_Name", ["resourceClaimName"], "did you mean `resourceClaimName`?"),
        ("perpod", ["per-pod"], "did you mean `per-pod`?"),
        ("x", ["gpu"], ""),
        ("gpu", [], ""),
    ],
)
def test_the_nearest_name(name: str, known: list[str], answer: str) -> None:
    assert suggest_name(name, known) == answer
