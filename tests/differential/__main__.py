"""`python -m tests.differential A B`: run the scenarios in two clusters and report every difference."""

from __future__ import annotations

import argparse
import asyncio
import fnmatch
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.differential.cluster_side import ClusterSide
from tests.differential.comparison import RULES, Comparison, compare
from tests.differential.scenario import (
    Scenario,
    load_case_scenarios,
    load_own_scenarios,
    load_vector_scenarios,
)


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("a", metavar="A", help="kubeconfig of one cluster; it must have nothing else to do")
    parser.add_argument("b", metavar="B", help="kubeconfig of the other one")
    parser.add_argument("--scheduler-a", default="", help="schedulerName of the pods in A (default: none)")
    parser.add_argument("--scheduler-b", default="", help="schedulerName of the pods in B (default: none)")
    parser.add_argument(
        "--only", default="*", metavar="PATTERN", help="scenarios whose names match, such as 'life*'"
    )
    parser.add_argument(
        "--vectors", type=Path, action="append", default=[], help="also the vectors of a file"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show decided differences, too")
    return parser.parse_args(arguments)


def select_scenarios(only: str, vectors: list[Path]) -> Iterator[Scenario]:
    """Yield the scenarios whose names match."""
    sources = [load_own_scenarios(), load_case_scenarios(), *map(load_vector_scenarios, vectors)]
    for source in sources:
        yield from (scenario for scenario in source if fnmatch.fnmatch(scenario.name, only))


async def run_scenarios(left: ClusterSide, right: ClusterSide, scenarios: list[Scenario]) -> list[Comparison]:
    """Run every scenario on both sides at once; differences are printed when they are found."""
    results = []
    for number, scenario in enumerate(scenarios, 1):
        one, other = await asyncio.gather(left.run_scenario(scenario), right.run_scenario(scenario))
        result = compare(scenario, one, other)
        results.append(result)
        if sys.stderr.isatty():
            print(f"\r{number}/{len(scenarios)} {scenario.name[:60]:60}", end="", file=sys.stderr, flush=True)
    return results


def report(results: list[Comparison], verbose: bool) -> int:
    """Print differences and counts; return the exit code."""
    for result in results:
        for difference in result.wrong:
            print(f"wrong: {result.scenario}\n  {difference}")
        for name, difference in result.decided if verbose else ():
            print(f"decided by {name}: {result.scenario}\n  {difference}")
    wrong = sum(bool(result.wrong) for result in results)
    decided = sum(bool(result.decided) and not result.wrong for result in results)
    print(f"{len(results) - wrong - decided} equal · {decided} decided · {wrong} wrong")
    counts = Counter(rule for result in results for rule in {rule for rule, _ in result.decided})
    for rule in RULES:
        if counts[rule.name]:
            print(f"  {counts[rule.name]:4} {rule.name}: {rule.reason}")
    return 1 if wrong else 0


async def main(arguments: argparse.Namespace) -> int:
    scenarios = list(select_scenarios(arguments.only, arguments.vectors))
    if not scenarios:
        print(f"no scenario matches `{arguments.only}`", file=sys.stderr)
        return 2
    left = ClusterSide(arguments.a, scheduler_name=arguments.scheduler_a)
    right = ClusterSide(arguments.b, scheduler_name=arguments.scheduler_b)
    try:
        return report(await run_scenarios(left, right, scenarios), arguments.verbose)
    finally:
        await left.close()
        await right.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(parse_arguments(sys.argv[1:]))))
