"""`python -m tests.fuzz_cel --count 20000 --seed 1`: a long comparison with the oracle."""

from __future__ import annotations

import argparse
import sys

from tests.fuzz_cel import compare, oracle
from tests.fuzz_cel.expressions import Expressions

_SHOWN = 20


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.fuzz_cel", description=__doc__)
    options.add_argument("--count", type=int, default=20_000)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    if not oracle.is_installed():
        print(f"no oracle: {oracle.INSTALL}", file=sys.stderr)
        return 2
    expressions, second, device = Expressions(chosen.seed), compare.oracle(), compare.device()
    failed = 0
    for _ in range(chosen.count):
        text = expressions.selector()
        ours, theirs = compare.answer(text, device), second.ask(text)
        wrong = compare.fault(text, ours, theirs)
        if wrong is not None:
            failed += 1
            if failed <= _SHOWN:
                print(f"{wrong}: {text}\n    ours:   {ours}\n    oracle: {theirs}")
    print(f"{chosen.count - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
