"""`dray explain`: which devices a pod gets and why, or why it gets none and what would help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click

from dray.allocator.requests import format_claim_name
from dray.claims.claim_names import NamespacedName
from dray.cli.commands.explain.page import ExplainCommandOptions, print_pages, render_page
from dray.cli.exit_codes import EXIT_INVALID_INPUT, EXIT_NO, EXIT_YES
from dray.cli.input.cluster_files import (
    ClusterInput,
    build_abort_document,
    build_validation_document,
    check_node,
    files_option,
    is_everything_invalid,
    load_cluster,
    parse_subject,
    resolve_name,
)
from dray.cli.input.options import (
    color_option,
    gates_option,
    output_option,
    search_timeout_option,
    strict_option,
)
from dray.cli.input.server_connection import ServerTarget, server_options
from dray.cli.output.text import sanitize_text
from dray.errors import UnanswerableClaimError
from dray.explain import Diagnosis, DiagnosisVerdict, WorkBudget, diagnose, diagnose_fault, to_document
from dray.explain.rendering.document import API_VERSION, KIND
from dray.manifests import to_json
from dray.share_ids import generate_share_id
from dray.simulation.file_placement import (
    PlacedUnit,
    PlacementOutcome,
    PlacementScope,
    UnplacedUnit,
    place_all,
)
from dray.simulation.object_reader import format_names


@click.command("explain")
@files_option
@click.argument("words", nargs=-1, metavar="[pod/NAME|claim/NAME]")
@server_options
@click.option("-n", "--namespace", metavar="NAME", help="The namespace of the pod or claim.")
@click.option("--node", metavar="NAME", help="Explain only this node.")
@click.option("--alone", is_flag=True, help="Explain it as if nothing else were waiting.")
@output_option
@search_timeout_option
@gates_option
@strict_option
@color_option
def command(paths: tuple[str, ...], words: tuple[str, ...], **chosen: Any) -> int:
    """Explain which devices a pod or claim gets and why, or why it gets none and what would help.

    In files (`-f`), everything that waits is placed in order, as `dray allocate` does it; the named pod or
    claim is explained at its turn, or all of them when none is named. Without files, the server of a
    kubeconfig is read, and everything else that keeps a pod from a node is explained too. Every hint was
    tried before it is shown. Objects in files are validated as an API server would: invalid ones are named
    and skipped. Exit code 0 when what is explained can be placed, 1 when it cannot, 2 when the input is
    invalid, or when the named pod or claim is invalid.
    """
    named = [subject for word in words if (subject := parse_subject(word)) is not None]
    files = (*paths, *(word for word in words if parse_subject(word) is None))
    server = ServerTarget(chosen.pop("kubeconfig"), chosen.pop("context"))
    options = ExplainCommandOptions(**chosen)
    if len(named) > 1:
        raise click.UsageError("one pod or claim at a time, or none for all of them")
    if not files:
        if options.strict:
            raise click.UsageError("`--strict` is for files: a server has judged what it has")
        from dray.cli.commands.explain import live

        return live.explain_live(server, named[0] if named else None, options)
    if server.is_explicit:
        raise click.UsageError("either files or a server: leave `-f` or `--kubeconfig` and `--context` out")
    cluster = load_cluster(files, options.gates, strict=options.strict)
    check_node(cluster.bundle, options.node)
    wanted = None
    if named:
        kind, name = named[0]
        wanted = (kind, resolve_name(cluster.bundle, kind, name, options.namespace))
    return _print_result(cluster, list(_place_subjects(cluster, wanted, options)), wanted, options)


Wanted = tuple[str, NamespacedName]
"""Kind and name of what is to be explained."""


def _place_subjects(
    cluster: ClusterInput, wanted: Wanted | None, options: ExplainCommandOptions
) -> Iterator[PlacementOutcome]:
    """Place everything in order as `dray allocate` does, and yield what is to be explained."""
    limits = PlacementScope(options.node, time_limit=options.limit)
    if wanted is not None and (options.alone or wanted[0] == "claim"):
        # A claim of a pod is not placed on its own, but can be explained on its own.
        only = frozenset({wanted[1]})
        limits = replace(limits, claims=only) if wanted[0] == "claim" else replace(limits, pods=only)
    elif wanted is not None:
        limits = replace(limits, node=None)
    for outcome in place_all(
        cluster.bundle, cluster.inventory, cluster.admission, new_share_id=generate_share_id, scope=limits
    ):
        if wanted is None or (outcome.unit.kind, outcome.unit.name) == wanted:
            yield outcome
            if wanted is not None:
                return


def _print_result(
    cluster: ClusterInput,
    outcomes: list[PlacementOutcome],
    wanted: Wanted | None,
    options: ExplainCommandOptions,
) -> int:
    diagnoses = [_diagnose_outcome(cluster, outcome, options) for outcome in outcomes]
    if options.output == "json":
        validation = build_validation_document(cluster.bundle)
        documents = [
            {**to_document(diagnosis), **build_abort_document(outcome)}
            for diagnosis, outcome in zip(diagnoses, outcomes, strict=True)
        ]
        many = {"apiVersion": API_VERSION, "kind": f"{KIND}List", "items": documents, **validation}
        one = [{**document, **validation} for document in documents]
        click.echo(to_json(one if wanted is not None else [many]), nl=False)
    elif outcomes:
        _print_diagnoses(outcomes, diagnoses, options)
    else:
        who = (
            f"{wanted[0]} {'/'.join(wanted[1])} waits for nothing" if wanted else "nothing waits for devices"
        )
        click.echo(f"{who}: what is asked for is there already")
    if is_everything_invalid(outcomes):
        return EXIT_INVALID_INPUT
    return EXIT_YES if all(diagnosis.verdict is DiagnosisVerdict.FITS for diagnosis in diagnoses) else EXIT_NO


def _diagnose_outcome(
    cluster: ClusterInput, outcome: PlacementOutcome, options: ExplainCommandOptions
) -> Diagnosis:
    unit, context, node = outcome.unit, outcome.context, options.node
    pod = "/".join(unit.name) if unit.pod is not None else ""
    nodes = [known for known in context.nodes if node in (None, known.metadata.name)]
    try:
        if not nodes:
            raise UnanswerableClaimError(_explain_no_nodes(outcome, node))
        claims = cluster.admission.admit_claims(unit.pending)
        return diagnose(context.inventory, claims, nodes, work_budget=WorkBudget(options.limit), pod=pod)
    except UnanswerableClaimError as fault:
        return diagnose_fault(fault, unit.claims, pod=pod)


def _explain_no_nodes(outcome: PlacementOutcome, node: str | None) -> str:
    """Explain why no node is left to search."""
    if isinstance(outcome, UnplacedUnit) and outcome.why:
        return outcome.why
    for barred, claim in outcome.context.excluded:
        if barred.metadata.name == node:
            return (
                f"claim {format_claim_name(claim)} has its devices elsewhere, out of reach of node `{node}`"
            )
    return f"node `{node}` does not come into question"


def _print_diagnoses(
    outcomes: list[PlacementOutcome], diagnoses: list[Diagnosis], options: ExplainCommandOptions
) -> None:
    print_pages(
        [
            "\n".join([render_page(diagnosis), *_render_context(outcome)])
            for outcome, diagnosis in zip(outcomes, diagnoses, strict=True)
        ],
        options.color,
    )


def _render_context(outcome: PlacementOutcome) -> Iterator[str]:
    """Render the claims that have devices already, the nodes they exclude, and what Kubernetes would do."""
    allocated = [claim for claim in outcome.unit.claims if claim.status.allocation is not None]
    if allocated:
        yield ""
        yield sanitize_text(
            f"  has devices already: {', '.join(format_claim_name(claim) for claim in allocated)}"
        )
    elsewhere: dict[str, list[str]] = {}
    for node, claim in outcome.context.excluded:
        elsewhere.setdefault(format_claim_name(claim), []).append(node.metadata.name)
    for claim_name, nodes in elsewhere.items():
        yield sanitize_text(f"  left out, as {claim_name} has its devices elsewhere: {format_names(nodes)}")
    if isinstance(outcome, PlacedUnit) and outcome.abort is not None:
        yield ""
        yield sanitize_text(f"note: {outcome.abort}")
