"""`dray explain` for a running cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.claims.claim_names import NamespacedName, get_namespaced_name
from dray.claims.reservation import is_pod_finished
from dray.cli.commands.explain.page import ExplainCommandOptions, get_page_width, paint, print_pages
from dray.cli.exit_codes import EXIT_NO, EXIT_YES
from dray.cli.input.cluster_files import check_node, resolve_name
from dray.cli.input.live_cluster import ON_SERVER, print_snapshot_remarks, read_live_input, require_pods
from dray.cli.input.server_connection import ServerTarget
from dray.cli.output.tables import render_table
from dray.cli.output.text import sanitize_text
from dray.cluster.live.explain import LiveExplainer, LiveExplanation
from dray.errors import InputError
from dray.explain import PageRole, render_text, to_document
from dray.explain.rendering.document import API_VERSION, KIND
from dray.explain.rendering.text import wrap_text
from dray.explain.wording import join_names
from dray.manifests import to_json
from dray.simulation.bundle import Bundle
from dray.simulation.file_placement import build_inventory

Named = tuple[str, str]
"""Kind and name as given on the command line."""


def explain_live(server: ServerTarget, subject: Named | None, options: ExplainCommandOptions) -> int:
    """Explain the current state of a server; return the exit code."""
    wanted = _find_namespace(subject, options)
    live = read_live_input(server, wanted)
    require_pods(live, wanted)
    bundle = live.snapshot.bundle
    print_snapshot_remarks(live.snapshot)
    check_node(bundle, options.node, ON_SERVER)
    admission = AllocatorGateFilter(options.gates)
    explainer = LiveExplainer(
        live.snapshot, admission, build_inventory(bundle, admission), options.node, options.limit
    )
    if subject is None:
        names = _list_pending_pods(bundle, options.namespace)
        explanations = [explainer.explain_pod(name) for name in names]
    else:
        kind, text = subject
        name = _resolve_subject(bundle, kind, text, options.namespace, live.namespace)
        explanations = [explainer.explain_pod(name) if kind == "pod" else explainer.explain_claim(name)]
    _print_explanations(explanations, options, many=subject is None)
    return EXIT_YES if all(explanation.is_good for explanation in explanations) else EXIT_NO


def _find_namespace(subject: Named | None, options: ExplainCommandOptions) -> str | None:
    """Find the namespace that the command line names: `-n ml` or `pod/ml/NAME`."""
    inside = subject[1].rpartition("/")[0] if subject is not None else ""
    return inside or options.namespace


def _resolve_subject(bundle: Bundle, kind: str, text: str, given: str | None, current: str) -> NamespacedName:
    """Find the named object: in the given namespace, else in that of the context, else the only one."""
    if given is None and "/" not in text:
        try:
            return resolve_name(bundle, kind, text, current, ON_SERVER)
        except InputError:
            pass
    return resolve_name(bundle, kind, text, given, ON_SERVER)


def _list_pending_pods(bundle: Bundle, namespace: str | None) -> list[NamespacedName]:
    """List the pods without a node, by priority."""
    pods = [
        pod
        for pod in bundle.pods
        if not pod.spec.node_name and not is_pod_finished(pod) and namespace in (None, pod.metadata.namespace)
    ]
    return [
        get_namespaced_name(pod.metadata) for pod in sorted(pods, key=lambda pod: -(pod.spec.priority or 0))
    ]


# --- output ---


def _print_explanations(
    explanations: Sequence[LiveExplanation], options: ExplainCommandOptions, *, many: bool
) -> None:
    if options.output == "json":
        documents = [_build_document(explanation) for explanation in explanations]
        listed: dict[str, Any] = {"apiVersion": API_VERSION, "kind": f"{KIND}List", "items": documents}
        click.echo(to_json([listed] if many else documents), nl=False)
    elif explanations:
        print_pages(["\n".join(_render_page(explanation)) for explanation in explanations], options.color)
    else:
        click.echo("no pod waits for a node")


def _build_document(explanation: LiveExplanation) -> dict[str, Any]:
    """Build the document of the diagnosis, with the facts of the running cluster."""
    excluded = [
        {"nodes": list(each.nodes), "plugin": each.rejection.plugin, "reason": each.rejection.reason}
        for each in explanation.excluded_nodes
    ]
    return {
        **to_document(explanation.diagnosis),
        "headline": explanation.headline,
        "summary": explanation.summary,
        "node": explanation.node,
        "leftOut": excluded,
        "remarks": list(explanation.remarks),
    }


def _render_page(explanation: LiveExplanation) -> Iterator[str]:
    yield from (
        paint(PageRole.HEADLINE, line)
        for line in wrap_text(sanitize_text(explanation.headline), get_page_width(), "")
    )
    yield from _render_body(explanation)
    extras = [
        f"left out {join_names(each.nodes, 3)}: {each.rejection.reason}"
        for each in explanation.excluded_nodes
    ]
    extras += explanation.remarks
    if extras:
        yield ""
    for text in extras:
        yield from wrap_text(sanitize_text(text), get_page_width(), "  ", "      ")


def _render_body(explanation: LiveExplanation) -> Iterator[str]:
    """Render the diagnosis below its headline, or the allocated devices."""
    if explanation.is_allocated:
        yield from _render_devices(explanation)
    elif explanation.diagnosis.node_reports or explanation.diagnosis.fault is not None:
        whole = render_text(explanation.diagnosis, get_page_width(), paint=paint)
        _, _, rest = whole.partition("\n\n")
        yield from ("", rest) if rest else ()


def _render_devices(explanation: LiveExplanation) -> Iterator[str]:
    rows = [
        (
            found.claim,
            found.request,
            f"{found.device} (admin)" if found.admin else str(found.device),
            " ".join(f"{name}={amount}" for name, amount in found.consumed.items()),
        )
        for report in explanation.diagnosis.node_reports
        for found in report.found
    ]
    if rows:
        yield ""
        yield from (f"  {line}" for line in render_table(("claim", "request", "device", "consumed"), rows))
