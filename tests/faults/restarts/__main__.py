"""The full size of R-10: `python -m tests.faults.restarts --full [--seed N] [--seconds N]`.

Prints its seed and its figures, and ends with 1 when a pass line is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tests.faults.restarts.campaign import Campaign

SECONDS = {False: 60.0, True: 1800.0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the pass lines")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--seconds", type=float, help="so long, instead")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        seconds = options.seconds or SECONDS[options.full]
        tally = asyncio.run(Campaign(Path(folder), options.seed).run(seconds))
    print(f"R-10 {tally}", flush=True)
    return 0 if tally.sound() else 1


if __name__ == "__main__":
    sys.exit(main())
