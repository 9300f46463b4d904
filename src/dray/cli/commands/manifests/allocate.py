"""`dray allocate`: allocate devices to pending pods and claims in manifests."""

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
from dray.cli.exit_codes import EXIT_INVALID_INPUT, EXIT_NO, EXIT_YES
from dray.cli.input import manifest_files
from dray.cli.input.cluster_files import (
    ClusterInput,
    build_abort_document,
    build_validation_document,
    check_node,
    files_option,
    is_everything_invalid,
    list_names,
    load_cluster,
    resolve_name,
)
from dray.cli.input.options import gates_option, search_timeout_option, strict_option
from dray.cli.output.tables import render_table
from dray.cli.output.text import format_count, print_message, sanitize_text
from dray.explain import WorkBudget, diagnose, summarize
from dray.gates import GateSet
from dray.manifests import to_json, to_yaml
from dray.share_ids import generate_share_id
from dray.simulation.file_placement import (
    PlacedUnit,
    PlacementOutcome,
    PlacementScope,
    UnplacedUnit,
    place_all,
)

_STDOUT = "-"
_MAX_NOTES = 20
"""Notes about Kubernetes that are printed."""
_UNSAFE = re.compile(r"[^A-Za-z0-9.-]")


@click.command("allocate")
@files_option
@click.argument("more", nargs=-1, metavar="[FILES]...")
@click.option("--node", metavar="NAME", help="Consider only this node.")
@click.option("--pod", "pods", multiple=True, metavar="[NS/]NAME", help="Place only this pod.")
@click.option("--claim", "claims", multiple=True, metavar="[NS/]NAME", help="Allocate only this claim.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="A table for people, JSON or YAML for programs.",
)
@click.option(
    "--write",
    is_flag=False,
    flag_value=_STDOUT,
    metavar="[FOLDER]",
    help="Write the claims with their `status` as manifests: to standard output instead of the table, or one "
    "file per claim into FOLDER. The input files are not changed.",
)
@search_timeout_option
@gates_option
@strict_option
def command(paths: tuple[str, ...], more: tuple[str, ...], **chosen: Any) -> int:
    """Allocate devices to every pod and claim that waits for them.

    Pods are placed by priority, else in the order of the manifests, each on its best node: where requests get
    their better alternatives, else the first by name. Claims that no pending pod uses come last. Only devices
    decide: node taints, CPU and affinity are ignored. Objects are validated as an API server would: invalid
    ones are named and skipped. Exit code 0 when everything was placed, 1 when something was not, 2 when the
    input is invalid, or when a named pod or claim is invalid.
    """
    options = _Options(**chosen)
    cluster = load_cluster((*paths, *more), options.gates, strict=options.strict)
    outcomes = list(
        place_all(
            cluster.bundle,
            cluster.inventory,
            cluster.admission,
            new_share_id=generate_share_id,
            scope=_build_limits(cluster, options),
        )
    )
    _print_report(cluster, outcomes, options)
    if not any(isinstance(outcome, UnplacedUnit) for outcome in outcomes):
        return EXIT_YES
    if options.output == "table" and options.write != _STDOUT:
        _print_hint(outcomes, (*paths, *more), options)
    return EXIT_INVALID_INPUT if is_everything_invalid(outcomes) else EXIT_NO


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of the command line."""

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
        """The time limit of searches."""
        return TimeLimit(time.monotonic, self.search_timeout)


def _build_limits(cluster: ClusterInput, options: _Options) -> PlacementScope:
    bundle = cluster.bundle
    check_node(bundle, options.node)
    return PlacementScope(
        options.node,
        frozenset(resolve_name(bundle, "pod", name) for name in options.pods),
        frozenset(resolve_name(bundle, "claim", name) for name in options.claims),
        options.limit,
    )


def _print_report(cluster: ClusterInput, outcomes: Sequence[PlacementOutcome], options: _Options) -> None:
    changed = _collect_changed_claims(outcomes)
    if options.write == _STDOUT:
        click.echo(_render_claims(changed, options.output), nl=False)
        for line in (*_render_notes(outcomes), *_render_refusals(cluster, outcomes, options)):
            print_message(line.strip())
        return
    if options.write is not None:
        _save_claims(changed, options.write, options.output)
    if options.output == "table":
        click.echo("\n".join(_render_page(cluster, outcomes, options)))
    else:
        document = [_build_document(cluster, outcomes, options)]
        click.echo(to_json(document) if options.output == "json" else to_yaml(document), nl=False)


# --- text ---

_TITLES = ("pod", "claim", "request", "node", "device", "share", "consumed")


def _render_page(
    cluster: ClusterInput, outcomes: Sequence[PlacementOutcome], options: _Options
) -> Iterator[str]:
    placed = [outcome for outcome in outcomes if isinstance(outcome, PlacedUnit)]
    if not outcomes:
        yield _describe_nothing(cluster)
        return
    rows = [row for outcome in placed for row in _build_rows(outcome)]
    if rows:
        yield from render_table(_TITLES, rows)
        yield ""
    notes = list(_render_notes(outcomes))
    if notes:
        yield from (*notes, "")
    refusals = list(_render_refusals(cluster, outcomes, options))
    if refusals:
        yield from (*refusals, "")
    yield f"placed {len(placed)} of {len(outcomes)}"


def _describe_nothing(cluster: ClusterInput) -> str:
    pods, claims = len(list_names(cluster.bundle, "pod")), len(list_names(cluster.bundle, "claim"))
    return (
        f"nothing waits for devices: looked at {format_count(pods, 'pod')} and "
        f"{format_count(claims, 'claim')}"
    )


def _build_rows(outcome: PlacedUnit) -> Iterator[tuple[str, ...]]:
    pod = "/".join(outcome.unit.name) if outcome.unit.pod is not None else ""
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
                _format_device(result),
                (result.share_id or "").partition("-")[0],
                " ".join(f"{key}={amount}" for key, amount in result.consumed_capacity.items()),
            )


def _format_device(result: DeviceRequestAllocationResult) -> str:
    name = f"{result.driver}/{result.pool}/{result.device}"
    return f"{name} (admin)" if result.admin_access else name


def _render_refusals(
    cluster: ClusterInput, outcomes: Sequence[PlacementOutcome], options: _Options
) -> Iterator[str]:
    for outcome in outcomes:
        if isinstance(outcome, UnplacedUnit):
            yield sanitize_text(f"not placed: {outcome.unit}: {_explain_reason(cluster, outcome, options)}")


def _render_notes(outcomes: Sequence[PlacementOutcome]) -> Iterator[str]:
    """Render where Kubernetes would not have placed what is placed here."""
    aborted = [
        outcome for outcome in outcomes if isinstance(outcome, PlacedUnit) and outcome.abort is not None
    ]
    for outcome in aborted[:_MAX_NOTES]:
        yield sanitize_text(f"note: {outcome.unit}: {outcome.abort}")
    if len(aborted) > _MAX_NOTES:
        yield f"note: the same for {len(aborted) - _MAX_NOTES} more; `-o json` says it of each"


def _explain_reason(cluster: ClusterInput, outcome: UnplacedUnit, options: _Options) -> str:
    """Explain in a line why a pod or claim was not placed."""
    if outcome.why:
        return outcome.why
    claims = cluster.admission.admit_claims(outcome.unit.pending)
    effort = WorkBudget(options.limit)
    return summarize(
        diagnose(outcome.context.inventory, claims, outcome.context.nodes, work_budget=effort, hints=0)
    )


def _print_hint(outcomes: Sequence[PlacementOutcome], paths: Sequence[str], options: _Options) -> None:
    refused = [outcome for outcome in outcomes if isinstance(outcome, UnplacedUnit)]
    first = next((outcome for outcome in refused if not outcome.unit.invalid), None)
    if first is None:
        return
    space, name = first.unit.name
    given = " ".join(f"-f {path}" for path in paths)
    alone = " --alone" if options.pods or options.claims else ""
    node = f" --node {options.node}" if options.node else ""
    click.echo(f"hint: dray explain {given} {first.unit.kind}/{name} -n {space}{node}{alone}")


# --- documents ---


def _build_document(
    cluster: ClusterInput, outcomes: Sequence[PlacementOutcome], options: _Options
) -> dict[str, Any]:
    return {
        "placed": [
            {
                **_build_subject(outcome),
                "node": outcome.node.metadata.name,
                "claims": [_build_claim(claim, claim in outcome.newly_allocated) for claim in outcome.claims],
                **build_abort_document(outcome),
            }
            for outcome in outcomes
            if isinstance(outcome, PlacedUnit)
        ],
        "notPlaced": [
            {
                **_build_subject(outcome),
                "reason": _explain_reason(cluster, outcome, options),
                "gaveUp": outcome.gave_up,
            }
            for outcome in outcomes
            if isinstance(outcome, UnplacedUnit)
        ],
        **build_validation_document(cluster.bundle),
    }


def _build_subject(outcome: PlacementOutcome) -> dict[str, str]:
    space, name = outcome.unit.name
    return {"kind": outcome.unit.kind, "namespace": space, "name": name}


def _build_claim(claim: ResourceClaim, newly_allocated: bool) -> dict[str, Any]:
    document = to_document(claim)
    return {
        "namespace": claim.metadata.namespace,
        "name": claim.metadata.name,
        "allocatedNow": newly_allocated,
        **document.get("status", {}).get("allocation", {}),
    }


def _collect_changed_claims(outcomes: Sequence[PlacementOutcome]) -> list[ResourceClaim]:
    """Collect every claim that got devices or a consumer, in its last state."""
    latest: dict[tuple[str, str], ResourceClaim] = {}
    for outcome in outcomes:
        for claim in outcome.claims if isinstance(outcome, PlacedUnit) else ():
            latest[claim.metadata.namespace, claim.metadata.name] = claim
    return list(latest.values())


def _render_claims(claims: Sequence[ResourceClaim], output: str) -> str:
    documents = [to_document(claim) for claim in claims]
    return to_json(documents) if output == "json" else to_yaml(documents)


def _save_claims(claims: Sequence[ResourceClaim], folder: str, output: str) -> None:
    suffix = "json" if output == "json" else "yaml"
    for claim in claims:
        # Names come from files and may be invalid: they must not lead out of the folder.
        name = _UNSAFE.sub("_", f"{claim.metadata.namespace}-{claim.metadata.name}")
        manifest_files.save_file(os.path.join(folder, f"{name}.{suffix}"), _render_claims([claim], output))
    print_message(f"wrote {format_count(len(claims), 'claim')} into `{folder}`")
