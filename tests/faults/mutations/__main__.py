"""The full size of S-07 on a node: `python -m tests.faults.mutations --full [--seed N]`.

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

from tests.faults.mutations import checkpoints
from tests.faults.mutations.frames import frames

COUNT = {False: 2_000, True: 100_000}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the pass lines")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    count = COUNT[options.full]
    print(f"seed {options.seed}", flush=True)
    sound = True
    for name, change in (("agent", checkpoints.agents), ("driver", checkpoints.drivers)):
        with tempfile.TemporaryDirectory(prefix="dray-") as folder:
            began = time.monotonic()
            files = change(count, options.seed, Path(folder))
        print(f"S-07 {name}: {files}; {time.monotonic() - began:.0f} s", flush=True)
        sound = sound and files.sound()
    began = time.monotonic()
    calls = asyncio.run(frames(count, options.seed))
    print(f"S-07 {calls}; {time.monotonic() - began:.0f} s", flush=True)
    return 0 if sound and calls.sound() else 1


if __name__ == "__main__":
    sys.exit(main())
