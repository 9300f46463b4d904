"""`dray server`: an API server in this terminal, and copies of what it keeps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dray.cli import credentials
from dray.cli.options import gates_option
from dray.cli.server_copies import backup, restore

if TYPE_CHECKING:
    from dray.cluster.control import Started

DATA_DIR = "dray-data"


@click.group(
    invoke_without_command=True,
    short_help="Serve the Kubernetes API for devices",
    epilog="`dray server backup` and `dray server restore` copy what the server keeps.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=DATA_DIR,
    show_default=True,
    help="Where the store, the keys and the kubeconfig are.",
)
@click.option(
    "--store",
    default="",
    metavar="ADDRESS",
    help="Keep objects elsewhere: `etcd://HOST:PORT[,...]/PREFIX`, a file, or `memory:`.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=6443,
    show_default=True,
    help="The port to listen on; 0 takes any that is free.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Another host name or address by which clients reach the server.",
)
@click.option(
    "--keys",
    type=click.Path(path_type=Path, file_okay=False),
    help="The directory of keys, for servers that share a store; otherwise inside --data-dir.",
)
@click.option(
    "--token-file",
    "tokens",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Static tokens: lines of `token,user,uid,groups`.",
)
@click.option("--anonymous", is_flag=True, help="Let requests without credentials in, as `system:anonymous`.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="How much is told; `debug` has a line for every request.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Lines for people or for machines.",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a limit, for example `max-watches=2000`; docs/reference/server-limits.md has them all.",
)
@gates_option
@click.pass_context
def command(context: click.Context, /, **chosen: Any) -> int:
    """Serve the Kubernetes API: devices, claims, pods and everything around them.

    Speaks to kubectl and every Kubernetes client over TLS. Writes a kubeconfig for an administrator into the
    data directory and prints how to use it. Ctrl-C stops it; everything acknowledged is kept.
    """
    if context.invoked_subcommand is not None:
        return 0
    from dray.clock import SystemClock
    from dray.cluster.control import ServerOptions, serve
    from dray.server.limits import parsed
    from dray.telemetry.logs import Level, Log, adopt, to_descriptor

    directory, level, form = chosen.pop("data_dir"), chosen.pop("log_level"), chosen.pop("log_format")
    log = Log(to_descriptor(2), SystemClock(), level=Level[level.upper()], json=form == "json")
    adopt(log, "uvicorn", "uvicorn.error", "asyncio")
    limits = parsed(chosen.pop("limits"))
    run(serve(ServerOptions(directory, log=log, limits=limits, **chosen), _tell))
    click.echo("stopped", err=True)
    return 0


command.add_command(backup)
command.add_command(restore)


def run(work: Any) -> None:
    """Run a service in this thread, with the fastest event loop there is."""
    import asyncio

    try:
        import uvloop
    except ImportError:  # an optional speed-up
        factory: Any = None
    else:
        factory = uvloop.new_event_loop
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(work)
    except BaseExceptionGroup as several:
        raise _first(several) from None


def _first(several: BaseExceptionGroup[BaseException]) -> BaseException:
    """What went wrong, out of the groups that task groups wrap it in."""
    found: BaseException = several
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def _tell(started: Started) -> None:
    click.echo(f"serving {started.url} from {started.store}", err=True)
    click.echo("use it with:", err=True)
    click.echo(f"  export KUBECONFIG={started.kubeconfig.resolve()}")
    click.echo("  kubectl get resourceslices", err=True)


command.add_command(credentials.command, "credentials")
