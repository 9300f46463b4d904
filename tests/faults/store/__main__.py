"""The full sizes of R-01, R-02 and R-20: `python -m tests.faults.store --full [--seed N]`.

Prints its seed and its figures, and ends with 1 when a pass line is missed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.store import backups, corruption, crashes

KILLS = {False: 10, True: 220}
CUTS = {False: (997, 100), True: (1, 1500)}
"""Step of the cuts in bytes, flips."""
BACKUPS = {False: (3, 20), True: (60, 300)}
"""Backups under load, flips in one."""
LAST_RECORD = 13_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the pass lines")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--only", choices=["crashes", "corruption", "backups"])
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    runs = {
        "crashes": lambda: _crashes(KILLS[options.full], options.seed),
        "corruption": lambda: _corruption(*CUTS[options.full], options.seed),
        "backups": lambda: _backups(*BACKUPS[options.full], options.seed),
    }
    chosen = [options.only] if options.only else list(runs)
    verdicts = [runs[name]() for name in chosen]
    return 0 if all(verdicts) else 1


def _crashes(kills: int, seed: int) -> bool:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tally = crashes.campaign(Path(folder), kills, seed, longest=1000)
    print(f"R-01 {tally} in {time.monotonic() - begun:.0f} s", flush=True)
    return tally.sound()


def _corruption(step: int, flips: int, seed: int) -> bool:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        seen = corruption.campaign(Path(folder), seed, step=step, reach=LAST_RECORD, flips=flips)
    print(f"R-02 {dict(sorted(seen.items()))} in {time.monotonic() - begun:.0f} s", flush=True)
    return not any("WRONG" in judgement for judgement in seen)


def _backups(rounds: int, flips: int, seed: int) -> bool:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        seen = backups.campaign(Path(folder), rounds, flips, seed)
    print(f"R-20 {dict(sorted(seen.items()))} in {time.monotonic() - begun:.0f} s", flush=True)
    return not any("WRONG" in judgement for judgement in seen)


if __name__ == "__main__":
    sys.exit(main())
