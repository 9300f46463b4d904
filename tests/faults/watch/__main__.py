"""The full size of R-04: `python -m tests.faults.watch --full [--seed N]`.

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

from dray.store.sqlite.store import SqliteStore
from tests.contract.etcd_server import NO_ETCD, binary
from tests.faults.watch.campaign import Tally, campaign
from tests.faults.watch.etcd import etcd_with_a_torn_line

SIZES = {False: (20_000, 5_000), True: (1_000_000, 200_000)}
"""Events told to watchers: of the store in one file, and of the one in etcd."""
TRANSACTIONS = 2_000
BUFFER = 400


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the pass lines")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    return 0 if asyncio.run(_run(SIZES[options.full], options.seed)) else 1


async def _run(sizes: tuple[int, int], seed: int) -> bool:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        begun = time.monotonic()
        async with await SqliteStore.open(folder / "a.db", buffered_events=BUFFER) as store:
            tally = await campaign(store, store, sizes[0], TRANSACTIONS, seed)
        sound = _show("sqlite", tally, begun)
        if binary(folder) is None:
            print(NO_ETCD)
            return False
        begun = time.monotonic()
        async with etcd_with_a_torn_line(folder, BUFFER, seed) as (writing, watching):
            tally = await campaign(writing, watching, sizes[1], TRANSACTIONS, seed)
        return _show("etcd", tally, begun) and sound


def _show(title: str, tally: Tally, begun: float) -> bool:
    print(f"R-04 {title} {tally} in {time.monotonic() - begun:.0f} s", flush=True)
    return not tally.wrong


if __name__ == "__main__":
    sys.exit(main())
