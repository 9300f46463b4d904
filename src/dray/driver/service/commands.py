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
from dray.client.connect import connect
from dray.clock import SystemClock
from dray.driver.async_driver import AsyncDriver
from dray.driver.base import ClassicDriver, Driver
from dray.driver.devices import group_into_pools
from dray.driver.parameters import build_json_schema
from dray.driver.publishing.pool_plan import PublisherIdentity, plan_pool, to_desired_pool
from dray.driver.service.cluster_commands import (
    build_controller_command,
    build_manifests_command,
    kubeconfig_option,
    make_class_driver_lookup,
)
from dray.driver.service.shutdown import run_until_signal
from dray.driver.webhook.reviews import ParameterReviewConfig
from dray.driver.webhook.server import WebhookListenOptions, serve_webhook
from dray.telemetry.logs import StructuredLogger, build_descriptor_sink

_FILE: Final = click.Path(path_type=Path, dir_okay=False)

node_option: Final = click.option(
    "--node",
    envvar="NODE_NAME",
    show_envvar=True,
    default="",
    metavar="NAME",
    help="The node this runs on.",
)


def _build_devices_command(driver: Driver) -> click.Command:
    @click.command("devices", help="Show the slices that would be published, as YAML.")
    @node_option
    def show(node: str) -> int:
        driver.node = node = node or "node"
        told = asyncio.run(_list_devices(driver))
        home = PublisherIdentity(driver.name, node, "node")
        plans = [
            plan_pool(to_desired_pool(pool, node), home, (), None) for pool in group_into_pools(told, node)
        ]
        documents = [to_document(each) for plan in plans for each in plan.creates]
        click.echo(yaml.safe_dump_all(documents, sort_keys=False), nl=False)
        return 0

    return show


async def _list_devices(driver: Driver) -> list[Any]:
    author = AsyncDriver(driver)
    try:
        return await author.list_devices()
    finally:
        author.close()


def _build_schema_command(driver: Driver) -> click.Command:
    @click.command("schema", help="Show which parameters are accepted, as JSON Schema.")
    def show() -> int:
        click.echo(json.dumps(build_json_schema(driver.parameters), indent=2))
        return 0

    return show


def _build_webhook_command(driver: Driver) -> click.Command:
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
        log = StructuredLogger(build_descriptor_sink(2), SystemClock())

        async def work() -> None:
            async with (
                _open_review_config(driver, kubeconfig) as checks,
                serve_webhook(checks, WebhookListenOptions(**chosen), log) as url,
            ):
                log.info("answering reviews", driver=driver.name, url=url)
                await asyncio.Event().wait()

        async def both() -> int:
            return await run_until_signal(work())

        return asyncio.run(both())

    return serve


@asynccontextmanager
async def _open_review_config(driver: Driver, kubeconfig: str) -> AsyncIterator[ParameterReviewConfig]:
    """What a webhook checks; a classic driver must ask the server whose a claim is."""
    if not isinstance(driver, ClassicDriver):
        yield ParameterReviewConfig(driver.name, driver.parameters)
        return
    of_class = getattr(driver.controller, "class_parameters", None)
    async with connect(kubeconfig) as client:
        yield ParameterReviewConfig(
            driver.name, driver.parameters, of_class, make_class_driver_lookup(client)
        )


COMMAND_BUILDERS: Final[tuple[Callable[[Driver], click.Command], ...]] = (
    _build_devices_command,
    _build_schema_command,
    _build_webhook_command,
    build_manifests_command,
    build_controller_command,
)
