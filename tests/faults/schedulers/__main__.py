"""R-08 with real schedulers: `python -m tests.faults.schedulers --full [--seed N]`.

Prints its seed and its figures, and ends with 1 when a pass line is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tests.faults.schedulers.campaign import Campaign, Tally

PODS = {False: 200, True: 3000}
POOLS = {False: 2, True: 20}
KILLS = {False: 2, True: 12}
SCHEDULERS = {False: (2,), True: (2, 4, 8)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the pass lines")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--schedulers", type=int, nargs="*")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    sound = True
    for schedulers in options.schedulers or SCHEDULERS[options.full]:
        tally = _placed(schedulers, options.full, options.seed)
        print(f"R-08 {tally}", flush=True)
        sound &= tally.sound()
    control = _placed(2, False, options.seed, ledger=False)
    print(f"R-08 control, without ledger: {control}", flush=True)
    # Without the ledger there must be something to see, or the run proves nothing.
    return 0 if sound and control.judge.violations else 1


def _placed(schedulers: int, full: bool, seed: int, *, ledger: bool = True) -> Tally:
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(Path(folder), schedulers, seed, ledger=ledger)
        return asyncio.run(campaign.run(PODS[full], POOLS[full], KILLS[full]))


if __name__ == "__main__":
    sys.exit(main())
