"""The program around a driver: `if __name__ == "__main__": run(Gpu)` makes a module a command.

    python -m my_driver --node node-a         runs it (also `run --node node-a`)
    python -m my_driver devices               shows what it would publish
    python -m my_driver schema                shows which parameters it takes
    python -m my_driver manifests             writes what a cluster needs to run it
    python -m my_driver webhook               checks parameters when claims are created

Every option has a variable of the environment beside it, because that is how pods are configured.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from dray.client.connect import connect
from dray.client.rest_client import ClientOptions
from dray.clock import SystemClock
from dray.driver.base import Driver
from dray.driver.service.commands import COMMAND_BUILDERS, node_option
from dray.driver.service.driver_service import (
    CDI_DIR,
    PLUGINS_DIR,
    PLUGINS_REGISTRY_DIR,
    DriverService,
    DriverServiceOptions,
)
from dray.driver.service.shutdown import exit_process, run_until_signal
from dray.errors import DrayError
from dray.telemetry.endpoint import serve_telemetry
from dray.telemetry.logs import LogLevel, StructuredLogger, build_descriptor_sink, redirect_library_logs

EXIT_INVALID_INPUT: Final = 2
_DIRECTORY: Final = click.Path(path_type=Path, file_okay=False)

DriverFactory = Callable[[], Driver]
OptionDecorator = Callable[[Any], Any]


def _build_directory_option(
    flag: str, name: str, variable: str, default: Path | None, about: str
) -> OptionDecorator:
    return click.option(
        flag,
        name,
        type=_DIRECTORY,
        envvar=variable,
        default=default,
        show_default=default is not None,
        show_envvar=True,
        help=about,
    )


_OPTIONS: Final[tuple[OptionDecorator, ...]] = (
    node_option,
    click.option(
        "--no-node",
        is_flag=True,
        help="Run on no node: only publish devices that are attached by network.",
    ),
    click.option(
        "--kubeconfig",
        envvar="KUBECONFIG",
        show_envvar=True,
        default="",
        metavar="FILE",
        help="How to reach the API server; the usual file or the pod's own account when not given.",
    ),
    _build_directory_option(
        "--plugins", "plugins", "DRAY_PLUGINS", PLUGINS_DIR, "Where the driver's socket is made."
    ),
    _build_directory_option(
        "--plugins-registry",
        "registry",
        "DRAY_PLUGINS_REGISTRY",
        PLUGINS_REGISTRY_DIR,
        "Where the agent looks for drivers.",
    ),
    _build_directory_option(
        "--cdi-dir", "cdi", "DRAY_CDI_DIR", CDI_DIR, "Where container runtimes look for CDI files."
    ),
    _build_directory_option(
        "--state-dir",
        "state",
        "DRAY_STATE_DIR",
        None,
        "Where prepared claims are written down; beside the socket when not given.",
    ),
    click.option(
        "--instance",
        envvar="POD_UID",
        show_envvar=True,
        default="",
        metavar="ID",
        help="Tells two processes of the driver on one node apart during a rolling update.",
    ),
    click.option(
        "--metrics-address",
        envvar="DRAY_METRICS_ADDRESS",
        show_envvar=True,
        default="",
        metavar="HOST:PORT",
        help="Tell metrics at /metrics and health at /healthz and /readyz there; nowhere unless given.",
    ),
    click.option(
        "--log-level",
        envvar="DRAY_LOG_LEVEL",
        type=click.Choice([level.name.lower() for level in LogLevel]),
        default="info",
        show_default=True,
        help="How much is told.",
    ),
    click.option(
        "--log-format",
        envvar="DRAY_LOG_FORMAT",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Lines for people or for machines.",
    ),
)


def run(make: DriverFactory, arguments: Sequence[str] | None = None) -> NoReturn:
    """Be the program of a driver: read the command line, run, and end the process."""
    exit_process(main(make, sys.argv[1:] if arguments is None else arguments))


def main(make: DriverFactory, arguments: Sequence[str]) -> int:
    """Run a command line; the exit code: 0 well, 2 wrong input, 130 interrupted."""
    try:
        code = build_command(make).main(list(arguments), standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as wrong:
        return _print_error(wrong.format_message().rstrip("."))
    except DrayError as wrong:
        return _print_error(str(wrong))
    except BaseExceptionGroup as several:
        found: BaseException = several
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        if isinstance(found, DrayError):
            return _print_error(str(found))
        raise found from None
    except (click.Abort, KeyboardInterrupt):
        return 130


def _print_error(message: str) -> int:
    click.echo(f"error: {' '.join(message.split())}", err=True)
    return EXIT_INVALID_INPUT


class _DefaultRunGroup(click.Group):
    """Commands of which `run` is the one that is meant when none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help")):
            args = ["run", *args]
        return super().parse_args(ctx, args)


def build_command(make: DriverFactory) -> click.Group:
    """The commands of a driver's program."""
    driver = make()
    about = (type(driver).__doc__ or f"The driver {driver.name}.").strip()
    group = _DefaultRunGroup(help=about, context_settings={"help_option_names": ["-h", "--help"]})
    group.add_command(_build_run_command(driver))
    for add in COMMAND_BUILDERS:
        group.add_command(add(driver))
    return group


# --- run ---


def _build_run_command(driver: Driver) -> click.Command:
    def work(**chosen: Any) -> int:
        with asyncio.Runner() as runner:
            return runner.run(_run_driver(driver, chosen))

    for option in reversed(_OPTIONS):
        work = option(work)
    about = "Serve the agent of this node and publish devices, until stopped. This is the usual command."
    return click.command("run", help=about)(work)


async def _run_driver(driver: Driver, options: dict[str, Any]) -> int:
    if not options["node"] and not options["no_node"]:
        raise click.UsageError(
            "which node is this? Give `--node NAME` or set NODE_NAME; `--no-node` only publishes devices "
            "that are attached by network"
        )
    log = StructuredLogger(
        build_descriptor_sink(2),
        SystemClock(),
        level=LogLevel[options["log_level"].upper()],
        json=options["log_format"] == "json",
    )
    redirect_library_logs(log, "asyncio", "grpc")
    choices = DriverServiceOptions(
        node="" if options["no_node"] else options["node"],
        plugins=options["plugins"],
        registry=options["registry"],
        cdi=options["cdi"],
        state=options["state"],
        instance=options["instance"],
        log=log,
    )
    async with connect(options["kubeconfig"], options=ClientOptions(field_manager=driver.name)) as client:
        kit = DriverService(driver, client, choices)
        checks = {"published": lambda: None if kit.ready.is_set() else "devices are not published yet"}
        async with serve_telemetry(kit.metrics, checks, address=options["metrics_address"]) as address:
            if address:
                log.info("telling metrics", address=address)
            return await run_until_signal(kit.run())
