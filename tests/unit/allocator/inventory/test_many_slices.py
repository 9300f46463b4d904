"""Priorities among thousands of devices: another order, and not one more step."""

from __future__ import annotations

import pytest

from tests.brute.builders import claim, device, published, request
from tests.brute.outcome import picked, told, world

SLICES, DEVICES = 40, 128


def _problem(*, ordered: bool):
    """40 slices of 128 devices; with priorities, the last by name is the first."""
    slices = [
        published(
            *(device(f"d{number}-{each}") for each in range(DEVICES)),
            name=f"s{number:02}",
            count=SLICES,
            priority=number if ordered else None,
        )
        for number in range(SLICES)
    ]
    return world(slices, claim(request("r", 3)))


@pytest.mark.req("K5773-032")
def test_priorities_cost_no_steps_among_thousands_of_devices():
    plain, ordered = _problem(ordered=False), _problem(ordered=True)
    assert picked(plain) == ["r=d0-0", "r=d0-1", "r=d0-2"]
    assert picked(ordered) == ["r=d39-0", "r=d39-1", "r=d39-2"]
    assert [type(event) for event in told(plain)] == [type(event) for event in told(ordered)]
