"""`dray explain`: which devices a pod gets and why, or why it gets none and what would help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click

from dray.allocator.requests import named
from dray.claims.claim_names import Name
from dray.cli.app import BROKEN, NO, YES
from dray.cli.commands.explain.page import Options, painted, print_pages
from dray.cli.input.cluster_files import (
    Cluster,
    abort_document,
    check_node,
    cluster_of,
    files_option,
    judgement,
    nothing_valid,
    resolved,
    subject_named,
)
from dray.cli.input.options import (
    color_option,
    gates_option,
    output_option,
    search_timeout_option,
    strict_option,
)
from dray.cli.input.server_connection import Server, server_options
from dray.cli.output.text import clean
from dray.errors import AllocationFault
from dray.explain import Diagnosis, Effort, Verdict, diagnose, of_fault, to_document
from dray.explain.rendering.document import API_VERSION, KIND
from dray.manifests import as_json
from dray.simulation.file_placement import Limits, NotPlaced, Outcome, Placed, place
from dray.simulation.object_reader import listed
from dray.simulation.share_ids import new_share_id


@click.command("explain")
@files_option
@click.argument("words", nargs=-1, metavar="[pod/NAME|claim/NAME]")
@server_options
@click.option("-n", "--namespace", metavar="NAME", help="The namespace of the pod or claim.")
@click.option("--node", metavar="NAME", help="Explain this node only.")
@click.option("--alone", is_flag=True, help="As if nothing else were waiting.")
@output_option
@search_timeout_option
@gates_option
@strict_option
@color_option
def command(paths: tuple[str, ...], words: tuple[str, ...], **chosen: Any) -> int:
    """Tell which devices a pod or claim gets and why, or why it gets none and what would help.

    In files (`-f`), everything that waits is placed in order, as `dray allocate` does it; the pod or claim
    that is named is explained as it is met then, or all of them when none is named. Without files it is
    explained as the server of a kubeconfig has it now, with everything else that keeps a pod from a node.
    Every hint was tried before it is shown. Objects in files are judged as an API server would: what is
    invalid is named and left out. Exit code 0 when what is explained finds its place, 1 when it does not,
    2 when the input is broken, or when the pod or claim that is named is invalid.
    """
    asked = [subject for word in words if (subject := subject_named(word)) is not None]
    files = (*paths, *(word for word in words if subject_named(word) is None))
    server = Server(chosen.pop("kubeconfig"), chosen.pop("context"))
    options = Options(**chosen)
    if len(asked) > 1:
        raise click.UsageError("one pod or claim at a time, or none for all of them")
    if not files:
        if options.strict:
            raise click.UsageError("`--strict` is for files: a server has judged what it has")
        from dray.cli.commands.explain import live

        return live.told(server, asked[0] if asked else None, options)
    if server.is_named:
        raise click.UsageError("either files or a server: leave `-f` or `--kubeconfig` and `--context` out")
    cluster = cluster_of(files, options.gates, strict=options.strict)
    check_node(cluster.bundle, options.node)
    wanted = None
    if asked:
        kind, name = asked[0]
        wanted = (kind, resolved(cluster.bundle, kind, name, options.namespace))
    return _tell(cluster, list(_outcomes(cluster, wanted, options)), wanted, options)


Wanted = tuple[str, Name]
"""Kind and name of what is to be explained."""


def _outcomes(cluster: Cluster, wanted: Wanted | None, options: Options) -> Iterator[Outcome]:
    """What is to be explained, met as `dray allocate` meets it."""
    limits = Limits(options.node, search=options.limit)
    if wanted is not None and (options.alone or wanted[0] == "claim"):
        # A claim of a pod is not placed on its own, but may be explained on its own.
        only = frozenset({wanted[1]})
        limits = replace(limits, claims=only) if wanted[0] == "claim" else replace(limits, pods=only)
    elif wanted is not None:
        limits = replace(limits, node=None)
    for outcome in place(
        cluster.bundle, cluster.stock, cluster.door, new_share_id=new_share_id, limits=limits
    ):
        if wanted is None or (outcome.subject.kind, outcome.subject.name) == wanted:
            yield outcome
            if wanted is not None:
                return


def _tell(cluster: Cluster, outcomes: list[Outcome], wanted: Wanted | None, options: Options) -> int:
    diagnoses = [_diagnosis(cluster, outcome, options) for outcome in outcomes]
    if options.output == "json":
        said = judgement(cluster.bundle)
        documents = [
            {**to_document(diagnosis), **abort_document(outcome)}
            for diagnosis, outcome in zip(diagnoses, outcomes, strict=True)
        ]
        many = {"apiVersion": API_VERSION, "kind": f"{KIND}List", "items": documents, **said}
        one = [{**document, **said} for document in documents]
        click.echo(as_json(one if wanted is not None else [many]), nl=False)
    elif outcomes:
        _print(outcomes, diagnoses, options)
    else:
        who = (
            f"{wanted[0]} {'/'.join(wanted[1])} waits for nothing" if wanted else "nothing waits for devices"
        )
        click.echo(f"{who}: what is asked for is there already")
    if nothing_valid(outcomes):
        return BROKEN
    return YES if all(diagnosis.verdict is Verdict.FITS for diagnosis in diagnoses) else NO


def _diagnosis(cluster: Cluster, outcome: Outcome, options: Options) -> Diagnosis:
    subject, outlook, node = outcome.subject, outcome.outlook, options.node
    pod = "/".join(subject.name) if subject.pod is not None else ""
    nodes = [known for known in outlook.nodes if node in (None, known.metadata.name)]
    try:
        if not nodes:
            raise AllocationFault(_without_nodes(outcome, node))
        claims = cluster.door.claims(subject.pending)
        return diagnose(outlook.stock, claims, nodes, effort=Effort(options.limit), pod=pod)
    except AllocationFault as fault:
        return of_fault(fault, subject.claims, pod=pod)


def _without_nodes(outcome: Outcome, node: str | None) -> str:
    """Why no node is left to look at."""
    if isinstance(outcome, NotPlaced) and outcome.why:
        return outcome.why
    for barred, claim in outcome.outlook.barred:
        if barred.metadata.name == node:
            return f"claim {named(claim)} has its devices elsewhere, out of reach of node `{node}`"
    return f"node `{node}` does not come into question"


def _print(outcomes: list[Outcome], diagnoses: list[Diagnosis], options: Options) -> None:
    print_pages(
        [
            "\n".join([painted(diagnosis), *_around(outcome)])
            for outcome, diagnosis in zip(outcomes, diagnoses, strict=True)
        ],
        options.color,
    )


def _around(outcome: Outcome) -> Iterator[str]:
    """What claims that have devices already mean for the others, and what Kubernetes would do."""
    held = [claim for claim in outcome.subject.claims if claim.status.allocation is not None]
    if held:
        yield ""
        yield clean(f"  has devices already: {', '.join(named(claim) for claim in held)}")
    elsewhere: dict[str, list[str]] = {}
    for node, claim in outcome.outlook.barred:
        elsewhere.setdefault(named(claim), []).append(node.metadata.name)
    for claim_name, nodes in elsewhere.items():
        yield clean(f"  left out, as {claim_name} has its devices elsewhere: {listed(nodes)}")
    if isinstance(outcome, Placed) and outcome.abort is not None:
        yield ""
        yield clean(f"note: {outcome.abort}")
