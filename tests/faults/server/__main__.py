"""The full sizes at the server: `python -m tests.faults.server --full [--seed N] [--only NAME]`.

Prints its seed and its figures, and ends with 1 when a pass line is missed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from tests.faults.server import audited, consistency, crowd, exhaustion, hostile, increments, spies
from tests.faults.server.hosted import hosted
from tests.faults.server.place import placed

Run = Callable[[Path, bool, int], tuple[bool, str]]
"""A folder to work in, whether in full size, the seed; whether it passed, and the figures."""


def r05(folder: Path, full: bool, seed: int) -> tuple[bool, str]:
    async def work() -> consistency.Tally:
        async with placed() as place:
            return await consistency.campaign(place.api, place.store, 10_000 if full else 500, seed)

    tally = uvloop.run(work())
    return not tally.wrong, str(tally)


def r06(folder: Path, full: bool, seed: int) -> tuple[bool, str]:
    watchers, stopped = (1000, 100) if full else (100, 10)
    with hosted(folder, stalled_seconds=crowd.STALLED) as server:
        found = uvloop.run(crowd.campaign(server, watchers, stopped, writes=40, heavy=150_000))
    passed = found.cut == stopped and not found.lost and not found.missing
    return passed and found.beside < 2 * found.baseline and found.peak < 600, str(found)


def r07(folder: Path, full: bool, seed: int) -> tuple[bool, str]:
    async def work() -> increments.Sum:
        async with placed() as place:
            return await increments.campaign(place.api, 32, 50 if full else 5)

    found = uvloop.run(work())
    return found.lost == 0 and found.strange == 0, str(found)


def r19(folder: Path, full: bool, seed: int) -> tuple[bool, str]:
    rounds = 5 if full else 1

    async def work(server: Any) -> tuple[float, list[exhaustion.Outcome]]:
        alone = await exhaustion.calm(server, 3)
        offences = [what for _ in range(rounds) for what in exhaustion.OFFENCES]
        return alone, [outcome for what in offences for outcome in await exhaustion.offend(server, what)]

    with hosted(folder, **exhaustion.SMALL) as server:
        before = server.megabytes()
        alone, outcomes = uvloop.run(work(server))
        after = server.megabytes()
    wrong = [str(outcome) for outcome in outcomes if not outcome.well or outcome.reader.strange]
    waited = sorted(wait for outcome in outcomes for wait in outcome.reader.took)
    beside = waited[len(waited) * 99 // 100]
    figures = (
        f"{len(outcomes)} offences against {len(exhaustion.OFFENCES)} limits, {len(wrong)} went wrong; "
        f"others: {len(waited)} reads, p99 {beside * 1000:.0f} ms (alone {alone * 1000:.0f} ms); "
        f"memory {before:.0f} MB before, {after:.0f} MB after"
    )
    served = beside < max(2 * alone, 0.05)
    return not wrong and served and after < before + 50, "\n".join([figures, *wrong])


def s07(folder: Path, full: bool, seed: int) -> tuple[bool, str]:
    async def work() -> hostile.Tally:
        async with placed() as place:
            return await hostile.campaign(place.api, seed, 0, 1_000_000 if full else 5_000)

    tally = uvloop.run(work())
    return not tally.faults, "\n".join([str(tally), *tally.faults[:20]])


def s13(folder: Path, full: bool, seed: int) -> tuple[bool, str]:
    found = uvloop.run(spies.campaign(folder))
    return not found.leaks, "\n".join([str(found), *found.leaks])


def s14(folder: Path, full: bool, seed: int) -> tuple[bool, str]:
    record = uvloop.run(audited.campaign(folder, 50 if full else 3, seed))
    return record.sound, str(record)


RUNS: dict[str, Run] = {
    "R-05": r05,
    "R-06": r06,
    "R-07": r07,
    "R-19": r19,
    "S-07": s07,
    "S-13": s13,
    "S-14": s14,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the pass lines")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--only", choices=list(RUNS), action="append")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    sound = True
    for name in options.only or RUNS:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            passed, figures = RUNS[name](Path(folder) / "server", options.full, options.seed)
        verdict = "passed" if passed else "FAILED"
        print(f"{name} {verdict} in {time.monotonic() - begun:.0f} s: {figures}", flush=True)
        sound &= passed
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
