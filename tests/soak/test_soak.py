"""A small soak: nothing grows, and a planted leak is found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.outside import ROOT
from tests.soak.measurements import SoakSample, compute_slope, find_growth


def run_soak(*options: str) -> subprocess.CompletedProcess[str]:
    """Run a small soak in a process of its own: its memory is measured."""
    program = [sys.executable, "-m", "tests.soak.soak", "--small", *options]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    print(done.stdout)
    return done


def test_nothing_grows_and_the_ledger_agrees_with_the_claims():
    done = run_soak()
    assert "ledger and claims differed 0 times; 0 failures of callbacks" in done.stdout, done.stderr
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "nothing has grown")


def test_a_planted_leak_is_found():
    done = run_soak("--plant-leak", "--hours", "0.45")
    assert "\ngrown: blocks: +" in done.stdout, done.stderr
    assert done.returncode == 1


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
