"""`dray server`: runs an API server in this terminal, and backs up, restores, migrates and gives credentials
for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dray.cli.commands.services import server_credentials
from dray.cli.commands.services.server_backup import backup, restore
from dray.cli.commands.services.server_migrate import migrate
from dray.cli.commands.services.service_options import (
    build_server_options,
    log_options,
    run_service,
    serving_options,
)
from dray.cli.input.options import gates_option

if TYPE_CHECKING:
    from dray.cluster.services.api_server import RunningServer


@click.group(
    invoke_without_command=True,
    short_help="Serve the Kubernetes API for devices",
    epilog="`dray server backup` and `dray server restore` back up and restore the store; `dray server "
    "migrate` converts that of an older dray.",
)
@serving_options
@log_options
@gates_option
@click.pass_context
def command(context: click.Context, /, **chosen: Any) -> int:
    """Serve the Kubernetes API: devices, claims, pods and everything around them.

    Serves kubectl and every Kubernetes client over TLS. Writes a kubeconfig for an administrator into the
    data directory and prints how to use it. Ctrl-C stops it; everything acknowledged is stored.
    """
    if context.invoked_subcommand is not None:
        return 0
    from dray.cluster.services.api_server import serve

    run_service(serve(build_server_options(chosen), _print_started))
    click.echo("stopped", err=True)
    return 0


command.add_command(backup)
command.add_command(restore)
command.add_command(migrate)


def _print_started(started: RunningServer) -> None:
    click.echo(f"serving {started.url} from {started.store}", err=True)
    click.echo("use it with:", err=True)
    click.echo(f"  export KUBECONFIG={started.kubeconfig.resolve()}")
    click.echo("  kubectl get resourceslices", err=True)


command.add_command(server_credentials.command, "credentials")
