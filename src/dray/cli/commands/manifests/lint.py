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

from dray.cli.commands.manifests import lint_report
from dray.cli.commands.manifests.live_manifests import (
    NO_LIVE_MANIFESTS,
    LiveManifests,
    read_live_manifests,
)
from dray.cli.exit_codes import EXIT_INVALID_INPUT, EXIT_NO, EXIT_YES
from dray.cli.input import manifest_files
from dray.cli.input.options import color_option, gates_option, output_option, should_use_color
from dray.cli.input.server_connection import ServerTarget, server_options
from dray.clock import SystemClock, format_timestamp
from dray.gates import GateSet
from dray.lint import (
    InspectionResult,
    LintFinding,
    ObjectFacts,
    Severity,
    crosscheck,
    inspect_document,
    resolve_deferred,
)
from dray.lint.rules import RULES
from dray.manifests import ManifestDocument, ManifestReadError, ManifestSource, read_documents, to_json

_UNREADABLE_RULES = ("unreadable", "syntax")
_PROGRESS_MIN_FILES = 100
"""From so many files on, a terminal gets a progress bar."""


@click.command("lint")
@click.argument("paths", nargs=-1, metavar="[FILES|FOLDERS|-]...")
@output_option
@gates_option
@click.option(
    "--complete",
    is_flag=True,
    help="The manifests are complete: report references to objects that they do not define.",
)
@click.option("--strict", is_flag=True, help="Fail on warnings, too.")
@click.option(
    "--severity",
    type=click.Choice([severity.value for severity in Severity]),
    default=Severity.NOTE.value,
    show_default=True,
    help="Show findings of this severity and above.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no summary.")
@click.option(
    "--live",
    is_flag=True,
    help="Check the objects of a running cluster; with FILES, check those against its devices and classes.",
)
@click.option("-n", "--namespace", metavar="NAME", help="With --live: only objects of this namespace.")
@server_options
@color_option
def command(paths: tuple[str, ...], kubeconfig: str, context: str, **chosen: Any) -> int:
    """Find errors in manifests.

    FILES are read, FOLDERS are searched for .yaml, .yml and .json, and - is standard input. Every finding has
    its location, what was expected, and often what to write instead. With `--live`, classes, slices, claims,
    templates and pods with claims are read from the server of a kubeconfig, which is not changed; selectors
    are tried on the devices that are really there. Exit code 0 when there are no errors, 1 when there are, 2
    when a file cannot be read.
    """
    server = ServerTarget(kubeconfig, context)
    options = _Options(**chosen)
    if not options.live and (server.is_explicit or options.namespace):
        raise click.UsageError("`--kubeconfig`, `--context` and `-n` are for `--live`")
    found = manifest_files.find_input_files(paths) if paths or not options.live else []
    live = read_live_manifests(server, options.namespace) if options.live else NO_LIVE_MANIFESTS
    tally = lint_files(found, options.gates, complete=options.complete, live=live)
    shown = [f for f in tally.findings if f.severity.rank <= Severity(options.severity).rank]
    if options.output == "json":
        click.echo(to_json([lint_report.build_lint_document(tally, shown)]), nl=False)
    else:
        _print_findings(shown, tally, options)
    return _compute_exit_code(tally, options.strict)


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of the command line."""

    output: str
    gates: GateSet
    complete: bool
    strict: bool
    severity: str
    quiet: bool
    live: bool
    namespace: str | None
    color: str


def _compute_exit_code(tally: lint_report.LintTally, strict: bool) -> int:
    if any(finding.rule in _UNREADABLE_RULES for finding in tally.findings):
        return EXIT_INVALID_INPUT
    failing = (Severity.ERROR, Severity.WARNING) if strict else (Severity.ERROR,)
    return EXIT_NO if any(finding.severity in failing for finding in tally.findings) else EXIT_YES


def _print_findings(shown: Iterable[LintFinding], tally: lint_report.LintTally, options: _Options) -> None:
    color = should_use_color(options.color, terminal=sys.stdout.isatty(), no_color="NO_COLOR" in os.environ)
    for finding in shown:
        if finding.rule != "not-checked":  # these are counted in the summary
            click.echo("\n".join(lint_report.render_finding(finding)) + "\n", color=color)
    if not options.quiet:
        click.echo(lint_report.render_summary(tally), color=color)


def lint_files(
    found: Sequence[manifest_files.InputFile],
    gates: GateSet,
    *,
    complete: bool,
    live: LiveManifests = NO_LIVE_MANIFESTS,
) -> lint_report.LintTally:
    """Inspect every file, then all objects together; one document is in memory at a time.

    Objects of a cluster are inspected like files. Beside files they are only what the files are checked
    against, and an object in a file takes the place of the same object in the cluster.
    """
    now = format_timestamp(SystemClock().now())
    texts = _ManifestTexts(found, live)
    inspected = _inspect_files(found, texts, gates, now)
    in_cluster = live.inspect(gates, now)
    facts = [*inspected.facts, *live.filter_facts(in_cluster.facts, inspected.facts)]
    has_files = bool(found)
    place, complete = live.describe_place(has_files), live.is_complete(complete, has_files)
    deferred = crosscheck(facts, complete=complete, place=place)
    if has_files:
        deferred = [one for one in deferred if one.location.source not in live.texts]
    own = inspected if has_files else in_cluster
    findings = [*own.findings, *resolve_deferred(deferred, texts.reopen)]
    ordered = lint_report.sort_findings(findings, [*(target.name for target in found), *live.texts])
    return lint_report.LintTally(len(found), own.objects, tuple(ordered), len(live.texts))


class _ManifestTexts:
    """Reads files and objects of a cluster by name; standard input, which cannot be read twice, is kept."""

    def __init__(self, found: Sequence[manifest_files.InputFile], live: LiveManifests) -> None:
        self._by_name = {target.name: target for target in found}
        self._live = live
        self._standard_input = b""

    def read(self, target: manifest_files.InputFile) -> bytes:
        data = manifest_files.read_contents(target)
        if target.path is None:
            self._standard_input = data
        return data

    def reopen(self, name: str) -> Iterator[ManifestDocument]:
        if name in self._live.texts:
            yield from read_documents(ManifestSource(name, self._live.texts[name]))
            return
        try:
            target = self._by_name[name]
            data = self._standard_input if target.path is None else manifest_files.read_contents(target)
            yield from read_documents(ManifestSource.decode(name, data))
        except (manifest_files.UnreadableFileError, ManifestReadError):
            return  # reported already


def _inspect_files(
    found: Sequence[manifest_files.InputFile], texts: _ManifestTexts, gates: GateSet, now: str
) -> InspectionResult:
    findings: list[LintFinding] = []
    facts: list[ObjectFacts] = []
    objects = 0
    with _track_progress(found) as progressing, _pause_garbage_collector():
        for target in progressing:
            try:
                for document in read_documents(ManifestSource.decode(target.name, texts.read(target))):
                    inspected = inspect_document(document, gates, now=now)
                    findings += inspected.findings
                    facts += inspected.facts
                    objects += inspected.objects
            except (manifest_files.UnreadableFileError, ManifestReadError) as broken:
                findings.append(_build_unread_finding(target, broken))
    return InspectionResult(tuple(findings), tuple(facts), objects)


def _build_unread_finding(
    target: manifest_files.InputFile, error: manifest_files.UnreadableFileError | ManifestReadError
) -> LintFinding:
    if isinstance(error, ManifestReadError):
        rule, (line, column), message, excerpt = "syntax", error.position, error.problem, error.line
    else:
        rule, (line, column), message, excerpt = "unreadable", (1, 1), str(error), ""
    return LintFinding(
        rule=rule,
        path="",
        message=message,
        severity=RULES[rule].severity,
        source=target.name,
        line=line,
        column=column,
        excerpt=excerpt,
    )


@contextmanager
def _pause_garbage_collector() -> Iterator[None]:
    """Pause garbage collection: documents have no cycles, and a scan of a million nodes takes longer than
    linting.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _track_progress(
    found: Sequence[manifest_files.InputFile],
) -> Iterator[Iterable[manifest_files.InputFile]]:
    if len(found) < _PROGRESS_MIN_FILES or not sys.stderr.isatty():
        yield found
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        yield progress.track(found, description="linting")
