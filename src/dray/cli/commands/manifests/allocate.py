"""`dray allocate`: give devices to everything that waits for them, in manifests."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from dray.allocator.search.resumable import TimeLimit
from dray.api.codec import to_document
from dray.api.resource import DeviceRequestAllocationResult, ResourceClaim
from dray.cli.app import BROKEN, NO, YES
from dray.cli.input import manifest_files
from dray.cli.input.cluster_files import (
    Cluster,
    abort_document,
    check_node,
    cluster_of,
    files_option,
    judgement,
    names_of,
    nothing_valid,
    resolved,
    say,
)
from dray.cli.input.options import gates_option, search_timeout_option, strict_option
from dray.cli.output.tables import table
from dray.cli.output.text import clean
from dray.explain import Effort, diagnose, summary
from dray.gates import GateSet
from dray.manifests import as_json, as_yaml
from dray.simulation.file_placement import Limits, NotPlaced, Outcome, Placed, place
from dray.simulation.share_ids import new_share_id

_STDOUT = "-"
_MOST_NOTES = 20
"""Notes about Kubernetes that people are told."""
_UNSAFE = re.compile(r"[^A-Za-z0-9.-]")


@click.command("allocate")
@files_option
@click.argument("more", nargs=-1, metavar="[FILES]...")
@click.option("--node", metavar="NAME", help="Only this node comes into question.")
@click.option("--pod", "pods", multiple=True, metavar="[NS/]NAME", help="Only this pod is placed.")
@click.option("--claim", "claims", multiple=True, metavar="[NS/]NAME", help="Only this claim is allocated.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="A table for people, json or yaml for machines.",
)
@click.option(
    "--write",
    is_flag=False,
    flag_value=_STDOUT,
    metavar="[FOLDER]",
    help="The claims with their `status`, as manifests: to standard output instead of the table, or one file "
    "per claim into FOLDER. The files that were read stay as they are.",
)
@search_timeout_option
@gates_option
@strict_option
def command(paths: tuple[str, ...], more: tuple[str, ...], **chosen: Any) -> int:
    """Give devices to every pod and claim that waits for them.

    Pods are placed by priority, else in the order of the manifests, each on its best node: where requests
    get their better alternatives, else the first by name. Claims that no waiting pod uses come last. Only
    devices decide: node taints, CPU and affinity are not looked at. Objects are judged as an API server
    would: what is invalid is named and left out. Exit code 0 when everything found its place, 1 when
    something did not, 2 when the input is broken, or when a pod or claim that is named is invalid.
    """
    options = _Options(**chosen)
    cluster = cluster_of((*paths, *more), options.gates, strict=options.strict)
    outcomes = list(
        place(
            cluster.bundle,
            cluster.stock,
            cluster.door,
            new_share_id=new_share_id,
            limits=_limits(cluster, options),
        )
    )
    _report(cluster, outcomes, options)
    if not any(isinstance(outcome, NotPlaced) for outcome in outcomes):
        return YES
    if options.output == "table" and options.write != _STDOUT:
        _hint(outcomes, (*paths, *more), options)
    return BROKEN if nothing_valid(outcomes) else NO


@dataclass(frozen=True, slots=True)
class _Options:
    """What the command line chose."""

    node: str | None
    pods: tuple[str, ...]
    claims: tuple[str, ...]
    output: str
    write: str | None
    gates: GateSet
    strict: bool
    search_timeout: float

    @property
    def limit(self) -> TimeLimit:
        """How long searches may take."""
        return TimeLimit(time.monotonic, self.search_timeout)


def _limits(cluster: Cluster, options: _Options) -> Limits:
    bundle = cluster.bundle
    check_node(bundle, options.node)
    return Limits(
        options.node,
        frozenset(resolved(bundle, "pod", name) for name in options.pods),
        frozenset(resolved(bundle, "claim", name) for name in options.claims),
        options.limit,
    )


def _report(cluster: Cluster, outcomes: Sequence[Outcome], options: _Options) -> None:
    changed = _changed(outcomes)
    if options.write == _STDOUT:
        click.echo(_written(changed, options.output), nl=False)
        for line in (*_notes(outcomes), *_refusals(cluster, outcomes, options)):
            say(line.strip())
        return
    if options.write is not None:
        _save(changed, options.write, options.output)
    if options.output == "table":
        click.echo("\n".join(_page(cluster, outcomes, options)))
    else:
        document = [_document(cluster, outcomes, options)]
        click.echo(as_json(document) if options.output == "json" else as_yaml(document), nl=False)


# --- for people ---

_TITLES = ("pod", "claim", "request", "node", "device", "share", "consumed")


def _page(cluster: Cluster, outcomes: Sequence[Outcome], options: _Options) -> Iterator[str]:
    placed = [outcome for outcome in outcomes if isinstance(outcome, Placed)]
    if not outcomes:
        yield _nothing(cluster)
        return
    rows = [row for outcome in placed for row in _rows(outcome)]
    if rows:
        yield from table(_TITLES, rows)
        yield ""
    notes = list(_notes(outcomes))
    if notes:
        yield from (*notes, "")
    refusals = list(_refusals(cluster, outcomes, options))
    if refusals:
        yield from (*refusals, "")
    yield f"placed {len(placed)} of {len(outcomes)}"


def _nothing(cluster: Cluster) -> str:
    pods, claims = len(names_of(cluster.bundle, "pod")), len(names_of(cluster.bundle, "claim"))
    return f"nothing waits for devices: looked at {_plural(pods, 'pod')} and {_plural(claims, 'claim')}"


def _rows(outcome: Placed) -> Iterator[tuple[str, ...]]:
    pod = "/".join(outcome.subject.name) if outcome.subject.pod is not None else ""
    for claim in outcome.claims:
        name = f"{claim.metadata.namespace}/{claim.metadata.name}"
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        if not results:
            yield pod, name, "", outcome.node.metadata.name, "", "", ""
        for result in results:
            yield (
                pod,
                name,
                result.request,
                outcome.node.metadata.name,
                _device(result),
                (result.share_id or "").partition("-")[0],
                " ".join(f"{key}={amount}" for key, amount in result.consumed_capacity.items()),
            )


def _device(result: DeviceRequestAllocationResult) -> str:
    name = f"{result.driver}/{result.pool}/{result.device}"
    return f"{name} (admin)" if result.admin_access else name


def _refusals(cluster: Cluster, outcomes: Sequence[Outcome], options: _Options) -> Iterator[str]:
    for outcome in outcomes:
        if isinstance(outcome, NotPlaced):
            yield clean(f"not placed: {outcome.subject}: {_reason(cluster, outcome, options)}")


def _notes(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Where Kubernetes would not have placed what is placed here."""
    aborted = [outcome for outcome in outcomes if isinstance(outcome, Placed) and outcome.abort is not None]
    for outcome in aborted[:_MOST_NOTES]:
        yield clean(f"note: {outcome.subject}: {outcome.abort}")
    if len(aborted) > _MOST_NOTES:
        yield f"note: the same for {len(aborted) - _MOST_NOTES} more; `-o json` says it of each"


def _reason(cluster: Cluster, outcome: NotPlaced, options: _Options) -> str:
    """Why a subject has no place, in a line."""
    if outcome.why:
        return outcome.why
    claims = cluster.door.claims(outcome.subject.pending)
    effort = Effort(options.limit)
    return summary(diagnose(outcome.outlook.stock, claims, outcome.outlook.nodes, effort=effort, hints=0))


def _hint(outcomes: Sequence[Outcome], paths: Sequence[str], options: _Options) -> None:
    refused = [outcome for outcome in outcomes if isinstance(outcome, NotPlaced)]
    first = next((outcome for outcome in refused if not outcome.subject.invalid), None)
    if first is None:
        return
    space, name = first.subject.name
    given = " ".join(f"-f {path}" for path in paths)
    alone = " --alone" if options.pods or options.claims else ""
    node = f" --node {options.node}" if options.node else ""
    click.echo(f"hint: dray explain {given} {first.subject.kind}/{name} -n {space}{node}{alone}")


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


# --- for machines ---


def _document(cluster: Cluster, outcomes: Sequence[Outcome], options: _Options) -> dict[str, Any]:
    return {
        "placed": [
            {
                **_subject(outcome),
                "node": outcome.node.metadata.name,
                "claims": [_claim(claim, claim in outcome.fresh) for claim in outcome.claims],
                **abort_document(outcome),
            }
            for outcome in outcomes
            if isinstance(outcome, Placed)
        ],
        "notPlaced": [
            {**_subject(outcome), "reason": _reason(cluster, outcome, options), "gaveUp": outcome.gave_up}
            for outcome in outcomes
            if isinstance(outcome, NotPlaced)
        ],
        **judgement(cluster.bundle),
    }


def _subject(outcome: Outcome) -> dict[str, str]:
    space, name = outcome.subject.name
    return {"kind": outcome.subject.kind, "namespace": space, "name": name}


def _claim(claim: ResourceClaim, fresh: bool) -> dict[str, Any]:
    document = to_document(claim)
    return {
        "namespace": claim.metadata.namespace,
        "name": claim.metadata.name,
        "allocatedNow": fresh,
        **document.get("status", {}).get("allocation", {}),
    }


def _changed(outcomes: Sequence[Outcome]) -> list[ResourceClaim]:
    """Every claim that got devices or a consumer, as it is in the end."""
    latest: dict[tuple[str, str], ResourceClaim] = {}
    for outcome in outcomes:
        for claim in outcome.claims if isinstance(outcome, Placed) else ():
            latest[claim.metadata.namespace, claim.metadata.name] = claim
    return list(latest.values())


def _written(claims: Sequence[ResourceClaim], output: str) -> str:
    documents = [to_document(claim) for claim in claims]
    return as_json(documents) if output == "json" else as_yaml(documents)


def _save(claims: Sequence[ResourceClaim], folder: str, output: str) -> None:
    suffix = "json" if output == "json" else "yaml"
    for claim in claims:
        # Names come from files, and nothing has checked them: they must not lead out of the folder.
        name = _UNSAFE.sub("_", f"{claim.metadata.namespace}-{claim.metadata.name}")
        manifest_files.save_file(os.path.join(folder, f"{name}.{suffix}"), _written([claim], output))
    say(f"wrote {_plural(len(claims), 'claim')} into `{folder}`")
