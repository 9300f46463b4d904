"""`python -m bench`: measure, print a table, and write JSON when asked."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path

import msgspec

from bench import folder, objects

TARGET_RATIO, TARGET_SECONDS, TARGET_MEGABYTES = 10.0, 3.0, 200.0


def main(arguments: list[str] | None = None) -> int:
    chosen = _parsed(arguments)
    print(f"Python {platform.python_version()}, msgspec {msgspec.__version__}, {platform.machine()}\n")
    timings = objects.timings(chosen.rounds)
    _print_objects(timings)
    linted = folder.timing(chosen.manifests, chosen.repeats)
    _print_folder(linted)
    if chosen.json:
        document = {"objects": objects.as_documents(timings), "lint": folder.as_document(linted)}
        chosen.json.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    return 0 if linted.best.exit_code == 0 else 1


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench", description="Measure dray, in turns with others.")
    parser.add_argument("--rounds", type=int, default=25, help="turns of each contender")
    parser.add_argument("--manifests", type=int, default=1000, help="files in the folder to lint")
    parser.add_argument("--repeats", type=int, default=3, help="runs of lint")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    return parser.parse_args(arguments)


def _print_objects(timings: list[objects.Timing]) -> None:
    print(f"{'milliseconds per object':<36}{'best':>9}{'median':>9}{'ratio':>8}")
    what, ours = "", 0.0
    for timing in timings:
        if timing.what != what:
            what = timing.what
            print(f"\n{what}, {timing.bytes / 1024:.1f} KiB of JSON")
            ours = timing.best
        ratio = timing.best / ours
        print(f"  {timing.who:<34}{timing.best:>9.3f}{timing.median:>9.3f}{ratio:>8.1f}")
    print(f"\nratio: best time over dray's decode, default and validate; the target is {TARGET_RATIO:.0f}\n")


def _print_folder(linted: folder.FolderTiming) -> None:
    best = linted.best
    size = linted.bytes / 2**20
    print(f"dray lint, {linted.manifests} YAML manifests, {size:.1f} MiB, {len(linted.runs)} runs")
    print(f"  {best.seconds:.2f} s best wall time (target {TARGET_SECONDS:.0f})")
    print(f"  {best.cpu_seconds:.2f} s of the processor in that run")
    peak = max(run.peak_megabytes for run in linted.runs)
    print(f"  {peak:.0f} MB peak memory (target {TARGET_MEGABYTES:.0f})")
    print(f"  exit code {best.exit_code}: {best.summary}")


if __name__ == "__main__":
    sys.exit(main())
