"""The full sizes of R-08 and S-06: `python -m tests.faults.ledger --full [--seed N]`.

Prints its seed and its figures, and ends with 1 when a pass line is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tests.faults.ledger import quotas
from tests.faults.ledger.campaign import Campaign
from tests.faults.ledger.contested_devices import Size

SIZES = {False: Size(pools=6, claims=900, kills=3), True: Size(pools=100, claims=20_000, kills=24)}
CONTROL = {False: Size(pools=4, claims=400, kills=0), True: Size(pools=20, claims=4_000, kills=0)}
ROUNDS = {False: 20, True: 1000}
WRITERS = (2, 4, 8)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the pass lines")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--only", choices=["ledger", "control", "quota"])
    parser.add_argument("--writers", type=int, nargs="*", default=WRITERS)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    sound = True
    if options.only in (None, "ledger"):
        for writers in options.writers:
            sound &= _fought(writers, SIZES[options.full], options.seed, ledger=True)
    if options.only in (None, "control"):
        sound &= _fought(4, CONTROL[options.full], options.seed, ledger=False)
    if options.only in (None, "quota"):
        with tempfile.TemporaryDirectory() as folder:
            tally = asyncio.run(quotas.campaign(Path(folder), ROUNDS[options.full], options.seed))
        print(f"S-06 {tally}", flush=True)
        sound &= tally.sound()
    return 0 if sound else 1


def _fought(writers: int, size: Size, seed: int, *, ledger: bool) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        tally = asyncio.run(Campaign(Path(folder), writers, size, seed, ledger=ledger).run())
    print(f"R-08 {'' if ledger else 'control, without ledger: '}{tally}", flush=True)
    # Without the ledger there must be something to see, or the run proves nothing.
    return tally.sound() if ledger else tally.judge.violations > 0


if __name__ == "__main__":
    sys.exit(main())
