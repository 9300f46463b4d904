"""The long run: `python -m tests.fuzz_slow --seconds 600 --seed 1`.

Climbs again and again and tells the worst problems with their steps and time. Allocation is as hard as
packing, so some searches will always have to be cut off; what counts is that known problems do not become
slower. With `--keep` the worst problems that came to an end are added to tests/fuzz_slow/cases.json, and a
test holds every later search to their steps.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from dray.allocator.search.trace import Exhausted, Solved
from tests.fuzz_slow.climb import Measured, climb
from tests.fuzz_slow.recipes import FAMILIES

CASES = Path(__file__).parent / "cases.json"
ENDED = (Solved.__name__, Exhausted.__name__)
KEPT = 6
"""Problems that are kept of each family."""


def main() -> int:
    """Run for some time; tell what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_slow", description="Look for slow searches.")
    parser.add_argument("--seconds", type=float, default=600, help="how long (default: %(default)s)")
    parser.add_argument("--seed", default="1", help="where chance starts (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="add the worst problems to cases.json")
    chosen = parser.parse_args()
    until = time.monotonic() + chosen.seconds
    worst: dict[str, list[Measured]] = {family: [] for family in FAMILIES}
    climbs = 0
    while time.monotonic() < until:
        found = climb(Random(f"{chosen.seed}/{climbs}"), until)
        own = worst[found.recipe.family]
        own.append(found)
        own.sort(key=lambda measured: -measured.badness)
        del own[KEPT:]
        climbs += 1
        print(f"\r{climbs} climbs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for family, own in worst.items():
        for measured in own:
            print(f"{family:12} {measured.ending:9} {measured.steps:8} steps {measured.milliseconds:8.1f} ms")
    if chosen.keep:
        _keep([measured for own in worst.values() for measured in own])
    given_up = sum(measured.badness == float("inf") for own in worst.values() for measured in own)
    print(f"{climbs} climbs, {given_up} of the worst were cut off")
    return 0


def _keep(found: list[Measured]) -> None:
    kept: list[dict[str, Any]] = json.loads(CASES.read_text()) if CASES.exists() else []
    kept += [
        {
            "family": measured.recipe.family,
            "genes": measured.recipe.genes,
            "ending": measured.ending,
            "steps": measured.steps,
            "milliseconds": measured.milliseconds,
        }
        for measured in found
        if measured.ending in ENDED
    ]
    kept.sort(key=lambda case: (case["family"], -case["steps"]))
    unique: list[dict[str, Any]] = []
    for case in kept:
        same = [other for other in unique if other["family"] == case["family"]]
        if len(same) < KEPT and all(other["genes"] != case["genes"] for other in same):
            unique.append(case)
    CASES.write_text("[\n" + ",\n".join(json.dumps(case) for case in unique) + "\n]\n")


if __name__ == "__main__":
    sys.exit(main())
