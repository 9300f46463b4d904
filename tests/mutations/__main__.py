"""Send mutated requests to Kubernetes and record its answers, or compare dray's with those on record.

`record` starts a kube-apiserver from DRAY_KUBE_BIN; `compare` needs nothing. Exit code 1: a difference that
no rule explains.
"""

from __future__ import annotations

import argparse
import asyncio
import fnmatch
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.mutations.answer import Answer, load_answers, save_answers
from tests.mutations.case import Case, load_bases
from tests.mutations.catalogue import load_cases
from tests.mutations.comparison import Comparison, compare
from tests.mutations.report import format_difference, format_groups, format_rules, format_table
from tests.mutations.rules import RULES
from tests.mutations.servers import CaseRunner, KubernetesServer, run_dray

GATES = {"DRAListTypeAttributes": True}
"""Features of dray that Kubernetes has off by default."""


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("record", help="record the answers of Kubernetes")
    commands.add_parser("list", help="list the ids of all cases")
    parser_of_compare = commands.add_parser("compare", help="compare dray with the recording")
    parser_of_compare.add_argument("--kind", help="only cases of this kind, such as Pod")
    parser_of_compare.add_argument("--only", default="*", metavar="PATTERN", help="cases whose ids match")
    parser_of_compare.add_argument("-v", "--verbose", action="store_true", help="show all differences")
    parser_of_compare.add_argument("--decided", action="store_true", help="show decided differences, too")
    return parser.parse_args(arguments)


async def record_answers() -> int:
    """Record what Kubernetes answers to every case."""
    from tests.kubernetes.control_plane import ApiServerOptions, ControlPlane

    answers: list[tuple[Case, Answer]] = []
    with (
        tempfile.TemporaryDirectory(prefix="dray-mutations-") as folder,
        ControlPlane.open(Path(folder), ApiServerOptions(feature_gates=GATES)) as plane,
    ):
        server = KubernetesServer(plane.kubeconfig)
        runner = CaseRunner(server)
        await runner.prepare(load_bases())
        for case in load_cases():
            answers.append((case, await runner.ask(case)))
        server.close()
    save_answers(answers)
    print(f"{len(answers)} answers recorded")
    return 0


async def compare_with_recording(cases: Sequence[Case]) -> Comparison:
    """Ask dray every case that is on record."""
    recorded = load_answers()
    answers = []
    async with run_dray(load_bases()) as runner:
        for case in cases:
            if case.id in recorded:
                answers.append((case, recorded[case.id][1], await runner.ask(case)))
    return compare(answers, RULES)


def show_comparison(arguments: argparse.Namespace) -> int:
    """Compare and print."""
    cases = [
        case
        for case in load_cases()
        if (not arguments.kind or case.base.kind == arguments.kind)
        and fnmatch.fnmatchcase(case.id, arguments.only)
    ]
    result = asyncio.run(compare_with_recording(cases))
    for line in format_groups(result.wrong, arguments.verbose):
        print(line)
    if arguments.decided:
        for rule, difference in result.decided:
            print(f"decided by {rule.name}")
            print("\n".join(format_difference(difference)))
    print("\n".join([*format_table(result), *format_rules(result)]))
    return 1 if result.wrong else 0


def main(arguments: argparse.Namespace) -> int:
    if arguments.command == "record":
        return asyncio.run(record_answers())
    if arguments.command == "list":
        print("\n".join(case.id for case in load_cases()))
        return 0
    return show_comparison(arguments)


if __name__ == "__main__":
    sys.exit(main(parse_arguments(sys.argv[1:])))
