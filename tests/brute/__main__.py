"""The laws at full size: `python -m tests.brute --count 100000 --seed 1`; `--only N` shows one problem."""

from __future__ import annotations

import argparse
import sys
from random import Random

from tests.brute.drawing import draw
from tests.brute.laws import broken_laws, plain_answer
from tests.brute.plain import TooLarge

SHOWN = 10
"""Failures that are told in full."""


def main() -> int:
    """Run; the exit code is 1 when a law was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.brute", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="how many problems (default: %(default)s)")
    parser.add_argument("--seed", default="1", help="where chance starts (default: %(default)s)")
    parser.add_argument("--only", type=int, help="show this problem of the seed and what is wrong with it")
    chosen = parser.parse_args()
    if chosen.only is not None:
        return _show(chosen.seed, chosen.only)
    outcomes: dict[str, int] = {}
    failed = 0
    for number in range(chosen.count):
        outcome, complaints = _run(chosen.seed, number)
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


def _run(seed: str, number: int) -> tuple[str, list[str]]:
    problem = draw(Random(f"{seed}/{number}"))
    try:
        expected = plain_answer(problem)
        return expected[0], broken_laws(problem, expected)
    except TooLarge:
        return "too large for the plain search", []


def _show(seed: str, number: int) -> int:
    problem = draw(Random(f"{seed}/{number}"))
    print(problem.text())
    print(f"at most {problem.limit} devices per claim; the plain search says {plain_answer(problem)}")
    complaints = broken_laws(problem)
    print(*complaints or ["every law holds"], sep="\n")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
