"""R-13: `python -m tests.faults.nodeloss --full [--seed N]`.

Prints its seed and its figures, and ends with 1 when a pass line is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tests.faults.nodeloss.campaign import Campaign, Size, Tally

SIZES = {
    False: Size(),
    True: Size(machines=12, devices=30, pods=45, rounds=40),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the pass lines")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    tally = _run(SIZES[options.full], options.seed)
    print(f"R-13 {tally}", flush=True)
    for violation in (*tally.hall.violations[:20], *tally.trespass[:20]):
        print(violation, flush=True)
    control = _run(SIZES[False], options.seed, ledger=False)
    print(f"R-13 control, without ledger: {control}", flush=True)
    # Without the ledger there must be something to see, or the run proves nothing.
    return 0 if tally.sound() and (control.hall.violations or control.early) else 1


def _run(size: Size, seed: int, *, ledger: bool = True) -> Tally:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(Campaign(Path(folder), size, seed, ledger=ledger).run())


if __name__ == "__main__":
    sys.exit(main())
