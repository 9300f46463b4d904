"""`dray vectors`: ask the allocator questions whose answers are on record, and compare."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import click

from dray.allocator.admit import Admission
from dray.api.jsontext import read_json
from dray.cli import files
from dray.cli.clusters import say
from dray.cli.door import NO, YES
from dray.cli.options import output_option
from dray.cli.progress import progress
from dray.cli.report import clean
from dray.errors import DecodeError, InputError
from dray.manifests import Source, as_json, read
from dray.sim.vectors import VectorError, answer, read_vector
from dray.sim.verdicts import NONE_KNOWN, Known, Standing, Verdict

_SUFFIXES = (".json", ".jsonl")
_ALWAYS = (Standing.PASSED, Standing.FAILED)


@click.group("vectors")
def command() -> None:
    """Compare the allocator with recorded answers."""


@command.command("run")
@click.argument("paths", nargs=-1, required=True, metavar="FILE|FOLDER...")
@click.option("--known", metavar="FILE", help="A list of differences that are meant to be, with reasons.")
@click.option("-v", "--verbose", is_flag=True, help="Show both answers wherever they differ.")
@output_option
def run_vectors(paths: tuple[str, ...], known: str | None, verbose: bool, output: str) -> int:
    """Run vectors: files with one question each (.json) or one on each line (.jsonl), or folders of them.

    A vector passes when the devices, shares, amounts, configuration and node selector are those on record.
    Exit code 0 when none fails, 1 when one does, 2 when a file is no vector.
    """
    differences = _known(known) if known is not None else NONE_KNOWN
    judge = Admission.switched({}).judge()
    documents = list(_documents(paths))
    verdicts: list[Verdict] = []
    with progress(documents, "vectors") as each:
        for document in each:
            vector = read_vector(document)
            verdicts.append(differences.judged(vector, answer(vector, judge)))
    if output == "json":
        click.echo(as_json([_document(verdicts)]), nl=False)
    else:
        click.echo("\n".join(_lines(verdicts, verbose)))
    return YES if all(verdict.good for verdict in verdicts) else NO


def _known(path: str) -> Known:
    source = Source.decode(path, files.contents(files.Target(path, path)))
    return Known.read(next(iter(read(source))).value)


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
    data = files.contents(files.Target(path, path))
    lines = data.splitlines() if path.endswith(".jsonl") else [data]
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield read_json(line)
            except DecodeError as broken:
                raise VectorError(f"{path}:{number}: {broken}") from None


def _lines(verdicts: Sequence[Verdict], verbose: bool) -> Iterator[str]:
    for verdict in verdicts:
        if verdict.good and not (verbose and verdict.standing is not Standing.PASSED):
            continue
        yield clean(f"{verdict.standing.value}: {verdict.vector.name}")
        if verbose or not verdict.good:
            yield clean(f"  on record  {verdict.vector.recorded.words}")
            yield clean(f"  ours       {verdict.ours.words}")
        if verdict.because:
            yield clean(f"  because    {verdict.because}")
    counts = Counter(verdict.standing for verdict in verdicts)
    yield ", ".join(
        f"{counts[standing]} {standing.value}"
        for standing in _order()
        if counts[standing] or standing in _ALWAYS
    )


def _order() -> Iterator[Standing]:
    yield from _ALWAYS
    yield from (standing for standing in Standing if standing not in _ALWAYS)


def _document(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    counts = Counter(verdict.standing.name for verdict in verdicts)
    return {
        "summary": {standing.name.lower(): counts[standing.name] for standing in Standing},
        "vectors": [
            {
                "name": verdict.vector.name,
                "standing": verdict.standing.name.lower(),
                "recorded": verdict.vector.recorded.words,
                "ours": verdict.ours.words,
                "because": verdict.because,
            }
            for verdict in verdicts
        ],
    }
