"""The laws at full size: `python -m tests.brute --count 100000 --seed 1`.

`--only N` shows one problem of a seed. `--large` draws problems that are too large for the plain search, and
compares the search with itself without pruning.
"""

from __future__ import annotations

import argparse
import sys

from tests.brute.laws import broken_laws, broken_on_large, plain_answer
from tests.brute.reference_search import TooLarge
from tests.brute.structured import draw_numbered

SHOWN = 10
"""Failures that are told in full."""


def main() -> int:
    """Run; the exit code is 1 when a law was broken."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.brute", description="The laws of the allocator at full size."
    )
    parser.add_argument("--count", type=int, default=100_000, help="how many problems (default: %(default)s)")
    parser.add_argument("--seed", default="1", help="where chance starts (default: %(default)s)")
    parser.add_argument("--only", type=int, help="show this problem of the seed and what is wrong with it")
    parser.add_argument("--large", action="store_true", help="problems of twice the size")
    chosen = parser.parse_args()
    if chosen.only is not None:
        return _show(chosen.seed, chosen.only, chosen.large)
    outcomes: dict[str, int] = {}
    failed = 0
    for number in range(chosen.count):
        outcome, complaints = _run(chosen.seed, number, chosen.large)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        failed += bool(complaints)
        if complaints and failed <= SHOWN:
            print(f"problem {number} of seed {chosen.seed}:", *complaints[:5], sep="\n  ", flush=True)
        if (number + 1) % 1000 == 0:
            print(f"\r{number + 1} of {chosen.count}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(", ".join(f"{outcome}: {times}" for outcome, times in sorted(outcomes.items())))
    print(f"{chosen.count - failed} passed, {failed} failed")
    return 1 if failed else 0


def _run(seed: str, number: int, large: bool) -> tuple[str, list[str]]:
    problem = draw_numbered(seed, number, large)
    if large:
        return broken_on_large(problem)
    try:
        expected = plain_answer(problem)
        return expected[0], broken_laws(problem, expected)
    except TooLarge:
        return "too large for the plain search", []


def _show(seed: str, number: int, large: bool) -> int:
    problem = draw_numbered(seed, number, large)
    print(problem.text())
    outcome, complaints = _run(seed, number, large)
    print(f"at most {problem.limit} devices per claim; outcome: {outcome}")
    print(*complaints or ["every law holds"], sep="\n")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
