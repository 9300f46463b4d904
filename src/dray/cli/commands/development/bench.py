"""`dray bench`: benchmarks the allocator on scenarios, against a reference, and on clusters of any size."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from dray.api.json_text import read_json
from dray.cli.commands.development import bench_report
from dray.cli.exit_codes import EXIT_NO, EXIT_YES
from dray.cli.input import manifest_files
from dray.cli.input.options import output_option
from dray.cli.output.progress import show_progress
from dray.cli.output.text import print_message
from dray.errors import DecodeError, InputError
from dray.manifests import to_json
from dray.share_ids import generate_share_id
from dray.simulation.benchmarks.allocator_timing import (
    ROUNDS,
    Calibration,
    ScenarioRun,
    ScenarioTiming,
)
from dray.simulation.benchmarks.cluster_scale import (
    measure_cycles,
    measure_footprint,
)
from dray.simulation.benchmarks.scenarios import ReferenceTimes, Scenario, read_scenario

REFERENCE_FILE = "go_results.json"
"""Looked for beside the scenarios when no reference is given."""

_SUFFIXES = (".json", ".jsonl")
_MEMORY_NODES = 5000
_CALIBRATE_EVERY = 10


class NumbersType(click.ParamType[tuple[int, ...]]):
    """`500,5000`."""

    name = "numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        numbers = [part.strip().replace("_", "") for part in str(value).split(",")]
        if not all(number.isdigit() and int(number) > 0 for number in numbers):
            raise click.UsageError(f"expected numbers such as `500,5000`, got `{value}`", ctx)
        return tuple(int(number) for number in numbers)


@click.command("bench")
@click.argument("path", required=False, metavar="[FILE|FOLDER]")
@click.option(
    "--reference",
    metavar="FILE",
    help=f"Recorded times to compare with.  [default: each {REFERENCE_FILE} beside scenarios]",
)
@click.option("--family", metavar="A,B", help="Run only these families of scenarios.")
@click.option(
    "--nodes", type=NumbersType(), metavar="500,5000", help="Also benchmark cycles over so many nodes."
)
@click.option(
    "--shapes",
    type=NumbersType(),
    default="1,10,100",
    show_default=True,
    metavar="1,10",
    help="Different node shapes in those cycles.",
)
@click.option("--memory", is_flag=True, help=f"Also measure the memory of {_MEMORY_NODES:,} nodes.")
@click.option("-v", "--verbose", is_flag=True, help="Show every scenario, not only their families.")
@click.option("--json", "into", metavar="FILE", help="Also write the figures into a file.")
@output_option
def command(path: str | None, **chosen: Any) -> int:
    """Benchmark the allocator on scenarios, and compare with a reference.

    Scenarios are files with one each (.json), files with a vector on each line (.jsonl), or folders of both.
    One operation is one pod: from its claims to their allocations; over all nodes where the scenario has
    many. `first` is a new claim, on prepared slices and with compiled expressions; `repeated` is the same
    claim again; `cold` includes preparing and compiling. Times are the best of several. The reference is
    scaled to this machine by a calibration loop. Exit code 0 when every result is as expected, 1 when one is
    not or a search gave up.
    """
    options = _Options(**chosen)
    if path is None and not options.nodes and not options.memory:
        raise click.UsageError("nothing to measure; name a folder of scenarios, `--nodes` or `--memory`")
    calibration = Calibration()
    timings = _measure_scenarios(path, options, calibration) if path is not None else []
    sizes = [measure_cycles(nodes, shapes) for nodes in options.nodes or () for shapes in options.shapes]
    memory = measure_footprint(_MEMORY_NODES) if options.memory else None
    figures = to_json([bench_report.build_document(timings, sizes, memory)])
    if options.output == "json":
        click.echo(figures, nl=False)
    else:
        click.echo(
            "\n".join(bench_report.render_lines(timings, calibration.seconds, sizes, memory, options.verbose))
        )
    if options.into is not None:
        manifest_files.save_file(options.into, figures)
    return (
        EXIT_YES
        if all(timing.outcome.expected and not timing.outcome.gave_up for timing in timings)
        else EXIT_NO
    )


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of the command line."""

    reference: str | None
    family: str | None
    nodes: tuple[int, ...] | None
    shapes: tuple[int, ...]
    memory: bool
    verbose: bool
    into: str | None
    output: str


def _measure_scenarios(path: str, options: _Options, calibration: Calibration) -> list[ScenarioTiming]:
    targets = _find_input_files(path)
    scenarios = list(_read_scenarios(path, targets, options.family))
    reference = _load_reference(targets, options.reference)
    compared = any(reference.scale_time(scenario, 1.0) is not None for scenario in scenarios)
    if not compared:
        print_message(
            f"no reference: there is no `{REFERENCE_FILE}` beside the scenarios and `--reference` names none"
        )
    runs = [ScenarioRun(scenario, generate_share_id) for scenario in scenarios]
    with show_progress([run for _ in range(ROUNDS) for run in runs], "measuring", min_items=2) as each:
        for number, run in enumerate(each):
            if number % _CALIBRATE_EVERY == 0:
                calibration.run()
            run.run()
    if compared:
        calibration.finish()
    return [run.build_timing(reference, calibration.seconds) for run in runs]


def _find_input_files(path: str) -> list[manifest_files.InputFile]:
    """Find the files of a path; a folder may also have files with a vector on each line."""
    if not os.path.isdir(path):
        return manifest_files.find_input_files([path])
    found = [
        os.path.join(here, name)
        for here, _, names in os.walk(path)
        for name in names
        if name.endswith(_SUFFIXES) and not name.startswith(".")
    ]
    return [
        manifest_files.InputFile(name, name)
        for name in sorted(found, key=lambda name: (os.path.dirname(name), name))
    ]


def _read_scenarios(
    path: str, targets: Sequence[manifest_files.InputFile], family: str | None
) -> Iterator[Scenario]:
    wanted = {name.strip() for name in family.split(",")} if family else None
    none = True
    for target in targets:
        stem = os.path.splitext(os.path.basename(target.name))[0]
        for document in _read_documents(target):
            scenario = read_scenario(document, stem)
            if scenario is not None and (wanted is None or scenario.family in wanted):
                none = False
                yield scenario
    if none:
        raise InputError(f"no scenario{f' of family {family}' if family else ''} in `{path}`")


def _read_documents(target: manifest_files.InputFile) -> Iterator[Any]:
    data = manifest_files.read_contents(target)
    for number, line in enumerate(data.splitlines() if target.name.endswith(".jsonl") else [data], start=1):
        if line.strip():
            try:
                yield read_json(line)
            except DecodeError as broken:
                raise InputError(f"{target.name}:{number}: {broken}") from None


def _load_reference(targets: Sequence[manifest_files.InputFile], named: str | None) -> ReferenceTimes:
    """Load the times in the given file, or in every file of that name beside the scenarios."""
    beside = {os.path.join(os.path.dirname(target.name), REFERENCE_FILE): None for target in targets}
    paths = [named] if named is not None else [path for path in beside if os.path.exists(path)]
    times: dict[str, tuple[float, float]] = {}
    for path in paths:
        times |= ReferenceTimes.parse(
            read_json(manifest_files.read_contents(manifest_files.InputFile(path, path)))
        ).times
    return ReferenceTimes(times)
