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

from dray.client.connect import connected
from dray.client.rest_client import Habits
from dray.clock import SystemClock
from dray.driver.base import Driver
from dray.driver.service.commands import COMMANDS, node_option
from dray.driver.service.driver_service import CDI, PLUGINS, REGISTRY, Kit, KitChoices
from dray.driver.service.shutdown import leave, until_signal
from dray.errors import DrayError
from dray.telemetry.endpoint import telling
from dray.telemetry.logs import Level, Log, adopt, to_descriptor

BROKEN: Final = 2
_DIRECTORY: Final = click.Path(path_type=Path, file_okay=False)

Make = Callable[[], Driver]
Option = Callable[[Any], Any]


def _directory(flag: str, name: str, variable: str, default: Path | None, about: str) -> Option:
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


_OPTIONS: Final[tuple[Option, ...]] = (
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
    _directory("--plugins", "plugins", "DRAY_PLUGINS", PLUGINS, "Where the driver's socket is made."),
    _directory(
        "--plugins-registry",
        "registry",
        "DRAY_PLUGINS_REGISTRY",
        REGISTRY,
        "Where the agent looks for drivers.",
    ),
    _directory("--cdi-dir", "cdi", "DRAY_CDI_DIR", CDI, "Where container runtimes look for CDI files."),
    _directory(
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
        type=click.Choice([level.name.lower() for level in Level]),
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


def run(make: Make, arguments: Sequence[str] | None = None) -> NoReturn:
    """Be the program of a driver: read the command line, run, and end the process."""
    leave(main(make, sys.argv[1:] if arguments is None else arguments))


def main(make: Make, arguments: Sequence[str]) -> int:
    """Run a command line; the exit code: 0 well, 2 wrong input, 130 interrupted."""
    try:
        code = command(make).main(list(arguments), standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as wrong:
        return _say(wrong.format_message().rstrip("."))
    except DrayError as wrong:
        return _say(str(wrong))
    except BaseExceptionGroup as several:
        found: BaseException = several
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        if isinstance(found, DrayError):
            return _say(str(found))
        raise found from None
    except (click.Abort, KeyboardInterrupt):
        return 130


def _say(message: str) -> int:
    click.echo(f"error: {' '.join(message.split())}", err=True)
    return BROKEN


class _Commands(click.Group):
    """Commands of which `run` is the one that is meant when none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help")):
            args = ["run", *args]
        return super().parse_args(ctx, args)


def command(make: Make) -> click.Group:
    """The commands of a driver's program."""
    driver = make()
    about = (type(driver).__doc__ or f"The driver {driver.name}.").strip()
    group = _Commands(help=about, context_settings={"help_option_names": ["-h", "--help"]})
    group.add_command(_run_command(driver))
    for add in COMMANDS:
        group.add_command(add(driver))
    return group


# --- run ---


def _run_command(driver: Driver) -> click.Command:
    def work(**chosen: Any) -> int:
        with asyncio.Runner() as runner:
            return runner.run(_run(driver, chosen))

    for option in reversed(_OPTIONS):
        work = option(work)
    about = "Serve the agent of this node and publish devices, until stopped. This is the usual command."
    return click.command("run", help=about)(work)


async def _run(driver: Driver, chosen: dict[str, Any]) -> int:
    if not chosen["node"] and not chosen["no_node"]:
        raise click.UsageError(
            "which node is this? Give `--node NAME` or set NODE_NAME; `--no-node` only publishes devices "
            "that are attached by network"
        )
    log = Log(
        to_descriptor(2),
        SystemClock(),
        level=Level[chosen["log_level"].upper()],
        json=chosen["log_format"] == "json",
    )
    adopt(log, "asyncio", "grpc")
    choices = KitChoices(
        node="" if chosen["no_node"] else chosen["node"],
        plugins=chosen["plugins"],
        registry=chosen["registry"],
        cdi=chosen["cdi"],
        state=chosen["state"],
        instance=chosen["instance"],
        log=log,
    )
    async with connected(chosen["kubeconfig"], habits=Habits(manager=driver.name)) as client:
        kit = Kit(driver, client, choices)
        checks = {"published": lambda: None if kit.ready.is_set() else "devices are not published yet"}
        async with telling(kit.metrics, checks, address=chosen["metrics_address"]) as address:
            if address:
                log.info("telling metrics", address=address)
            return await until_signal(kit.run())
