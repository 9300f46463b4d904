"""A small soak: nothing grows, and a planted leak is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dray.client.transport import TransportRequest, TransportResponse
from tests.soak.churn import ChurnOptions
from tests.soak.measurements import SoakSample, compute_slope, find_growth
from tests.soak.soak import Soak, SoakOptions, SoakResult

SMALL = SoakOptions(
    seed=3,
    hours=0.8,
    work_minutes=1.5,
    rest_minutes=6.0,
    churn=ChurnOptions(3, 1, 1, pause=6.0, restart_share=0.5),
    delete_events=True,
)
MAX_BLOCKS, MAX_RESIDENT = 4_000.0, 4e6
"""By a thousand operations: caches are not full after so few of them."""


def find_small_growth(result: SoakResult) -> list[str]:
    return find_growth(result.samples, MAX_BLOCKS, MAX_RESIDENT)


def test_nothing_grows_and_the_ledger_agrees_with_the_claims():
    result = Soak(SMALL).run()
    print(f"seed {SMALL.seed}", *result.samples, sep="\n")
    assert result.samples[-1].operations > 1000
    assert (result.drift, result.failures) == (0, [])
    assert find_small_growth(result) == []


def test_a_planted_leak_is_found():
    kept: list[object] = []

    def keep(request: TransportRequest, _response: TransportResponse) -> None:
        kept.append([request.path + str(len(kept) + each) for each in range(12)])

    result = Soak(replace(SMALL, leak=keep)).run()
    print(*result.samples, sep="\n")
    assert any(found.startswith("blocks:") for found in find_small_growth(result))


SAMPLE = SoakSample(0.0, 0, 600_000, 10**8, 100, 50, 15, 1, 150, 900, 100, 5000)


def build_samples(change: Callable[[int], dict[str, int]]) -> list[SoakSample]:
    return [replace(SAMPLE, operations=1000 * n, **change(n)) for n in range(40)]


def test_what_goes_up_and_down_does_not_count_as_growth():
    samples = build_samples(lambda n: {"blocks": 600_000 + 5000 * (n % 3), "tasks": 100 + n % 3})
    assert find_growth(samples) == []
    assert abs(compute_slope(samples, "blocks")) < 10


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda n: {"blocks": 600_000 + 400 * n + 900 * (n % 5)}, "blocks"),
        (lambda n: {"resident": 10**8 + 200_000 * n}, "resident"),
        (lambda n: {"tasks": 100 + n}, "tasks"),
        (lambda n: {"files": 15 + n // 4}, "files"),
        (lambda n: {"rows": 150 + n // 10}, "rows"),
        (lambda n: {"threads": 1 + n // 20}, "threads"),
        (lambda n: {"timers": 50 + 5 * n}, "timers"),
    ],
)
def test_what_grows_slowly_is_found(change: Callable[[int], dict[str, int]], found: str):
    assert [each.partition(":")[0] for each in find_growth(build_samples(change))] == [found]
