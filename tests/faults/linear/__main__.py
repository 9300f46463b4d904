"""The full size of R-03 for the store in one file: `python -m tests.faults.linear --full [--seed N]`.

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

from tests.faults.linear import campaign

SIZES = {False: (2, 1500), True: (50, 2000)}
"""Histories, and operations in each."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the pass lines")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tally = asyncio.run(campaign.in_a_process(Path(folder), SIZES[options.full], options.seed))
    print(f"R-03 sqlite {tally} in {time.monotonic() - begun:.0f} s", flush=True)
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
