"""The full size of R-14, and of S-07 for drivers: `python -m tests.faults.plugins --full [--seed N]`.

Prints its seed and its figures, and ends with 1 when a pass line is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.plugins.campaign import Tally, campaign
from tests.faults.plugins.frames import frames

ROUNDS = {False: 12, True: 600}
KILLS = {False: 2, True: 40}
FRAMES = {False: 5000, True: 100_000}


async def run(seed: int, full: bool) -> Tally:
    with tempfile.TemporaryDirectory() as folder:
        async with campaign(Path(folder), seed) as made:
            return await made.run(ROUNDS[full], KILLS[full])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the pass lines")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    began = time.monotonic()
    tally = asyncio.run(run(options.seed, options.full))
    print(f"R-14 {tally}\nin {time.monotonic() - began:.0f} seconds", flush=True)
    began = time.monotonic()
    seen = asyncio.run(frames(FRAMES[options.full], options.seed))
    print(f"S-07 {seen}\nin {time.monotonic() - began:.0f} seconds", flush=True)
    complete = tally.scenarios.total() == ROUNDS[options.full] + KILLS[options.full]
    return 0 if tally.sound() and complete and seen.sound() else 1


if __name__ == "__main__":
    sys.exit(main())
