"""`dray explain` against a running cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import click

from dray.allocator.feature_gates import Admission
from dray.claims.claim_names import Name, name_of
from dray.claims.reservation import is_over
from dray.cli.app import NO, YES
from dray.cli.commands.explain.page import Options, paint, print_pages, width
from dray.cli.input.cluster_files import check_node, resolved, say
from dray.cli.input.server_connection import Server, done, reached
from dray.cli.output.tables import table
from dray.cli.output.text import clean
from dray.cluster.live.explain import Inquirer, Inquiry
from dray.cluster.live.snapshot import bundle_of
from dray.errors import InputError
from dray.explain import Role, render_text, to_document
from dray.explain.rendering.document import API_VERSION, KIND
from dray.explain.rendering.text import wrap_words
from dray.explain.wording import joined
from dray.manifests import as_json
from dray.simulation.bundle import Bundle
from dray.simulation.file_placement import stock_of

ON_SERVER = "on the server"
Named = tuple[str, str]
"""Kind and name as they were typed."""


def told(server: Server, asked: Named | None, options: Options) -> int:
    """Explain what a server has now; the exit code."""
    _check_reachable(server)
    bundle, namespace = done(_read(server))
    if bundle.slices:  # without devices there is nothing that a remark could change
        for remark in bundle.remarks:
            say(remark)
    check_node(bundle, options.node, ON_SERVER)
    door = Admission(options.gates)
    inquirer = Inquirer(bundle, door, stock_of(bundle, door), options.node, options.limit)
    if asked is None:
        names = _waiting(bundle, options.namespace)
        inquiries = [inquirer.pod(name) for name in names]
    else:
        kind, text = asked
        name = _meant(bundle, kind, text, options.namespace, namespace)
        inquiries = [inquirer.pod(name) if kind == "pod" else inquirer.claim(name)]
    _print(inquiries, options, many=asked is None)
    return YES if all(inquiry.is_good for inquiry in inquiries) else NO


def _check_reachable(server: Server) -> None:
    """Say what is missing when there are neither files nor a way to a server."""
    from dray.client.config.client_config import AccessError
    from dray.client.config.kubeconfig import files_named, in_a_pod

    if server.is_named or os.environ.get("KUBECONFIG") or in_a_pod(os.environ):
        return
    if not files_named(os.environ)[0].exists():
        raise AccessError(
            "nothing to read; name files or folders with `-f`, or a running cluster with `--kubeconfig`"
        )


async def _read(server: Server) -> tuple[Bundle, str]:
    """Everything on the server, and the namespace of the context."""
    from dray.client.config.kubeconfig import find_access

    namespace = find_access(server.kubeconfig, server.context).namespace
    async with reached(server.kubeconfig, server.context) as (client, _):
        return await bundle_of(client), namespace


def _meant(bundle: Bundle, kind: str, text: str, given: str | None, current: str) -> Name:
    """The object that was named: in the namespace given, else in that of the context, else the only one."""
    if given is None and "/" not in text:
        try:
            return resolved(bundle, kind, text, current, ON_SERVER)
        except InputError:
            pass
    return resolved(bundle, kind, text, given, ON_SERVER)


def _waiting(bundle: Bundle, namespace: str | None) -> list[Name]:
    """The pods without a node, the most important first."""
    pods = [
        pod
        for pod in bundle.pods
        if not pod.spec.node_name and not is_over(pod) and namespace in (None, pod.metadata.namespace)
    ]
    return [name_of(pod.metadata) for pod in sorted(pods, key=lambda pod: -(pod.spec.priority or 0))]


# --- for people and machines ---


def _print(inquiries: Sequence[Inquiry], options: Options, *, many: bool) -> None:
    if options.output == "json":
        documents = [_document(inquiry) for inquiry in inquiries]
        listed: dict[str, Any] = {"apiVersion": API_VERSION, "kind": f"{KIND}List", "items": documents}
        click.echo(as_json([listed] if many else documents), nl=False)
    elif inquiries:
        print_pages(["\n".join(_page(inquiry)) for inquiry in inquiries], options.color)
    else:
        click.echo("no pod waits for a node")


def _document(inquiry: Inquiry) -> dict[str, Any]:
    """The document of the diagnosis, with what only a running cluster knows."""
    left_out = [
        {"nodes": list(each.nodes), "plugin": each.verdict.plugin, "reason": each.verdict.reason}
        for each in inquiry.left_out
    ]
    return {
        **to_document(inquiry.diagnosis),
        "headline": inquiry.headline,
        "summary": inquiry.summary,
        "node": inquiry.node,
        "leftOut": left_out,
        "remarks": list(inquiry.remarks),
    }


def _page(inquiry: Inquiry) -> Iterator[str]:
    yield from (paint(Role.HEADLINE, line) for line in wrap_words(clean(inquiry.headline), width(), ""))
    yield from _body(inquiry)
    around = [f"left out {joined(each.nodes, 3)}: {each.verdict.reason}" for each in inquiry.left_out]
    around += inquiry.remarks
    if around:
        yield ""
    for text in around:
        yield from wrap_words(clean(text), width(), "  ", "      ")


def _body(inquiry: Inquiry) -> Iterator[str]:
    """The page of the diagnosis below its headline, or the devices of what has its place."""
    if inquiry.holds:
        yield from _devices(inquiry)
    elif inquiry.diagnosis.stories or inquiry.diagnosis.fault is not None:
        whole = render_text(inquiry.diagnosis, width(), paint=paint)
        _, _, rest = whole.partition("\n\n")
        yield from ("", rest) if rest else ()


def _devices(inquiry: Inquiry) -> Iterator[str]:
    rows = [
        (
            found.claim,
            found.request,
            f"{found.device} (admin)" if found.admin else str(found.device),
            " ".join(f"{name}={amount}" for name, amount in found.consumed.items()),
        )
        for story in inquiry.diagnosis.stories
        for found in story.found
    ]
    if rows:
        yield ""
        yield from (f"  {line}" for line in table(("claim", "request", "device", "consumed"), rows))
