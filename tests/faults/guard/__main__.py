"""The guard on Kubernetes: `DRAY_KUBE_BIN=... python -m tests.faults.guard --full [--seed N]`.

Prints its seed and its figures, and ends with 1 when something was given twice, or when the run without guard
has nothing to show.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from tests.faults.guard.crashes import CrashSize, run_crashes
from tests.faults.guard.race import run_race
from tests.kubernetes.binaries import NO_KUBERNETES, find_program

ROUNDS = {False: 3, True: 40}
CONTROL_ROUNDS = {False: 3, True: 10}
CRASHES = {
    False: CrashSize(pods=60, at_once=30, faults=6),
    True: CrashSize(pods=1500, at_once=40, faults=40),
}
CONTROL_CRASHES = {
    False: CrashSize(pods=60, at_once=30, faults=2),
    True: CrashSize(pods=300, at_once=40, faults=4),
}

T = TypeVar("T")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the pass lines")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--only", choices=("race", "crashes"))
    parser.add_argument("--keep", type=Path, help="keep logs and stores in this directory")
    options = parser.parse_args()
    if find_program("kube-apiserver") is None:
        print(NO_KUBERNETES)
        return 0
    seed, full = options.seed, options.full
    print(f"seed {seed}", flush=True)
    is_sound = True
    if options.only != "crashes":
        race = _run(options.keep, "race", lambda f: run_race(f, ROUNDS[full], seed, is_guarded=True))
        free = _run(
            options.keep, "race-control", lambda f: run_race(f, CONTROL_ROUNDS[full], seed, is_guarded=False)
        )
        # Without the guard there must be something to see, or the run proves nothing.
        is_sound &= race.is_sound and free.judge.double > 0
    if options.only != "race":
        crashes = _run(
            options.keep, "crashes", lambda f: run_crashes(f, CRASHES[full], seed, is_guarded=True)
        )
        control = _run(
            options.keep,
            "crashes-control",
            lambda f: run_crashes(f, CONTROL_CRASHES[full], seed, is_guarded=False),
        )
        is_sound &= crashes.is_sound and control.judge.violations > 0
    return 0 if is_sound else 1


def _run(keep: Path | None, name: str, build: Callable[[Path], Coroutine[Any, Any, T]]) -> T:
    with tempfile.TemporaryDirectory() as folder:
        tally = asyncio.run(build(Path(folder) if keep is None else keep / name))
    print(tally, flush=True)
    return tally


if __name__ == "__main__":
    sys.exit(main())
