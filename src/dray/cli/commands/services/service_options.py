"""Options, log and event loop of the commands that run services."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from dray.cluster.services.api_server import ServerProcessOptions
    from dray.telemetry.logs import StructuredLogger

F = TypeVar("F", bound=Callable[..., Any])
DATA_DIR = "dray-data"

_DIRECTORY = click.Path(path_type=Path, file_okay=False)

_SERVING_OPTIONS = (
    click.option(
        "--data-dir",
        type=_DIRECTORY,
        default=DATA_DIR,
        show_default=True,
        help="The directory of the store, the keys and the kubeconfig.",
    ),
    click.option(
        "--store",
        default="",
        metavar="ADDRESS",
        help="Store objects elsewhere: `etcd://HOST:PORT[,...]/PREFIX`, a file, or `memory:`.",
    ),
    click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on."),
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=6443,
        show_default=True,
        help="The port to listen on; 0 takes any free one.",
    ),
    click.option(
        "--name",
        "names",
        multiple=True,
        metavar="NAME",
        help="Another host name or address by which clients reach the server.",
    ),
    click.option(
        "--keys",
        type=_DIRECTORY,
        help="The directory of keys, for servers that share a store; otherwise inside --data-dir.",
    ),
    click.option(
        "--token-file",
        "tokens",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Static tokens: lines of `token,user,uid,groups`.",
    ),
    click.option(
        "--anonymous", is_flag=True, help="Accept requests without credentials, as `system:anonymous`."
    ),
    click.option(
        "--limit",
        "limits",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set a limit, for example `max-watches=2000`; docs/reference/server-limits.md has them all.",
    ),
    click.option(
        "--webhook-service",
        "webhook_services",
        multiple=True,
        metavar="NAMESPACE/NAME=HOST:PORT",
        help="The address of the service of an admission webhook: there is no cluster network to find it in.",
    ),
)

_LOG_FORMAT_OPTION = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Log lines for people or for programs.",
)


def _build_log_level_option(default: str) -> Callable[[F], F]:
    return click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default=default,
        show_default=True,
        help="How much is logged; `debug` has a line for every request.",
    )


def apply_options(command: F, options: Sequence[Callable[[F], F]]) -> F:
    """Add options to a command, shown in their order."""
    for option in reversed(options):
        command = option(command)
    return command


def serving_options(command: F) -> F:
    """Add the options of an API server."""
    return apply_options(command, _SERVING_OPTIONS)


def log_options(command: F) -> F:
    """Add `--log-level` and `--log-format`."""
    return apply_options(command, (_build_log_level_option("info"), _LOG_FORMAT_OPTION))


def quiet_log_options(command: F) -> F:
    """Add the log options for a command that prints activity itself: only warnings by default."""
    return apply_options(command, (_build_log_level_option("warning"), _LOG_FORMAT_OPTION))


def build_log(chosen: dict[str, Any]) -> StructuredLogger:
    """Build the log on standard error; remove its options from `chosen`."""
    from dray.clock import SystemClock
    from dray.telemetry.logs import LogLevel, StructuredLogger, build_descriptor_sink, redirect_library_logs

    level, log_format = chosen.pop("log_level"), chosen.pop("log_format")
    log = StructuredLogger(
        build_descriptor_sink(2), SystemClock(), level=LogLevel[level.upper()], json=log_format == "json"
    )
    redirect_library_logs(log, "uvicorn", "uvicorn.error", "asyncio")
    return log


def build_server_options(chosen: dict[str, Any]) -> ServerProcessOptions:
    """Build the options of the server, with its gates and its log."""
    from dray.cluster.services.api_server import ServerProcessOptions
    from dray.server.admission.webhooks.service_addresses import parse_addresses
    from dray.server.http.limits import parse_limits

    log = build_log(chosen)
    directory, limits = chosen.pop("data_dir"), parse_limits(chosen.pop("limits"))
    services = parse_addresses(chosen.pop("webhook_services", ()))
    return ServerProcessOptions(directory, log=log, limits=limits, webhook_services=services, **chosen)


def run_service(work: Coroutine[Any, Any, None]) -> None:
    """Run a service in this thread, with the fastest event loop available."""
    from dray.cluster.services.process_setup import build_runner

    try:
        with build_runner() as runner:
            runner.run(work)
    except BaseExceptionGroup as several:
        raise _unwrap_exception_group(several) from None


def _unwrap_exception_group(several: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error inside nested exception groups."""
    found: BaseException = several
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
