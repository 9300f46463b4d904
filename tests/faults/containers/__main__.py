"""The full size of the kills around containers: `python -m tests.faults.containers --full [--seed N]`.

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

from tests.faults.containers.campaign import campaign

ROUNDS = {False: 50, True: 1000}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the pass lines")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--rounds", type=int, help="so many rounds, instead")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    rounds, began = options.rounds or ROUNDS[options.full], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dray-") as folder:
        tally = asyncio.run(campaign(Path(folder), rounds, options.seed))
    print(f"containers {tally}", flush=True)
    print(f"in {time.monotonic() - began:.0f} seconds", flush=True)
    return 0 if tally.sound() and tally.rounds == rounds else 1


if __name__ == "__main__":
    sys.exit(main())
