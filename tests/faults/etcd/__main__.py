"""The full sizes of R-16, and of R-03 for etcd: `python -m tests.faults.etcd --full [--seed N]`.

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

from tests.faults.etcd import linear
from tests.faults.etcd.faults import FAULTS, full_disk, run
from tests.faults.etcd.field import Field, NoEtcd, three_members

HOLD = {False: 3.0, True: 10.0}
LONG_HOLD = {False: 3.0, True: 30.0}
"""How many seconds a fault lasts; a pause lasts longer."""
HISTORIES = {False: (2, 500), True: (50, 2000)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the pass lines")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--only", choices=["faults", "linear"])
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    try:
        return 0 if asyncio.run(_run(options.full, options.seed, options.only)) else 1
    except NoEtcd as missing:
        print(missing)
        return 1


async def _run(full: bool, seed: int, only: str | None) -> bool:
    sound = True
    with tempfile.TemporaryDirectory() as folder:
        if only != "linear":
            async with three_members(Path(folder) / "faults", disk=True) as field:
                sound &= await _faults(field, full)
        if only != "faults":
            async with three_members(Path(folder) / "linear") as field:
                sound &= await _linear(field, full, seed)
    return sound


async def _faults(field: Field, full: bool) -> bool:
    sound = True
    for name, (fault, _) in FAULTS.items():
        if fault is full_disk and field.small_disk is None:
            print(f"R-16 {name}: NOT RUN, this process may not mount a small disk", flush=True)
            continue
        outcome = await run(field, name, (LONG_HOLD if name.startswith("pause") else HOLD)[full])
        print(f"R-16 {outcome}", *outcome.wrong[:5], sep="\n  ", flush=True)
        sound &= not outcome.wrong
    return sound


async def _linear(field: Field, full: bool, seed: int) -> bool:
    begun = time.monotonic()
    tally = await linear.campaign(field, HISTORIES[full], seed)
    print(f"R-03 etcd {tally} in {time.monotonic() - begun:.0f} s", flush=True)
    return not tally.wrong


if __name__ == "__main__":
    sys.exit(main())
