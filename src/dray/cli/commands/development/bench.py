"""`dray bench`: time the allocator on scenarios, beside a reference, and on clusters of any size."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from dray.api.json_text import read_json
from dray.cli.app import EXIT_NO, EXIT_YES
from dray.cli.input import manifest_files
from dray.cli.input.cluster_files import print_message
from dray.cli.input.options import output_option
from dray.cli.output.progress import show_progress
from dray.cli.output.tables import render_table
from dray.errors import DecodeError, InputError
from dray.manifests import to_json
from dray.share_ids import generate_share_id
from dray.simulation.benchmarks.allocator_timing import (
    ROUNDS,
    Calibration,
    ScenarioRun,
    ScenarioTiming,
    compute_percentile,
)
from dray.simulation.benchmarks.cluster_scale import (
    CycleTimings,
    MemoryFootprint,
    measure_cycles,
    measure_footprint,
)
from dray.simulation.benchmarks.scenarios import ReferenceTimes, Scenario, read_scenario

REFERENCE_FILE = "go_results.json"
"""Looked for beside the scenarios when no reference is named."""

_SUFFIXES = (".json", ".jsonl")
_MEMORY_NODES = 5000
_CALIBRATE_EVERY = 10
_FIGURE_TITLES = ("first", "repeated", "cold", "reference", "first/ref", "repeated/ref")
_RIGHT_ALIGNED = frozenset({*_FIGURE_TITLES, "steps", "story"})
_PERCENTILES = (50, 90, 99)
_MAX_ROWS = 40
"""Scenarios shown one by one without being asked; a folder of more is shown by family."""


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
    help=f"Times to compare with.  [default: each {REFERENCE_FILE} beside scenarios]",
)
@click.option("--family", metavar="A,B", help="Only these families of scenarios.")
@click.option("--nodes", type=NumbersType(), metavar="500,5000", help="Also time cycles over so many nodes.")
@click.option(
    "--shapes",
    type=NumbersType(),
    default="1,10,100",
    show_default=True,
    metavar="1,10",
    help="Kinds of nodes in those cycles.",
)
@click.option("--memory", is_flag=True, help=f"Also measure the memory of {_MEMORY_NODES:,} nodes.")
@click.option("-v", "--verbose", is_flag=True, help="Show every scenario, not only their families.")
@click.option("--json", "into", metavar="FILE", help="Write the figures into a file, too.")
@output_option
def command(path: str | None, **chosen: Any) -> int:
    """Time the allocator on scenarios, and compare with a reference.

    Scenarios are files with one each (.json), files with a vector on each line (.jsonl), or folders of both.
    One operation is one pod: from its claims to their allocations; over all nodes where the scenario has
    many. `first` is a claim nobody asked before, on prepared slices and with compiled expressions; `repeated`
    is the same claim again; `cold` includes preparing and compiling. Times are the best of several. The
    reference is scaled to this machine by a calibration loop. Exit code 0 when every answer is right, 1 when
    one is not or a search gave up.
    """
    options = _Options(**chosen)
    if path is None and not options.nodes and not options.memory:
        raise click.UsageError("nothing to measure; name a folder of scenarios, `--nodes` or `--memory`")
    calibration = Calibration()
    timings = _measure_scenarios(path, options, calibration) if path is not None else []
    sizes = [measure_cycles(nodes, shapes) for nodes in options.nodes or () for shapes in options.shapes]
    memory = measure_footprint(_MEMORY_NODES) if options.memory else None
    figures = to_json([_build_document(timings, sizes, memory)])
    if options.output == "json":
        click.echo(figures, nl=False)
    else:
        click.echo("\n".join(_render_lines(timings, calibration.seconds, sizes, memory, options.verbose)))
    if options.into is not None:
        manifest_files.save_file(options.into, figures)
    return (
        EXIT_YES
        if all(timing.outcome.expected and not timing.outcome.gave_up for timing in timings)
        else EXIT_NO
    )


@dataclass(frozen=True, slots=True)
class _Options:
    """What the command line chose."""

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
    trials = [ScenarioRun(scenario, generate_share_id) for scenario in scenarios]
    with show_progress([trial for _ in range(ROUNDS) for trial in trials], "measuring", min_items=2) as each:
        for number, trial in enumerate(each):
            if number % _CALIBRATE_EVERY == 0:
                calibration.run()
            trial.run()
    if compared:
        calibration.finish()
    return [trial.build_timing(reference, calibration.seconds) for trial in trials]


def _find_input_files(path: str) -> list[manifest_files.InputFile]:
    """The files a path means; a folder may also hold files with a vector on each line."""
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
    """The times in the named file, or in every file of that name beside the scenarios."""
    beside = {os.path.join(os.path.dirname(target.name), REFERENCE_FILE): None for target in targets}
    paths = [named] if named is not None else [path for path in beside if os.path.exists(path)]
    times: dict[str, tuple[float, float]] = {}
    for path in paths:
        times |= ReferenceTimes.parse(
            read_json(manifest_files.read_contents(manifest_files.InputFile(path, path)))
        ).times
    return ReferenceTimes(times)


# --- for people ---


def _render_lines(
    timings: Sequence[ScenarioTiming],
    calibrated: float,
    sizes: Sequence[CycleTimings],
    memory: MemoryFootprint | None,
    verbose: bool,
) -> Iterator[str]:
    if timings:
        yield from _render_timings(timings, calibrated, verbose)
    if sizes:
        yield from _render_sizes(sizes)
    if memory is not None:
        yield _render_memory(memory)


def _render_timings(timings: Sequence[ScenarioTiming], calibrated: float, verbose: bool) -> Iterator[str]:
    few = len(timings) <= _MAX_ROWS
    shown = [timing for timing in timings if verbose or few or _is_shown(timing)]
    if shown:
        titles = ("scenario", "answer", "steps", *_FIGURE_TITLES, "story")
        yield from render_table(
            titles, [_build_row(timing) for timing in shown], right_aligned=_RIGHT_ALIGNED
        )
        yield ""
    yield from _render_families(timings)
    yield from _render_percentiles(timings)
    yield from _render_summary(timings)
    yield f"calibration: {calibrated:.3f} s; the reference is scaled by it; a ratio below 1 is faster"


def _is_shown(timing: ScenarioTiming) -> bool:
    """Whether it has a line of its own among many: the small scenarios, and whatever is wrong."""
    return timing.scenario.kind in ("micro", "nodes") or not timing.outcome.expected


def _build_row(timing: ScenarioTiming) -> tuple[str, ...]:
    return (
        timing.scenario.name,
        timing.outcome.result + ("" if timing.outcome.expected else " (WRONG)"),
        f"{timing.outcome.steps:,}" if timing.outcome.steps else "",
        _format_micros(timing.first),
        _format_micros(timing.repeated),
        _format_micros(timing.cold),
        _format_micros(timing.reference) if timing.reference is not None else "",
        _format_ratio(timing.first_ratio),
        _format_ratio(timing.repeated_ratio),
        f"{timing.trace_share:.1%}" if timing.trace_time else "",
    )


def _render_families(timings: Sequence[ScenarioTiming]) -> Iterator[str]:
    """By family: how many, how slow at worst, and how that is beside the reference in the middle."""
    families: dict[str, list[ScenarioTiming]] = {}
    for timing in timings:
        families.setdefault(timing.scenario.family, []).append(timing)
    titles = (
        *("family", "scenarios", "right", "gave up", "slowest first", "slowest repeated"),
        *("ref answers", "slowest ref"),
        *(f"{what}/ref p{percent}" for what in ("first", "repeated") for percent in (50, 99)),
    )
    rows = []
    for family, members in families.items():
        references = [timing.reference for timing in members if timing.reference is not None]
        first, repeated = _collect_ratios(members)
        rows.append(
            (
                family,
                f"{len(members)}",
                f"{sum(timing.outcome.expected for timing in members)}",
                f"{sum(timing.outcome.gave_up for timing in members)}",
                _format_micros(max(timing.first for timing in members)),
                _format_micros(max(timing.repeated for timing in members)),
                f"{len(references)}",
                _format_micros(max(references)) if references else "",
                *(
                    _format_ratio(compute_percentile(each, p) if each else None)
                    for each in (first, repeated)
                    for p in (50, 99)
                ),
            )
        )
    yield from render_table(titles, rows, right_aligned=frozenset(titles[1:]))
    yield ""


def _collect_ratios(timings: Sequence[ScenarioTiming]) -> tuple[list[float], list[float]]:
    first = [timing.first_ratio for timing in timings if timing.first_ratio is not None]
    repeated = [timing.repeated_ratio for timing in timings if timing.repeated_ratio is not None]
    return first, repeated


def _render_percentiles(timings: Sequence[ScenarioTiming]) -> Iterator[str]:
    """Times and ratios over all scenarios that the reference answers."""
    compared = [timing for timing in timings if timing.reference is not None]
    if not compared:
        return
    titles = ("over all", *(f"p{percent}" for percent in _PERCENTILES), "worst", "below 1")
    rows: list[tuple[str, ...]] = []
    for name in ("first", "repeated", "cold", "reference"):
        times = [getattr(timing, name) for timing in compared]
        rows.append(
            (
                name,
                *(_format_micros(compute_percentile(times, p)) for p in _PERCENTILES),
                _format_micros(max(times)),
                "",
            )
        )
    for name, ratios in zip(("first/ref", "repeated/ref"), _collect_ratios(compared), strict=True):
        faster = f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)}"
        rows.append(
            (
                name,
                *(_format_ratio(compute_percentile(ratios, p)) for p in _PERCENTILES),
                _format_ratio(max(ratios)),
                faster,
            )
        )
    yield from render_table(titles, rows, right_aligned=frozenset(titles[1:]))
    yield ""


def _format_micros(micros: float) -> str:
    return f"{micros:,.1f} µs" if micros < 1e4 else f"{micros / 1e3:,.1f} ms"


def _format_ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _render_summary(timings: Sequence[ScenarioTiming]) -> Iterator[str]:
    wrong = [timing.scenario.name for timing in timings if not timing.outcome.expected]
    lost = sum(timing.outcome.gave_up for timing in timings)
    right = f"{len(timings) - len(wrong)} answered as expected, {lost} given up"
    named = f"; wrong: {', '.join(wrong)}" if wrong else ""
    yield f"{len(timings)} scenario{'' if len(timings) == 1 else 's'}: {right}{named}"
    told = [timing for timing in timings if timing.trace_time]
    if told:
        telling = sum(timing.trace_time for timing in told)
        rest = sum(timing.repeated for timing in told) - telling
        most = max(timing.trace_share for timing in told)
        yield f"telling the story adds {telling / rest:.1%} to searching in all, {most:.1%} at most"


def _render_sizes(sizes: Sequence[CycleTimings]) -> Iterator[str]:
    titles = (
        "nodes",
        "shapes",
        "searches",
        "prepare",
        "first cycle",
        "next cycle",
        "per node",
        "after a change",
    )
    rows = [
        (
            f"{size.nodes:,}",
            f"{size.shapes:,}",
            f"{size.searches:,}",
            _format_micros(size.prepare * 1e6),
            _format_micros(size.first * 1e6),
            _format_micros(size.repeated * 1e6),
            _format_micros(size.repeated * 1e6 / size.nodes),
            _format_micros(size.changed * 1e6),
        )
        for size in sizes
    ]
    yield ""
    yield from render_table(titles, rows, right_aligned=frozenset(titles))


def _render_memory(memory: MemoryFootprint) -> str:
    devices = f"{memory.nodes:,} nodes × {memory.devices} devices"
    return (
        f"\nmemory: {devices}: {memory.after:.0f} MiB at most, {memory.before:.0f} MiB before they were read"
    )


# --- for machines ---


def _build_document(
    timings: Sequence[ScenarioTiming], sizes: Sequence[CycleTimings], memory: MemoryFootprint | None
) -> dict[str, Any]:
    return {
        "scenarios": [
            {
                "name": timing.scenario.name,
                "family": timing.scenario.family,
                "answer": timing.outcome.result,
                "right": timing.outcome.expected,
                "gaveUp": timing.outcome.gave_up,
                "steps": timing.outcome.steps,
                "firstMicros": round(timing.first, 2),
                "repeatedMicros": round(timing.repeated, 2),
                "coldMicros": round(timing.cold, 2),
                "referenceMicros": timing.reference,
                "firstRatio": timing.first_ratio,
                "repeatedRatio": timing.repeated_ratio,
                "storyShare": timing.trace_share,
            }
            for timing in timings
        ],
        "percentiles": _build_percentiles(timings),
        "cycles": [{name: getattr(size, name) for name in size.__slots__} for size in sizes],
        "memory": None
        if memory is None
        else {"nodes": memory.nodes, "devices": memory.devices, "mebibytes": memory.after},
    }


def _build_percentiles(timings: Sequence[ScenarioTiming]) -> dict[str, dict[str, float]]:
    first, repeated = _collect_ratios(timings)
    named = {
        "firstMicros": [timing.first for timing in timings],
        "repeatedMicros": [timing.repeated for timing in timings],
        "coldMicros": [timing.cold for timing in timings],
        "referenceMicros": [timing.reference for timing in timings if timing.reference is not None],
        "firstRatio": first,
        "repeatedRatio": repeated,
    }
    return {
        name: {f"p{percent}": compute_percentile(values, percent) for percent in _PERCENTILES}
        for name, values in named.items()
        if values
    }
