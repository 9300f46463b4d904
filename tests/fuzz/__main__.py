"""`python -m tests.fuzz`: a long run on all cores, with a count at the end."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from tests.fuzz.campaign import Report, run, save_input, small

PIECE = 250
"""Inputs per task of a process: few enough that a run can end in time."""


def main(arguments: list[str] | None = None) -> int:
    chosen = _parsed(arguments)
    print(f"seed {chosen.seed}, {chosen.jobs} processes", flush=True)
    pieces = [*_pieces("structured", chosen.structured), *_pieces("raw", chosen.raw)]
    if chosen.only:
        mode, _, index = chosen.only.partition(":")
        pieces = [(mode, int(index), int(index) + 1)]
    began = time.monotonic()
    report = _run(pieces, chosen, began)
    took = time.monotonic() - began
    total = report.outcomes.total()
    for outcome, count in report.outcomes.most_common():
        print(f"{count:>9} {outcome}")
    seconds, mode, index = report.slowest
    print(f"{total} inputs in {took:.1f} s, {total / max(took, 0.001):.0f} inputs/s")
    print(f"slowest: {seconds * 1000:.0f} ms ({mode}:{index})")
    for failure in report.failures:
        name = f"{failure.mode}-{chosen.seed}-{failure.index}"
        path = save_input(chosen.out, name, small(failure, chosen.seed))
        print(f"\nFAILED {failure.signature}\n  {failure.error}\n  smallest input: {path}")
        print(f"  again: python -m tests.fuzz --seed {chosen.seed} --only {failure.mode}:{failure.index}")
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.fuzz", description="Check how dray handles broken inputs."
    )
    parser.add_argument(
        "--structured", type=int, default=2000, metavar="N", help="documents broken on purpose"
    )
    parser.add_argument("--raw", type=int, default=2000, metavar="N", help="bytes broken on purpose")
    parser.add_argument("--seed", default=str(secrets.randbelow(10**9)), help="repeat a run")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), metavar="MAX", help="end after so long"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes")
    parser.add_argument("--only", metavar="MODE:INDEX", help="one input of a run")
    parser.add_argument(
        "--out", type=Path, default=Path("build/fuzz"), metavar="DIR", help="for failing inputs"
    )
    return parser.parse_args(arguments)


def _pieces(mode: str, count: int) -> Iterator[tuple[str, int, int]]:
    for start in range(0, count, PIECE):
        yield mode, start, min(start + PIECE, count)


def _run(pieces: list[tuple[str, int, int]], chosen: argparse.Namespace, began: float) -> Report:
    report, reported = Report(), began
    todo = iter(pieces)
    with ProcessPoolExecutor(chosen.jobs) as processes:
        waiting: set[Future[Report]] = set()
        while True:
            late = time.monotonic() - began > chosen.seconds
            while not late and len(waiting) < chosen.jobs * 2 and (piece := next(todo, None)):
                mode, start, stop = piece
                waiting.add(processes.submit(run, mode, chosen.seed, start, stop))
            if not waiting:
                return report
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for finished in done:
                report.add(finished.result())
            if time.monotonic() - reported > 5:
                reported = time.monotonic()
                rate = report.outcomes.total() / (reported - began)
                print(f"{report.outcomes.total()} inputs, {rate:.0f}/s, {report.failed} failed", flush=True)


if __name__ == "__main__":
    sys.exit(main())
