"""`dray explain` against a running cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import click

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.claims.claim_names import NamespacedName, get_namespaced_name
from dray.claims.reservation import is_pod_finished
from dray.cli.app import EXIT_NO, EXIT_YES
from dray.cli.commands.explain.page import ExplainCommandOptions, get_page_width, paint, print_pages
from dray.cli.input.cluster_files import check_node, print_message, resolve_name
from dray.cli.input.server_connection import ServerTarget, connect_to_server, run_to_completion
from dray.cli.output.tables import render_table
from dray.cli.output.text import sanitize_text
from dray.cluster.live.explain import LiveExplainer, LiveExplanation
from dray.cluster.live.snapshot import read_bundle
from dray.errors import InputError
from dray.explain import PageRole, render_text, to_document
from dray.explain.rendering.document import API_VERSION, KIND
from dray.explain.rendering.text import wrap_text
from dray.explain.wording import join_names
from dray.manifests import to_json
from dray.simulation.bundle import Bundle
from dray.simulation.file_placement import build_inventory

ON_SERVER = "on the server"
Named = tuple[str, str]
"""Kind and name as they were typed."""


def explain_live(server: ServerTarget, subject: Named | None, options: ExplainCommandOptions) -> int:
    """Explain what a server has now; the exit code."""
    _check_reachable(server)
    bundle, namespace = run_to_completion(_read_server(server))
    if bundle.slices:  # without devices there is nothing that a remark could change
        for remark in bundle.remarks:
            print_message(remark)
    check_node(bundle, options.node, ON_SERVER)
    door = AllocatorGateFilter(options.gates)
    inquirer = LiveExplainer(bundle, door, build_inventory(bundle, door), options.node, options.limit)
    if subject is None:
        names = _list_pending_pods(bundle, options.namespace)
        inquiries = [inquirer.explain_pod(name) for name in names]
    else:
        kind, text = subject
        name = _resolve_subject(bundle, kind, text, options.namespace, namespace)
        inquiries = [inquirer.explain_pod(name) if kind == "pod" else inquirer.explain_claim(name)]
    _print_explanations(inquiries, options, many=subject is None)
    return EXIT_YES if all(inquiry.is_good for inquiry in inquiries) else EXIT_NO


def _check_reachable(server: ServerTarget) -> None:
    """Say what is missing when there are neither files nor a way to a server."""
    from dray.client.config.client_config import ClientConfigError
    from dray.client.config.kubeconfig import find_kubeconfig_files, is_in_pod

    if server.is_explicit or os.environ.get("KUBECONFIG") or is_in_pod(os.environ):
        return
    if not find_kubeconfig_files(os.environ)[0].exists():
        raise ClientConfigError(
            "nothing to read; name files or folders with `-f`, or a running cluster with `--kubeconfig`"
        )


async def _read_server(server: ServerTarget) -> tuple[Bundle, str]:
    """Everything on the server, and the namespace of the context."""
    from dray.client.config.kubeconfig import load_client_config

    namespace = load_client_config(server.kubeconfig, server.context).namespace
    async with connect_to_server(server.kubeconfig, server.context) as (client, _):
        return await read_bundle(client), namespace


def _resolve_subject(bundle: Bundle, kind: str, text: str, given: str | None, current: str) -> NamespacedName:
    """The object that was named: in the namespace given, else in that of the context, else the only one."""
    if given is None and "/" not in text:
        try:
            return resolve_name(bundle, kind, text, current, ON_SERVER)
        except InputError:
            pass
    return resolve_name(bundle, kind, text, given, ON_SERVER)


def _list_pending_pods(bundle: Bundle, namespace: str | None) -> list[NamespacedName]:
    """The pods without a node, the most important first."""
    pods = [
        pod
        for pod in bundle.pods
        if not pod.spec.node_name and not is_pod_finished(pod) and namespace in (None, pod.metadata.namespace)
    ]
    return [
        get_namespaced_name(pod.metadata) for pod in sorted(pods, key=lambda pod: -(pod.spec.priority or 0))
    ]


# --- for people and machines ---


def _print_explanations(
    inquiries: Sequence[LiveExplanation], options: ExplainCommandOptions, *, many: bool
) -> None:
    if options.output == "json":
        documents = [_build_document(inquiry) for inquiry in inquiries]
        listed: dict[str, Any] = {"apiVersion": API_VERSION, "kind": f"{KIND}List", "items": documents}
        click.echo(to_json([listed] if many else documents), nl=False)
    elif inquiries:
        print_pages(["\n".join(_render_page(inquiry)) for inquiry in inquiries], options.color)
    else:
        click.echo("no pod waits for a node")


def _build_document(inquiry: LiveExplanation) -> dict[str, Any]:
    """The document of the diagnosis, with what only a running cluster knows."""
    left_out = [
        {"nodes": list(each.nodes), "plugin": each.rejection.plugin, "reason": each.rejection.reason}
        for each in inquiry.excluded_nodes
    ]
    return {
        **to_document(inquiry.diagnosis),
        "headline": inquiry.headline,
        "summary": inquiry.summary,
        "node": inquiry.node,
        "leftOut": left_out,
        "remarks": list(inquiry.remarks),
    }


def _render_page(inquiry: LiveExplanation) -> Iterator[str]:
    yield from (
        paint(PageRole.HEADLINE, line)
        for line in wrap_text(sanitize_text(inquiry.headline), get_page_width(), "")
    )
    yield from _render_body(inquiry)
    around = [
        f"left out {join_names(each.nodes, 3)}: {each.rejection.reason}" for each in inquiry.excluded_nodes
    ]
    around += inquiry.remarks
    if around:
        yield ""
    for text in around:
        yield from wrap_text(sanitize_text(text), get_page_width(), "  ", "      ")


def _render_body(inquiry: LiveExplanation) -> Iterator[str]:
    """The page of the diagnosis below its headline, or the devices of what has its place."""
    if inquiry.is_allocated:
        yield from _render_devices(inquiry)
    elif inquiry.diagnosis.node_reports or inquiry.diagnosis.fault is not None:
        whole = render_text(inquiry.diagnosis, get_page_width(), paint=paint)
        _, _, rest = whole.partition("\n\n")
        yield from ("", rest) if rest else ()


def _render_devices(inquiry: LiveExplanation) -> Iterator[str]:
    rows = [
        (
            found.claim,
            found.request,
            f"{found.device} (admin)" if found.admin else str(found.device),
            " ".join(f"{name}={amount}" for name, amount in found.consumed.items()),
        )
        for story in inquiry.diagnosis.node_reports
        for found in story.found
    ]
    if rows:
        yield ""
        yield from (f"  {line}" for line in render_table(("claim", "request", "device", "consumed"), rows))
