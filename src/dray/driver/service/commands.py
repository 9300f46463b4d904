"""Commands of a driver's program beside `run`: devices, schema and webhook, and those of `deploying`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import click
import yaml

from dray.api.codec import to_document
from dray.client.connect import connected
from dray.clock import SystemClock
from dray.driver.async_driver import Author
from dray.driver.base import ClassicDriver, Driver
from dray.driver.devices import pools_of
from dray.driver.parameters import json_schema
from dray.driver.publishing.pool_plan import Home, offer_of, planned
from dray.driver.service.cluster_commands import (
    class_driver_of,
    controller_command,
    kubeconfig_option,
    manifests_command,
)
from dray.driver.service.shutdown import until_signal
from dray.driver.webhook.reviews import Checks
from dray.driver.webhook.server import Listening, answering
from dray.telemetry.logs import Log, to_descriptor

_FILE: Final = click.Path(path_type=Path, dir_okay=False)

node_option: Final = click.option(
    "--node",
    envvar="NODE_NAME",
    show_envvar=True,
    default="",
    metavar="NAME",
    help="The node this runs on.",
)


def _devices(driver: Driver) -> click.Command:
    @click.command("devices", help="Show the slices that would be published, as YAML.")
    @node_option
    def show(node: str) -> int:
        driver.node = node = node or "node"
        told = asyncio.run(_told(driver))
        home = Home(driver.name, node, "node")
        plans = [planned(offer_of(pool, node), home, (), None) for pool in pools_of(told, node)]
        documents = [to_document(each) for plan in plans for each in plan.creates]
        click.echo(yaml.safe_dump_all(documents, sort_keys=False), nl=False)
        return 0

    return show


async def _told(driver: Driver) -> list[Any]:
    author = Author(driver)
    try:
        return await author.devices()
    finally:
        author.close()


def _schema(driver: Driver) -> click.Command:
    @click.command("schema", help="Show which parameters are accepted, as JSON Schema.")
    def show() -> int:
        click.echo(json.dumps(json_schema(driver.parameters), indent=2))
        return 0

    return show


def _webhook(driver: Driver) -> click.Command:
    @click.command("webhook", help="Refuse wrong parameters when claims and classes are created.")
    @click.option(
        "--address",
        envvar="DRAY_WEBHOOK_ADDRESS",
        show_envvar=True,
        default="0.0.0.0:8443",
        show_default=True,
        metavar="HOST:PORT",
        help="Where to listen.",
    )
    @click.option("--certificate", type=_FILE, help="The certificate that API servers trust, as PEM.")
    @click.option("--key", type=_FILE, help="Its key.")
    @click.option("--plain", is_flag=True, help="Answer without TLS, behind something that has it.")
    @kubeconfig_option
    def serve(kubeconfig: str, **chosen: Any) -> int:
        log = Log(to_descriptor(2), SystemClock())

        async def work() -> None:
            async with (
                _checks(driver, kubeconfig) as checks,
                answering(checks, Listening(**chosen), log) as url,
            ):
                log.info("answering reviews", driver=driver.name, url=url)
                await asyncio.Event().wait()

        async def both() -> int:
            return await until_signal(work())

        return asyncio.run(both())

    return serve


@asynccontextmanager
async def _checks(driver: Driver, kubeconfig: str) -> AsyncIterator[Checks]:
    """What a webhook checks; a classic driver must ask the server whose a claim is."""
    if not isinstance(driver, ClassicDriver):
        yield Checks(driver.name, driver.parameters)
        return
    of_class = getattr(driver.controller, "class_parameters", None)
    async with connected(kubeconfig) as client:
        yield Checks(driver.name, driver.parameters, of_class, class_driver_of(client))


COMMANDS: Final[tuple[Callable[[Driver], click.Command], ...]] = (
    _devices,
    _schema,
    _webhook,
    manifests_command,
    controller_command,
)
