"""The full size of R-12: `python -m tests.faults.agents --full [--seed N]`.

Prints its seed and its figures, and ends with 1 when a pass line is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tests.faults.agents.agent import BROKEN, POINTS
from tests.faults.agents.campaign import Campaign, Size
from tests.faults.agents.machine import SPOILS

ANY_TIME = "at any time"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the pass lines")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--cycles", type=int, default=0, help="so many, in place of the full size")
    parser.add_argument("--rounds", type=int, default=0, help="of all troubles")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    rounds = options.rounds or (3 if options.full else 1)
    troubles = [*POINTS, *SPOILS, *SPOILS, "reboot", "reboot", "server", "server", *[ANY_TIME] * 8] * rounds
    random.Random(options.seed).shuffle(troubles)
    size = Size(options.cycles or (1000 if options.full else 60), 12, tuple(troubles))
    with tempfile.TemporaryDirectory(prefix="dray-") as folder:
        tally = asyncio.run(Campaign(Path(folder), size, options.seed).run())
        if not tally.sound():
            kept = Path(tempfile.mkdtemp(prefix="dray-kept-"))
            for file in ("journal", "agent.log", "server.log"):
                (kept / file).write_bytes((Path(folder) / file).read_bytes())
            print(f"what they said is in {kept}", flush=True)
    print(f"R-12 {tally}", flush=True)
    caught = [_caught(broken, options.seed) for broken in BROKEN] if options.full else []
    return 0 if tally.sound() and tally.cycles >= size.cycles and all(caught) else 1


def _caught(broken: str, seed: int) -> bool:
    """An agent that is broken must be found to be so, or the run proves nothing."""
    with tempfile.TemporaryDirectory(prefix="dray-") as folder:
        size = Size(cycles=2, workers=1, broken=broken, patience=20.0)
        tally = asyncio.run(Campaign(Path(folder), size, seed).run())
    found = any(BROKEN[broken].fault in each for each in tally.judge.breaches)
    print(f"R-12 control, an agent that {broken}: {'caught' if found else 'NOT CAUGHT'}", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
