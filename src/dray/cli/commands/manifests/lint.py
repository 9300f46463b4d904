"""`dray lint`: find what is wrong in manifests."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from dray.cli.app import BROKEN, NO, YES
from dray.cli.input import manifest_files
from dray.cli.input.options import color_option, gates_option, output_option, wants_color
from dray.cli.output import text
from dray.clock import SystemClock, timestamp
from dray.gates import GateSet
from dray.lint import Facts, Finding, Severity, crosscheck, inspect, settled
from dray.lint.rules import RULES
from dray.manifests import Document, ReadError, Source, as_json, read

_UNREAD = ("unreadable", "syntax")
_MANY = 100
"""From so many files on, a terminal gets a progress bar."""


@click.command("lint")
@click.argument("paths", nargs=-1, metavar="[FILES|FOLDERS|-]...")
@output_option
@gates_option
@click.option(
    "--complete", is_flag=True, help="The manifests are all there is: what they do not define is missing."
)
@click.option("--strict", is_flag=True, help="Warnings fail the run, too.")
@click.option(
    "--severity",
    type=click.Choice([severity.value for severity in Severity]),
    default=Severity.NOTE.value,
    show_default=True,
    help="Show findings of this weight and above.",
)
@click.option("-q", "--quiet", is_flag=True, help="No summary.")
@color_option
def command(paths: tuple[str, ...], **chosen: Any) -> int:
    """Find what is wrong in manifests.

    FILES are read, FOLDERS are searched for .yaml, .yml and .json, and - is standard input. Every finding
    says where it is, what was expected, and often what to write instead. Exit code 0 when nothing is wrong,
    1 when there are errors, 2 when a file cannot be read.
    """
    options = _Options(**chosen)
    tally = check(manifest_files.targets(paths), options.gates, complete=options.complete)
    shown = [f for f in tally.findings if f.severity.rank <= Severity(options.severity).rank]
    if options.output == "json":
        click.echo(as_json([text.as_document(tally, shown)]), nl=False)
    else:
        _print(shown, tally, options)
    return _exit_code(tally, options.strict)


@dataclass(frozen=True, slots=True)
class _Options:
    """What the command line chose."""

    output: str
    gates: GateSet
    complete: bool
    strict: bool
    severity: str
    quiet: bool
    color: str


def _exit_code(tally: text.Tally, strict: bool) -> int:
    if any(finding.rule in _UNREAD for finding in tally.findings):
        return BROKEN
    grave = (Severity.ERROR, Severity.WARNING) if strict else (Severity.ERROR,)
    return NO if any(finding.severity in grave for finding in tally.findings) else YES


def _print(shown: Iterable[Finding], tally: text.Tally, options: _Options) -> None:
    color = wants_color(options.color, terminal=sys.stdout.isatty(), no_color="NO_COLOR" in os.environ)
    for finding in shown:
        if finding.rule != "not-checked":  # these are counted in the summary
            click.echo("\n".join(text.lines(finding)) + "\n", color=color)
    if not options.quiet:
        click.echo(text.summary(tally), color=color)


def check(found: Sequence[manifest_files.Target], gates: GateSet, *, complete: bool) -> text.Tally:
    """Look into every file, then at all objects together; one document is in memory at a time."""
    now = timestamp(SystemClock().now())
    findings: list[Finding] = []
    facts: list[Facts] = []
    objects = 0
    by_name = {target.name: target for target in found}
    kept: dict[str, bytes] = {}  # standard input cannot be read twice
    with _progress(found) as progressing, _without_collector():
        for target in progressing:
            try:
                data = manifest_files.contents(target)
                if target.path is None:
                    kept[target.name] = data
                for document in read(Source.decode(target.name, data)):
                    inspected = inspect(document, gates, now=now)
                    findings += inspected.findings
                    facts += inspected.facts
                    objects += inspected.objects
            except (manifest_files.UnreadableError, ReadError) as broken:
                findings.append(_unread(target, broken))

    def reopen(name: str) -> Iterator[Document]:
        try:
            data = kept[name] if name in kept else manifest_files.contents(by_name[name])
            yield from read(Source.decode(name, data))
        except (manifest_files.UnreadableError, ReadError):
            return  # said already; what could be read of it has been

    findings += settled(crosscheck(facts, complete=complete), reopen)
    ordered = text.in_order(findings, [target.name for target in found])
    return text.Tally(len(found), objects, tuple(ordered))


def _unread(target: manifest_files.Target, broken: manifest_files.UnreadableError | ReadError) -> Finding:
    if isinstance(broken, ReadError):
        rule, (line, column), message, excerpt = "syntax", broken.position, broken.problem, broken.line
    else:
        rule, (line, column), message, excerpt = "unreadable", (1, 1), str(broken), ""
    severity = RULES[rule].severity
    return Finding(rule, severity, target.name, line, column, "", "", message, excerpt=excerpt)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Documents hold no circles; looking for some in a million nodes takes longer than linting them."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _progress(found: Sequence[manifest_files.Target]) -> Iterator[Iterable[manifest_files.Target]]:
    if len(found) < _MANY or not sys.stderr.isatty():
        yield found
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        yield progress.track(found, description="linting")
