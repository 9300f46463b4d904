"""What is excused from a rule of the house, and why. An excuse that nobody needs any more fails the tests."""

from __future__ import annotations

API_NAME = "the name the Kubernetes API gives this type; another one would have to be explained"

ALLOWED: dict[tuple[str, str], str] = {
    ("empty-words", "src/dray/api/resource/allocation.py:NetworkDeviceData"): API_NAME,
}
"""(rule, place) to reason. The place is the one the complaint names."""
