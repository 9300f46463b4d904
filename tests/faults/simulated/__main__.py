"""R-22: schedules of the whole cluster in simulation: `python -m tests.faults.simulated --full [--jobs N]`.

Prints its seeds and its figures, each violation with the command that repeats it, and ends with 1 when there
was one, or when a planted fault was not found.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator

from tests.faults.simulated.campaign import format_violation, run_campaign, show_progress, warm_up
from tests.faults.simulated.planted import PLANTED_FAULTS, count_until_found
from tests.faults.simulated.run import run_schedule
from tests.faults.simulated.schedule import Schedule
from tests.faults.simulated.shrinking import shrink

SCHEDULES = {False: 200, True: 100_000}
MAX_UNTIL_FOUND = 2000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the size of the pass line")
    parser.add_argument("--seeds", help="a range of seeds, for example 1000-1999")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, help="end after so many minutes")
    parser.add_argument(
        "--replay", type=int, metavar="SEED", help="one schedule, with everything that happens"
    )
    parser.add_argument(
        "--shrink", type=int, metavar="SEED", help="leave out steps that a violation does not need"
    )
    parser.add_argument("--planted", action="store_true", help="only the planted faults")
    options = parser.parse_args()
    if options.replay is not None:
        return _replay(options.replay)
    if options.shrink is not None:
        return _shrink(options.shrink)
    sound = True
    if not options.planted:
        sound = _run(options)
    if options.planted or options.full:
        sound &= _find_planted(options.jobs)
    return 0 if sound else 1


def _run(options: argparse.Namespace) -> bool:
    first, last = map(int, options.seeds.split("-")) if options.seeds else (0, SCHEDULES[options.full] - 1)
    print(f"R-22 seeds {first} to {last}", flush=True)
    end = time.monotonic() + options.minutes * 60 if options.minutes else None
    seeds = range(first, last + 1)

    def until_end() -> Iterator[object]:
        for outcome in run_campaign(seeds, options.jobs):
            yield outcome
            if end is not None and time.monotonic() > end:
                return

    tally = show_progress(until_end(), len(seeds))  # type: ignore[arg-type]
    print(f"R-22 {tally}", flush=True)
    return not tally.violations


def _find_planted(jobs: int) -> bool:
    sound = True
    for name in PLANTED_FAULTS:
        found = count_until_found(name, MAX_UNTIL_FOUND, jobs)
        print(f"R-22 planted: {name}: {found}", flush=True)
        sound &= found.schedules > 0
    return sound


def _replay(seed: int) -> int:
    warm_up()
    schedule = Schedule.from_seed(seed)
    print(f"{schedule.shape}, {schedule.seconds:.0f} seconds")
    outcome = run_schedule(schedule, keep_all=True)
    print(format_violation(outcome), f"digest {outcome.digest}", sep="\n")
    return 1 if outcome.violations else 0


def _shrink(seed: int) -> int:
    warm_up()
    smaller, outcome = shrink(Schedule.from_seed(seed))
    print(*smaller.steps, sep="\n")
    print(format_violation(outcome))
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
