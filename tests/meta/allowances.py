"""Exceptions from the source rules, each with its reason. An unneeded exception fails the tests."""

from __future__ import annotations

API_NAME = "the name the Kubernetes API gives this type; another one would have to be explained"

ALLOWED: dict[tuple[str, str], str] = {
    ("empty-words", "src/dray/api/resource/allocation.py:NetworkDeviceData"): API_NAME,
}
"""(rule, place) to reason. The place is the one that the finding names."""
