"""The full size of R-18: `python -m tests.faults.elections --full [--seed N]`.

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

from tests.faults.elections import processes, timeless
from tests.faults.elections.campaign import campaign

FAIL_OVERS = {False: 40, True: 1000}
CONTROL = 60
PROCESSES = {False: 2, True: 6}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the pass lines")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    began = time.monotonic()
    tally = timeless.run(campaign(FAIL_OVERS[options.full], options.seed))
    print(f"R-18 {tally}\nin {time.monotonic() - began:.0f} seconds", flush=True)
    control = timeless.run(campaign(CONTROL, options.seed, fenced=False))
    print(f"R-18 control, writes without a look at the clock: {control}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        real = asyncio.run(processes.Campaign(Path(folder)).run(PROCESSES[options.full]))
    print(f"R-18 {real}", flush=True)
    complete = tally.fail_overs == FAIL_OVERS[options.full]
    # Without the fence there must be something to see, or the run proves nothing.
    return 0 if tally.sound() and complete and control.returned and real.sound() else 1


if __name__ == "__main__":
    sys.exit(main())
