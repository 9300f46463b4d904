"""The full size of R-11: `python -m tests.faults.drivers --full [--seed N]`.

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

from tests.faults.drivers.campaign import ANY_TIME, EVERYWHERE, Campaign

ROUNDS = {False: 1, True: 13}
AT_RANDOM = {False: 5, True: 45}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the pass lines")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    places = [*EVERYWHERE * ROUNDS[options.full], *[ANY_TIME] * AT_RANDOM[options.full]]
    random.Random(options.seed).shuffle(places)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dray-") as folder:
        tally = asyncio.run(Campaign(Path(folder), options.seed).run(places))
    print(f"R-11 {tally}\nin {time.monotonic() - began:.0f} seconds", flush=True)
    complete = tally.deaths.total() == len(places)
    return 0 if tally.sound() and complete else 1


if __name__ == "__main__":
    sys.exit(main())
