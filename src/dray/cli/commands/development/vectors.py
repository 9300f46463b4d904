"""`dray vectors`: ask the allocator questions whose answers are on record, and compare."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from dray.allocator.feature_gates import Admission
from dray.allocator.search.resumable import TimeLimit
from dray.api.json_text import read_json
from dray.cli.app import NO, YES
from dray.cli.input import manifest_files
from dray.cli.input.cluster_files import say
from dray.cli.input.options import output_option
from dray.cli.output.progress import progress
from dray.cli.output.text import clean
from dray.errors import DecodeError, InputError
from dray.manifests import Source, as_json, read
from dray.simulation.vectors.answers import Answer, list_differences
from dray.simulation.vectors.comparison import NONE_KNOWN, Known, Standing, Verdict, judge_answer
from dray.simulation.vectors.vector import VectorError, answer, read_vector

_SUFFIXES = (".json", ".jsonl")
_SEARCH_SECONDS = 10.0
"""As long as a scheduler of Kubernetes may take for a node."""

_RULES = ""
"""What `--known` is without a file: the rules alone, which always count."""


@click.group("vectors")
def command() -> None:
    """Compare the allocator with recorded answers."""


@command.command("run")
@click.argument("paths", nargs=-1, metavar="FILE|FOLDER...")
@click.option(
    "--known",
    metavar="[FILE]",
    is_flag=False,
    flag_value=_RULES,
    help="A list of further differences that are meant to be, with reasons. Decisions count without one.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show both answers wherever they differ, and where.")
@output_option
def run_vectors(paths: tuple[str, ...], known: str | None, verbose: bool, output: str) -> int:
    """Run vectors: files with one question each (.json) or one on each line (.jsonl), or folders of them.

    Answers are equal when the devices, shares, amounts, configuration and node selector are those on record.
    A difference is decided when a plain model of Kubernetes gives the answer on record and, with our
    decisions, also ours. It is not built when the vector needs a feature that dray does not have. Everything
    else is wrong, and so is an answer that breaks a rule. Exit code 0 when none is wrong, 1 when one is, 2
    when a file is no vector.
    """
    paths, listed = _paths(paths, known)
    if not paths:
        raise click.UsageError("missing argument: name files or folders of vectors")
    judge = Admission.switched({}).judge()
    limit = TimeLimit(time.perf_counter, _SEARCH_SECONDS)
    documents = list(_documents(paths))
    verdicts: list[Verdict] = []
    with progress(documents, "vectors") as each:
        for document in each:
            vector = read_vector(document)
            ours = answer(vector, judge, limit)
            verdicts.append(listed.apply(judge_answer(vector, ours, judge)))
    if output == "json":
        click.echo(as_json([_document(verdicts)]), nl=False)
    else:
        click.echo("\n".join(_lines(verdicts, verbose)))
    return YES if all(verdict.good for verdict in verdicts) else NO


def _paths(paths: tuple[str, ...], known: str | None) -> tuple[tuple[str, ...], Known]:
    """The vectors and the list; `--known` takes the word behind it, which may be a vector and no list."""
    if not known:
        return paths, NONE_KNOWN
    if os.path.isdir(known) or known.endswith(".jsonl"):
        return (*paths, known), NONE_KNOWN
    source = Source.decode(known, manifest_files.contents(manifest_files.Target(known, known)))
    document = next((item.value for item in read(source)), None)
    if isinstance(document, Mapping) and "claimsToAllocate" in document:
        return (*paths, known), NONE_KNOWN
    return paths, Known.read(document)


def _documents(paths: Sequence[str]) -> Iterator[Any]:
    """The vectors in files; in a folder, documents that are something else are passed over."""
    skipped: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            yield from _read(path)
            continue
        names = sorted(name for name in os.listdir(path) if name.endswith(_SUFFIXES))
        if not names:
            raise InputError(f"no vectors in folder `{path}`; looked for {', '.join(_SUFFIXES)}")
        for name in names:
            for document in _read(os.path.join(path, name)):
                if isinstance(document, dict) and "claimsToAllocate" in document:
                    yield document
                else:
                    skipped.append(name)
    if skipped:
        say(f"not a vector, passed over: {', '.join(dict.fromkeys(skipped))}")


def _read(path: str) -> Iterator[Any]:
    data = manifest_files.contents(manifest_files.Target(path, path))
    lines = data.splitlines() if path.endswith(".jsonl") else [data]
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield read_json(line)
            except DecodeError as broken:
                raise VectorError(f"{path}:{number}: {broken}") from None


# --- for people ---


def _lines(verdicts: Sequence[Verdict], verbose: bool) -> Iterator[str]:
    for verdict in verdicts:
        if verdict.standing is Standing.EQUAL or (verdict.good and not verbose):
            continue
        by = f" by {', '.join(verdict.departures)}" if verdict.departures else ""
        yield clean(f"{verdict.standing.value}: {verdict.vector.name}{by}")
        yield from _shown("on record", verdict.vector.recorded)
        yield from _shown("ours", verdict.ours)
        parts = list(list_differences(verdict.ours, verdict.vector.recorded))
        yield from (clean(f"  {'differs' if i == 0 else '':10} {part}") for i, part in enumerate(parts))
        if verdict.because:
            yield clean(f"  {'because':10} {verdict.because}")
    yield from _counts(verdicts)


def _shown(whose: str, answer: Answer) -> Iterator[str]:
    for number, line in enumerate(answer.render_lines()):
        yield clean(f"  {whose if number == 0 else '':10} {line}")


def _counts(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The numbers in a line, and how many differences each departure takes part in."""
    counts = Counter(verdict.standing for verdict in verdicts)
    yield " · ".join(f"{counts[standing]} {standing.value}" for standing in Standing)
    for departure, times in sorted(_departures(verdicts).items()):
        yield clean(f"  {times:5} {departure}")


def _departures(verdicts: Sequence[Verdict]) -> Counter[str]:
    return Counter(departure for verdict in verdicts for departure in verdict.departures)


# --- for machines ---


def _document(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    counts = Counter(verdict.standing for verdict in verdicts)
    return {
        "summary": {standing.value: counts[standing] for standing in Standing},
        "departures": dict(sorted(_departures(verdicts).items())),
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
