"""The report of `dray bench`: tables for people and a document for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dray.cli.output.tables import render_table
from dray.simulation.benchmarks.allocator_timing import ScenarioTiming, compute_percentile
from dray.simulation.benchmarks.cluster_scale import CycleTimings, MemoryFootprint

_FIGURE_TITLES = ("first", "repeated", "cold", "reference", "first/ref", "repeated/ref")
_RIGHT_ALIGNED = frozenset({*_FIGURE_TITLES, "steps", "trace"})
_PERCENTILES = (50, 90, 99)
_MAX_ROWS = 40
"""Scenarios listed one by one by default; more are listed by family."""


# --- text ---


def render_lines(
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
        titles = ("scenario", "answer", "steps", *_FIGURE_TITLES, "trace")
        yield from render_table(
            titles, [_build_row(timing) for timing in shown], right_aligned=_RIGHT_ALIGNED
        )
        yield ""
    yield from _render_families(timings)
    yield from _render_percentiles(timings)
    yield from _render_summary(timings)
    yield f"calibration: {calibrated:.3f} s; the reference is scaled by it; a ratio below 1 is faster"


def _is_shown(timing: ScenarioTiming) -> bool:
    """Whether it has a row of its own among many: the small scenarios, and unexpected results."""
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
    """Render by family: how many, the slowest, and the ratio to the reference."""
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
    given_up = sum(timing.outcome.gave_up for timing in timings)
    right = f"{len(timings) - len(wrong)} answered as expected, {given_up} given up"
    named = f"; wrong: {', '.join(wrong)}" if wrong else ""
    yield f"{len(timings)} scenario{'' if len(timings) == 1 else 's'}: {right}{named}"
    traced = [timing for timing in timings if timing.trace_time]
    if traced:
        tracing = sum(timing.trace_time for timing in traced)
        rest = sum(timing.repeated for timing in traced) - tracing
        most = max(timing.trace_share for timing in traced)
        yield f"the trace adds {tracing / rest:.1%} to searching in all, {most:.1%} at most"


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


# --- documents ---


def build_document(
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
                "traceShare": timing.trace_share,
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
