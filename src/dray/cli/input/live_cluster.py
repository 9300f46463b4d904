"""A running cluster as input of a command: its snapshot, as far as the user may read it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from dray.cli.input.server_connection import ServerTarget, connect_to_server, run_to_completion
from dray.cli.output.text import print_message
from dray.cluster.live.snapshot import LiveSnapshot, read_snapshot

ON_SERVER = "on the server"
"""Where objects are looked up, for messages."""


@dataclass(frozen=True, slots=True)
class LiveInput:
    """A snapshot of a server, and the namespace of the context of the kubeconfig."""

    snapshot: LiveSnapshot
    namespace: str


def read_live_input(server: ServerTarget, namespace: str | None = None) -> LiveInput:
    """Read a server; a user without rights in the whole cluster gets the namespace named or that of the
    context.
    """
    check_server_named(server)
    return run_to_completion(_read_server(server, namespace))


def require_pods(live: LiveInput, namespace: str | None) -> None:
    """Raise `InputError` when not a single pod may be read, so that there is nothing to answer."""
    from dray.api.core import Pod
    from dray.cluster.live.access import VIEWER_HINT, format_gaps
    from dray.errors import InputError

    wanted = namespace or live.namespace
    if live.snapshot.is_readable(Pod, wanted):
        return
    raise InputError(
        f"{format_gaps(live.snapshot.gaps)}, not even in namespace `{wanted}`; name one that you may read "
        f"with `-n`; {VIEWER_HINT}"
    )


def print_snapshot_remarks(snapshot: LiveSnapshot) -> None:
    """Print what could not be read."""
    for remark in snapshot.bundle.remarks:
        print_message(remark)


def check_server_named(server: ServerTarget) -> None:
    """Raise an error that helps when there are neither files nor a configured server."""
    from dray.client.config.client_config import ClientConfigError
    from dray.client.config.kubeconfig import find_kubeconfig_files, is_in_pod

    if server.is_explicit or os.environ.get("KUBECONFIG") or is_in_pod(os.environ):
        return
    if not find_kubeconfig_files(os.environ)[0].exists():
        raise ClientConfigError(
            "nothing to read; name files or folders with `-f`, or a running cluster with `--kubeconfig`"
        )


def get_context_namespace(server: ServerTarget) -> str:
    """Return the namespace of the context of the kubeconfig."""
    from dray.client.config.kubeconfig import load_client_config

    return load_client_config(server.kubeconfig, server.context).namespace


async def _read_server(server: ServerTarget, namespace: str | None) -> LiveInput:
    current = get_context_namespace(server)
    async with connect_to_server(server.kubeconfig, server.context) as (client, _):
        return LiveInput(await read_snapshot(client, [namespace or current]), current)
