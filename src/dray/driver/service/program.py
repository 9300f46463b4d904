"""The command line of a driver: `if __name__ == "__main__": run(Gpu)` makes a module a program.

    python -m my_driver --node node-a         runs it (also `run --node node-a`)
    python -m my_driver devices               shows what it would publish
    python -m my_driver schema                shows which parameters it takes
    python -m my_driver manifests             writes what a cluster needs to run it
    python -m my_driver webhook               checks parameters when claims are created

Every option can be set by an environment variable, because that is how pods are configured.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from dray.client.certificate_renewal import renew_while_open
from dray.client.config.client_config import ClientConfig
from dray.client.config.kubeconfig import is_in_pod, load_client_config
from dray.client.connect import open_client
from dray.client.rest_client import ClientOptions
from dray.driver.base import Driver
from dray.driver.service import agent_directories
from dray.driver.service.agent_directories import (
    AgentDirectories,
    GivenDirectories,
    choose_directories,
    find_agent_roots,
)
from dray.driver.service.commands import COMMAND_BUILDERS
from dray.driver.service.driver_service import DriverService, DriverServiceOptions
from dray.driver.service.options import (
    build_logger,
    kubeconfig_option,
    log_format_option,
    log_level_option,
    metrics_address_option,
    node_option,
)
from dray.driver.service.shutdown import exit_process, run_until_signal
from dray.errors import DrayError
from dray.telemetry.endpoint import serve_telemetry
from dray.telemetry.logs import StructuredLogger

EXIT_INVALID_INPUT: Final = 2
_DIRECTORY: Final = click.Path(path_type=Path, file_okay=False)

DriverFactory = Callable[[], Driver]
OptionDecorator = Callable[[Any], Any]


def _build_directory_option(flag: str, name: str, variable: str, about: str) -> OptionDecorator:
    return click.option(
        flag, name, type=_DIRECTORY, envvar=variable, default=None, show_envvar=True, help=about
    )


_OPTIONS: Final[tuple[OptionDecorator, ...]] = (
    node_option,
    click.option(
        "--no-node",
        is_flag=True,
        help="Run on no node: only publish devices that are attached by network.",
    ),
    kubeconfig_option,
    _build_directory_option(
        "--kubelet-dir",
        "root",
        "DRAY_KUBELET_DIR",
        "The root directory of the agent: a kubelet's `--root-dir`, or the `--root` of `dray node`. "
        "[default: the one that is found; /var/lib/kubelet]",
    ),
    _build_directory_option(
        "--plugins",
        "plugins",
        "DRAY_PLUGINS",
        "Where the driver's socket is made.  [default: plugins in --kubelet-dir]",
    ),
    _build_directory_option(
        "--plugins-registry",
        "registry",
        "DRAY_PLUGINS_REGISTRY",
        "Where the agent looks for drivers.  [default: plugins_registry in --kubelet-dir]",
    ),
    _build_directory_option(
        "--cdi-dir",
        "cdi",
        "DRAY_CDI_DIR",
        "Where container runtimes look for CDI files.  [default: /var/run/cdi]",
    ),
    _build_directory_option(
        "--state-dir",
        "state",
        "DRAY_STATE_DIR",
        "Where prepared claims are recorded; beside the socket when not given.",
    ),
    click.option(
        "--instance",
        envvar="POD_UID",
        show_envvar=True,
        default="",
        metavar="ID",
        help="Distinguishes two processes of the driver on one node during a rolling update.",
    ),
    metrics_address_option,
    log_level_option,
    log_format_option,
)


def run(make: DriverFactory, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line of a driver, and end the process."""
    exit_process(main(make, sys.argv[1:] if arguments is None else arguments))


def main(make: DriverFactory, arguments: Sequence[str]) -> int:
    """Run a command line and return the exit code: 0 success, 2 invalid input, 130 interrupted."""
    try:
        code = build_command(make).main(list(arguments), standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as wrong:
        return _print_error(wrong.format_message().rstrip("."))
    except DrayError as wrong:
        return _print_error(str(wrong))
    except BaseExceptionGroup as several:
        first: BaseException = several
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        if isinstance(first, DrayError):
            return _print_error(str(first))
        raise first from None
    except (click.Abort, KeyboardInterrupt):
        return 130


def _print_error(message: str) -> int:
    click.echo(f"error: {' '.join(message.split())}", err=True)
    return EXIT_INVALID_INPUT


class _DefaultRunGroup(click.Group):
    """A group whose default command is `run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help")):
            args = ["run", *args]
        return super().parse_args(ctx, args)


def build_command(make: DriverFactory) -> click.Group:
    """Build the commands of a driver's program."""
    driver = make()
    about = (type(driver).__doc__ or f"The driver {driver.name}.").strip()
    group = _DefaultRunGroup(help=about, context_settings={"help_option_names": ["-h", "--help"]})
    group.add_command(_build_run_command(driver))
    for build in COMMAND_BUILDERS:
        group.add_command(build(driver))
    return group


# --- run ---


def _build_run_command(driver: Driver) -> click.Command:
    def run_command(**options: Any) -> int:
        with asyncio.Runner() as runner:
            return runner.run(_run_driver(driver, options))

    for option in reversed(_OPTIONS):
        run_command = option(run_command)
    about = "Serve the agent of this node and publish devices, until stopped. This is the usual command."
    return click.command("run", help=about)(run_command)


async def _run_driver(driver: Driver, options: dict[str, Any]) -> int:
    if not options["node"] and not options["no_node"]:
        raise click.UsageError(
            "which node is this? Give `--node NAME` or set NODE_NAME; `--no-node` only publishes devices "
            "that are attached by network"
        )
    node = "" if options["no_node"] else options["node"]
    directories, config = _choose_agent(node, options), load_client_config(options["kubeconfig"])
    log = build_logger(options, "asyncio", "grpc")
    _log_places(log, driver, config, directories if node else None)
    service_options = DriverServiceOptions(
        node=node,
        plugins=directories.plugins,
        registry=directories.registry,
        cdi=directories.cdi,
        state=options["state"],
        instance=options["instance"],
        log=log,
    )
    async with open_client(config, ClientOptions(field_manager=driver.name)) as client:
        service = DriverService(driver, client, service_options)
        checks = service.build_health_checks()
        async with (
            renew_while_open(client, config.credential_provider, log, service.metrics),
            serve_telemetry(service.metrics, checks, address=options["metrics_address"]) as address,
        ):
            if address:
                log.info("serving metrics", address=address)
            return await run_until_signal(service.run())


def _choose_agent(node: str, options: dict[str, Any]) -> AgentDirectories:
    """Choose the directories of the agent; in a pod nothing but the kubelet of its node is possible."""
    given = GivenDirectories(*(options[name] for name in ("root", "plugins", "registry", "cdi")))
    search = bool(node) and not is_in_pod(os.environ)
    roots = find_agent_roots(node, Path.cwd(), agent_directories.KUBELET_DIR) if search else ()
    return choose_directories(given, tuple(roots))


def _log_places(
    log: StructuredLogger, driver: Driver, config: ClientConfig, directories: AgentDirectories | None
) -> None:
    """Log which cluster and which agent the driver is about to use, before it touches either."""
    places = {} if directories is None else asdict(directories)
    cluster = {"context": config.context} if config.context else {}
    log.info(
        "starting", driver=driver.name, server=config.server, **cluster, kubeconfig=config.source, **places
    )
