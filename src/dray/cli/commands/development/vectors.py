"""`dray vectors`: runs the allocator on recorded inputs, and compares the results."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.search.resumable import TimeLimit
from dray.api.json_text import read_json
from dray.cli.exit_codes import EXIT_NO, EXIT_YES
from dray.cli.input import manifest_files
from dray.cli.input.options import output_option
from dray.cli.output.progress import show_progress
from dray.cli.output.text import print_message, sanitize_text
from dray.errors import DecodeError, InputError
from dray.manifests import ManifestSource, read_documents, to_json
from dray.simulation.vectors.answers import AllocatorAnswer, list_differences
from dray.simulation.vectors.comparison import (
    NO_KNOWN_DIFFERENCES,
    KnownDifferences,
    VectorComparison,
    VectorStanding,
    compare_answer,
)
from dray.simulation.vectors.vector import VectorError, answer_vector, read_vector

_SUFFIXES = (".json", ".jsonl")
_SEARCH_SECONDS = 10.0
"""As long as a scheduler of Kubernetes may take for a node."""

_NO_FILE = ""
"""The value of `--known` without a file: the built-in decisions alone, which always count."""


@click.group("vectors")
def command() -> None:
    """Compare the allocator with recorded results."""


@command.command("run")
@click.argument("paths", nargs=-1, metavar="FILE|FOLDER...")
@click.option(
    "--known",
    metavar="[FILE]",
    is_flag=False,
    flag_value=_NO_FILE,
    help="A list of further intended differences, with reasons. Built-in decisions count without one.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show both results wherever they differ, and where.")
@output_option
def run_vectors(paths: tuple[str, ...], known: str | None, verbose: bool, output: str) -> int:
    """Run vectors: files with one input each (.json) or one on each line (.jsonl), or folders of them.

    Results are equal when the devices, shares, amounts, configuration and node selector are those on record.
    A difference is decided when a plain model of Kubernetes gives the result on record and, with our
    decisions, also ours. It is not built when the vector needs a feature that dray does not have. Everything
    else is wrong, and so is a result that breaks a rule. Exit code 0 when none is wrong, 1 when one is, 2
    when a file is no vector.
    """
    paths, listed = _resolve_paths(paths, known)
    if not paths:
        raise click.UsageError("missing argument: name files or folders of vectors")
    evaluator = AllocatorGateFilter.from_overrides({}).build_selector_evaluator()
    limit = TimeLimit(time.perf_counter, _SEARCH_SECONDS)
    documents = list(_read_vectors(paths))
    verdicts: list[VectorComparison] = []
    with show_progress(documents, "vectors") as each:
        for document in each:
            vector = read_vector(document)
            ours = answer_vector(vector, evaluator, limit)
            verdicts.append(listed.apply(compare_answer(vector, ours, evaluator)))
    if output == "json":
        click.echo(to_json([_build_document(verdicts)]), nl=False)
    else:
        click.echo("\n".join(_render_lines(verdicts, verbose)))
    return EXIT_YES if all(verdict.is_good for verdict in verdicts) else EXIT_NO


def _resolve_paths(paths: tuple[str, ...], known: str | None) -> tuple[tuple[str, ...], KnownDifferences]:
    """Return the vectors and the list; `--known` takes the next word, which may be a vector and no list."""
    if not known:
        return paths, NO_KNOWN_DIFFERENCES
    if os.path.isdir(known) or known.endswith(".jsonl"):
        return (*paths, known), NO_KNOWN_DIFFERENCES
    source = ManifestSource.decode(
        known, manifest_files.read_contents(manifest_files.InputFile(known, known))
    )
    document = next((item.value for item in read_documents(source)), None)
    if isinstance(document, Mapping) and "claimsToAllocate" in document:
        return (*paths, known), NO_KNOWN_DIFFERENCES
    return paths, KnownDifferences.parse(document)


def _read_vectors(paths: Sequence[str]) -> Iterator[Any]:
    """Read the vectors in files; in a folder, other documents are skipped."""
    skipped: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            yield from _read_documents(path)
            continue
        names = sorted(name for name in os.listdir(path) if name.endswith(_SUFFIXES))
        if not names:
            raise InputError(f"no vectors in folder `{path}`; looked for {', '.join(_SUFFIXES)}")
        for name in names:
            for document in _read_documents(os.path.join(path, name)):
                if isinstance(document, dict) and "claimsToAllocate" in document:
                    yield document
                else:
                    skipped.append(name)
    if skipped:
        print_message(f"not a vector, passed over: {', '.join(dict.fromkeys(skipped))}")


def _read_documents(path: str) -> Iterator[Any]:
    data = manifest_files.read_contents(manifest_files.InputFile(path, path))
    lines = data.splitlines() if path.endswith(".jsonl") else [data]
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield read_json(line)
            except DecodeError as broken:
                raise VectorError(f"{path}:{number}: {broken}") from None


# --- text ---


def _render_lines(verdicts: Sequence[VectorComparison], verbose: bool) -> Iterator[str]:
    for verdict in verdicts:
        if verdict.standing is VectorStanding.EQUAL or (verdict.is_good and not verbose):
            continue
        by = f" by {', '.join(verdict.departures)}" if verdict.departures else ""
        yield sanitize_text(f"{verdict.standing.value}: {verdict.vector.name}{by}")
        yield from _render_answer("on record", verdict.vector.recorded)
        yield from _render_answer("ours", verdict.ours)
        parts = list(list_differences(verdict.ours, verdict.vector.recorded))
        yield from (
            sanitize_text(f"  {'differs' if i == 0 else '':10} {part}") for i, part in enumerate(parts)
        )
        if verdict.because:
            yield sanitize_text(f"  {'because':10} {verdict.because}")
    yield from _render_counts(verdicts)


def _render_answer(label: str, answer: AllocatorAnswer) -> Iterator[str]:
    for number, line in enumerate(answer.render_lines()):
        yield sanitize_text(f"  {label if number == 0 else '':10} {line}")


def _render_counts(verdicts: Sequence[VectorComparison]) -> Iterator[str]:
    """Render the counts in a line, and the number of differences per departure."""
    counts = Counter(verdict.standing for verdict in verdicts)
    yield " · ".join(f"{counts[standing]} {standing.value}" for standing in VectorStanding)
    for departure, times in sorted(_count_departures(verdicts).items()):
        yield sanitize_text(f"  {times:5} {departure}")


def _count_departures(verdicts: Sequence[VectorComparison]) -> Counter[str]:
    return Counter(departure for verdict in verdicts for departure in verdict.departures)


# --- documents ---


def _build_document(verdicts: Sequence[VectorComparison]) -> dict[str, Any]:
    counts = Counter(verdict.standing for verdict in verdicts)
    return {
        "summary": {standing.value: counts[standing] for standing in VectorStanding},
        "departures": dict(sorted(_count_departures(verdicts).items())),
        "vectors": [
            {
                "name": verdict.vector.name,
                "standing": verdict.standing.value,
                "departures": list(verdict.departures),
                "recorded": list(verdict.vector.recorded.render_lines()),
                "ours": list(verdict.ours.render_lines()),
                "differs": list(list_differences(verdict.ours, verdict.vector.recorded)),
                "because": verdict.because,
            }
            for verdict in verdicts
        ],
    }
