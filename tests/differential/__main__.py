"""Put the same objects and pods into two clusters, and compare what became of them field by field.

A and B are each a kubeconfig, a recording (`.jsonl`), or the name of a control plane that is started for the
run. A kubeconfig must lead to a cluster with a scheduler and a claim controller that has no nodes, slices and
device classes: the scenarios create and delete them. Exit code 0: no difference, or only decided ones;
1: a difference that no rule explains; 2: no comparison was possible.
"""

from __future__ import annotations

import argparse
import asyncio
import fnmatch
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.differential.cluster_side import ClusterSide, UnusableClusterError
from tests.differential.comparison import Comparison, compare
from tests.differential.recording import (
    SUFFIX,
    MissingRecordingError,
    Recorder,
    Recording,
    ScenarioSide,
)
from tests.differential.report import Report, format_json, format_result, format_summary
from tests.differential.scenario import (
    Scenario,
    load_case_scenarios,
    load_own_scenarios,
    load_vector_scenarios,
)
from tests.differential.stacks import STACKS, is_stack, open_stack

PROGRESS_EVERY = 20
"""Scenarios after which a line says how far the run is, where no terminal shows it."""


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    described = "\n".join(f"  {name:16} {stack.parts}" for name, stack in STACKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.differential",
        description=__doc__,
        epilog="control planes (the programs of Kubernetes come from DRAY_KUBE_BIN; NAME@1.35 emulates that "
        f"release):\n{described}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("a", metavar="A", nargs="?", help="kubeconfig, recording or control plane")
    parser.add_argument("b", metavar="B", nargs="?", help="the other one")
    parser.add_argument(
        "--only", action="append", metavar="PATTERN", help="scenarios whose names match, such as 'life*'"
    )
    parser.add_argument("--list", action="store_true", help="list the scenarios and exit")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("-v", "--verbose", action="store_true", help="show decided differences, too")
    parser.add_argument(
        "--vectors", type=Path, action="append", default=[], help="also the vectors of a file"
    )
    for side in "ab":
        upper = side.upper()
        parser.add_argument(f"--record-{side}", type=Path, metavar="FILE", help=f"record {upper} in a file")
        parser.add_argument(f"--scheduler-{side}", default="", help=f"schedulerName of the pods in {upper}")
    parser.add_argument(
        "--feature-gates", type=_parse_gates, default={}, metavar="GATE=BOOL,...", help="of control planes"
    )
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="keep the logs of control planes here")
    parsed = parser.parse_args(arguments)
    if not parsed.list and parsed.b is None:
        parser.error("A and B are required")
    return parsed


def _parse_gates(text: str) -> dict[str, bool]:
    return {name: value == "true" for name, _, value in (part.partition("=") for part in text.split(","))}


def select_scenarios(only: Sequence[str], vectors: Sequence[Path] = ()) -> Iterator[Scenario]:
    """Yield the scenarios whose names match one of the patterns."""
    sources = [load_own_scenarios(), load_case_scenarios(), *map(load_vector_scenarios, vectors)]
    for source in sources:
        for scenario in source:
            if any(fnmatch.fnmatch(scenario.name, pattern) for pattern in only):
                yield scenario


class Progress:
    """Says on stderr how far a run is, and shows differences when they are found."""

    def __init__(self, total: int, verbose: bool, differences: bool) -> None:
        self._total = total
        self._verbose = verbose
        self._differences = differences
        self._terminal = sys.stderr.isatty()

    def show(self, number: int, result: Comparison) -> None:
        if self._terminal:
            print(
                f"\r{number}/{self._total} {result.scenario[:70]:70}", end="\r", file=sys.stderr, flush=True
            )
        elif number % PROGRESS_EVERY == 0 or number == self._total:
            print(f"{number}/{self._total} scenarios", file=sys.stderr, flush=True)
        for line in format_result(result, self._verbose) if self._differences else ():
            print(line, flush=True)


async def run_scenarios(
    left: ScenarioSide, right: ScenarioSide, scenarios: list[Scenario], progress: Progress | None = None
) -> list[Comparison]:
    """Run every scenario on both sides at once."""
    results = []
    for number, scenario in enumerate(scenarios, 1):
        one, other = await asyncio.gather(left.run_scenario(scenario), right.run_scenario(scenario))
        results.append(compare(scenario, one, other))
        if progress is not None:
            progress.show(number, results[-1])
    return results


def open_side(stack: ExitStack, name: str, arguments: argparse.Namespace, side: str) -> ScenarioSide:
    """Open a kubeconfig or a recording, or start a control plane."""
    if name.endswith(SUFFIX):
        return Recording.load(Path(name))
    kubeconfig = Path(name)
    if is_stack(name):
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="dray-differential-"))
        folder = (arguments.logs or Path(temporary)) / f"{side}-{name}"
        kubeconfig = stack.enter_context(open_stack(name, folder, arguments.feature_gates))
    elif not kubeconfig.is_file():
        raise UnusableClusterError(f"`{name}` is no file, and no control plane: {', '.join(STACKS)}")
    opened = ClusterSide(str(kubeconfig), scheduler_name=getattr(arguments, f"scheduler_{side}"))
    record = getattr(arguments, f"record_{side}")
    return Recorder(opened, record, name) if record else opened


async def compare_sides(
    sides: tuple[ScenarioSide, ScenarioSide], scenarios: list[Scenario], arguments: argparse.Namespace
) -> Report:
    """Run the scenarios and build the report; both sides are closed in the end."""
    begun = time.monotonic()
    try:
        versions = [await side.check() for side in sides]
        named = (f"{arguments.a} ({versions[0]})", f"{arguments.b} ({versions[1]})")
        print(f"{len(scenarios)} scenarios: A {named[0]}, B {named[1]}", file=sys.stderr, flush=True)
        progress = Progress(len(scenarios), arguments.verbose, arguments.output == "text")
        results = await run_scenarios(*sides, scenarios, progress)
    finally:
        for side in sides:
            await side.close()
    return Report(named, tuple(results), time.monotonic() - begun)


def main(arguments: argparse.Namespace) -> int:
    scenarios = list(select_scenarios(arguments.only or ["*"], arguments.vectors))
    if not scenarios:
        print(f"no scenario matches {arguments.only}", file=sys.stderr)
        return 2
    if arguments.list:
        print("\n".join(scenario.name for scenario in scenarios))
        return 0
    with ExitStack() as stack:
        try:
            sides = (
                open_side(stack, arguments.a, arguments, "a"),
                open_side(stack, arguments.b, arguments, "b"),
            )
            report = asyncio.run(compare_sides(sides, scenarios, arguments))
        except (UnusableClusterError, MissingRecordingError) as failed:
            print(f"tests.differential: {failed}", file=sys.stderr)
            return 2
    print(format_json(report) if arguments.output == "json" else "\n".join(format_summary(report)))
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main(parse_arguments(sys.argv[1:])))
