"""`dray bench`: time the allocator on scenarios, beside a reference, and on clusters of any size."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from dray.allocator.admit import Admission
from dray.api.jsontext import read_json
from dray.cli import files
from dray.cli.clusters import say
from dray.cli.door import NO, YES
from dray.cli.progress import progress
from dray.cli.tables import table
from dray.errors import InputError
from dray.manifests import as_json
from dray.sim.bench import ROUNDS, Calibration, Timing, Trial
from dray.sim.identity import new_share_id
from dray.sim.scale import Cycles, Footprint, cycles, footprint
from dray.sim.scenarios import Reference, Scenario, read_scenario

REFERENCE = "go_results.json"
"""Looked for beside the scenarios when no reference is named."""

_MEMORY_NODES = 5000
_CALIBRATE_EVERY = 10
_RIGHT = frozenset({"time", "reference", "ratio", "steps", "story"})


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
@click.argument("folder", required=False, metavar="[FOLDER]")
@click.option("--reference", metavar="FILE", help=f"Times to compare with.  [default: FOLDER/{REFERENCE}]")
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
@click.option("-v", "--verbose", is_flag=True, help="Show every hard scenario, not only their families.")
@click.option("--json", "into", metavar="FILE", help="Write the figures into a file, too.")
def command(folder: str | None, **chosen: Any) -> int:
    """Time the allocator on the scenarios in a folder, and compare with a reference.

    One operation is one pod: from its claims to their allocations, on a prepared stock; over all nodes where
    the scenario has many. Times are the best of many short passes. The reference is scaled to this machine by
    a calibration loop. Exit code 0 when every answer is right, 1 when one is not or a search gave up.
    """
    options = _Options(**chosen)
    if folder is None and not options.nodes and not options.memory:
        raise click.UsageError("nothing to measure; name a folder of scenarios, `--nodes` or `--memory`")
    timings: list[Timing] = []
    calibration = Calibration()
    if folder is not None:
        timings = _timings(folder, options, calibration)
        click.echo("\n".join(_page(timings, calibration.seconds, options.verbose)))
    sizes = [cycles(nodes, shapes) for nodes in options.nodes or () for shapes in options.shapes]
    if sizes:
        click.echo("\n".join(_sizes(sizes)))
    memory = footprint(_MEMORY_NODES) if options.memory else None
    if memory is not None:
        click.echo(_memory(memory))
    if options.into is not None:
        files.save_file(options.into, as_json([_document(timings, sizes, memory)]))
    return YES if all(timing.right and not timing.gave_up for timing in timings) else NO


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


def _timings(folder: str, options: _Options, calibration: Calibration) -> list[Timing]:
    reference = _reference(folder, options.reference)
    if reference is None:
        say(f"no reference: `{os.path.join(folder, REFERENCE)}` is not there and `--reference` names none")
    judge = Admission.switched({}).judge()
    trials = [Trial(scenario, judge, new_share_id) for scenario in _scenarios(folder, options.family)]
    with progress([trial for _ in range(ROUNDS) for trial in trials], "measuring", few=2) as each:
        for number, trial in enumerate(each):
            if number % _CALIBRATE_EVERY == 0:
                calibration.run()
            trial.run()
    return [trial.timing(reference, calibration.seconds) for trial in trials]


def _scenarios(folder: str, family: str | None) -> Iterator[Scenario]:
    wanted = {name.strip() for name in family.split(",")} if family else None
    none = True
    for target in files.targets([folder]):
        if not target.name.endswith(".json"):
            continue
        scenario = read_scenario(read_json(files.contents(target)))
        if scenario is not None and (wanted is None or scenario.family in wanted):
            none = False
            yield scenario
    if none:
        raise InputError(f"no scenario{f' of family {family}' if family else ''} in `{folder}`")


def _reference(folder: str, named: str | None) -> Reference | None:
    path = named or os.path.join(folder, REFERENCE)
    if named is None and not os.path.exists(path):
        return None
    return Reference.read(read_json(files.contents(files.Target(path, path))))


# --- for people ---


def _page(timings: Sequence[Timing], calibrated: float, verbose: bool) -> Iterator[str]:
    shown = [timing for timing in timings if verbose or timing.scenario.kind != "hard" or not timing.right]
    if shown:
        titles = ("scenario", "answer", "steps", "time", "reference", "ratio", "story")
        yield from table(titles, [_row(timing) for timing in shown], right=_RIGHT)
        yield ""
    yield from _hard(timings)
    yield from _summary(timings)
    yield f"calibration: {calibrated:.3f} s; the reference is scaled by it; a ratio below 1 is faster"


def _row(timing: Timing) -> tuple[str, ...]:
    return (
        timing.scenario.name,
        _answer(timing),
        f"{timing.ending.steps:,}",
        _micros(timing.micros),
        _micros(timing.reference) if timing.reference is not None else "",
        f"{timing.ratio:.2f}" if timing.ratio is not None else "",
        f"{timing.story_share:.1%}" if timing.telling else "",
    )


def _hard(timings: Sequence[Timing]) -> Iterator[str]:
    """The hard scenarios by family: how many, how slow at worst, how much slower the reference was."""
    families: dict[str, list[Timing]] = {}
    for timing in timings:
        if timing.scenario.kind == "hard":
            families.setdefault(timing.scenario.family, []).append(timing)
    rows = []
    for family, members in families.items():
        references = [timing.reference for timing in members if timing.reference is not None]
        rows.append(
            (
                family,
                f"{len(members)}",
                f"{sum(timing.right for timing in members)}",
                f"{sum(timing.gave_up for timing in members)}",
                _micros(max(timing.micros for timing in members)),
                f"{len(references)}",
                _micros(max(references)) if references else "",
            )
        )
    titles = ("hard", "scenarios", "right", "given up", "slowest", "reference answers", "its slowest")
    if rows:
        yield from table(titles, rows, right=frozenset(titles[1:]))
        yield ""


def _answer(timing: Timing) -> str:
    if timing.gave_up:
        return "gave up"
    found = "found" if timing.scenario.found is timing.right else "none"
    return found if timing.right else f"{found} (WRONG)"


def _micros(micros: float) -> str:
    return f"{micros:,.1f} µs" if micros < 1e4 else f"{micros / 1e3:,.1f} ms"


def _scenarios_in_words(count: int) -> str:
    return f"{count} scenario{'' if count == 1 else 's'}"


def _summary(timings: Sequence[Timing]) -> Iterator[str]:
    wrong = [timing.scenario.name for timing in timings if not timing.right]
    lost = [timing.scenario.name for timing in timings if timing.gave_up]
    right = f"{len(timings) - len(wrong)} answered as expected, {len(lost)} given up"
    named = f"; wrong: {', '.join(wrong)}" if wrong else ""
    yield f"{_scenarios_in_words(len(timings))}: {right}{named}"
    for kind, about in (("micro", "one node"), ("nodes", "many nodes"), ("hard", "hard")):
        ratios = [t.ratio for t in timings if t.scenario.kind == kind and t.ratio is not None]
        times = [t.micros for t in timings if t.scenario.kind == kind]
        if times:
            compared = f", worst ratio {max(ratios):.2f}" if ratios else ""
            yield f"{about}: {_scenarios_in_words(len(times))}, slowest {_micros(max(times))}{compared}"
    told = [timing for timing in timings if timing.telling]
    if told:
        telling = sum(timing.telling for timing in told)
        rest = sum(timing.micros for timing in told) - telling
        most = max(timing.story_share for timing in told)
        yield f"telling the story adds {telling / rest:.1%} to searching in all, {most:.1%} at most"


def _sizes(sizes: Sequence[Cycles]) -> Iterator[str]:
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
            _micros(size.prepare * 1e6),
            _micros(size.first * 1e6),
            _micros(size.again * 1e6),
            _micros(size.again * 1e6 / size.nodes),
            _micros(size.changed * 1e6),
        )
        for size in sizes
    ]
    yield ""
    yield from table(titles, rows, right=frozenset(titles))


def _memory(memory: Footprint) -> str:
    devices = f"{memory.nodes:,} nodes × {memory.devices} devices"
    return (
        f"\nmemory: {devices}: {memory.after:.0f} MiB at most, {memory.before:.0f} MiB before they were read"
    )


# --- for machines ---


def _document(timings: Sequence[Timing], sizes: Sequence[Cycles], memory: Footprint | None) -> dict[str, Any]:
    return {
        "scenarios": [
            {
                "name": timing.scenario.name,
                "family": timing.scenario.family,
                "right": timing.right,
                "gaveUp": timing.gave_up,
                "steps": timing.ending.steps,
                "micros": round(timing.micros, 2),
                "referenceMicros": timing.reference,
                "ratio": timing.ratio,
                "storyShare": timing.story_share,
            }
            for timing in timings
        ],
        "cycles": [{name: getattr(size, name) for name in size.__slots__} for size in sizes],
        "memory": None
        if memory is None
        else {"nodes": memory.nodes, "devices": memory.devices, "mebibytes": memory.after},
    }
