"""The full sizes of R-01 and R-02: `python -m tests.faults.store --full [--seed N]`.

Prints its seed and its figures, and ends with 1 when a pass line is missed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.store import corruption, crashes

SIZES = {False: (12, 997, 100), True: (210, 1, 1500)}
"""Kills, step of the cuts in bytes, flips."""
LAST_RECORD = 13_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the pass lines")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--only", choices=["crashes", "corruption"])
    options = parser.parse_args()
    kills, step, flips = SIZES[options.full]
    print(f"seed {options.seed}", flush=True)
    sound = True
    if options.only != "corruption":
        sound &= _crashes(kills, options.seed)
    if options.only != "crashes":
        sound &= _corruption(step, flips, options.seed)
    return 0 if sound else 1


def _crashes(kills: int, seed: int) -> bool:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tally = crashes.campaign(Path(folder), kills, seed, longest=1500)
    print(f"R-01 {tally} in {time.monotonic() - begun:.0f} s", flush=True)
    return tally.sound()


def _corruption(step: int, flips: int, seed: int) -> bool:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        seen = corruption.campaign(Path(folder), seed, step=step, reach=LAST_RECORD, flips=flips)
    print(f"R-02 {dict(sorted(seen.items()))} in {time.monotonic() - begun:.0f} s", flush=True)
    return not any("WRONG" in judgement for judgement in seen)


if __name__ == "__main__":
    sys.exit(main())
