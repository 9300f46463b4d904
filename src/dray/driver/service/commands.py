"""Commands of a driver's program besides `run`: `devices`, `schema`, `webhook` and the cluster commands."""

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
    make_class_driver_lookup,
)
from dray.driver.service.options import kubeconfig_option, node_option
from dray.driver.service.shutdown import run_until_signal
from dray.driver.webhook.reviews import ParameterReviewConfig
from dray.driver.webhook.server import serve_webhook
from dray.telemetry.logs import StructuredLogger, build_descriptor_sink
from dray.webhook_server import WebhookListenOptions

_FILE: Final = click.Path(path_type=Path, dir_okay=False)


def _build_devices_command(driver: Driver) -> click.Command:
    @click.command("devices", help="Show the slices that would be published, as YAML.")
    @node_option
    def show(node: str) -> int:
        driver.node = node = node or "node"
        pools = group_into_pools(asyncio.run(_list_devices(driver)), node)
        identity = PublisherIdentity(driver.name, node, "node")
        plans = [plan_pool(to_desired_pool(pool, node), identity, (), None) for pool in pools]
        documents = [to_document(each) for plan in plans for each in plan.creates]
        click.echo(yaml.safe_dump_all(documents, sort_keys=False), nl=False)
        return 0

    return show


async def _list_devices(driver: Driver) -> list[Any]:
    async_driver = AsyncDriver(driver)
    try:
        return await async_driver.list_devices()
    finally:
        async_driver.close()


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
    @click.option("--plain", is_flag=True, help="Serve without TLS, behind a proxy that terminates it.")
    @kubeconfig_option
    def serve(kubeconfig: str, **options: Any) -> int:
        log = StructuredLogger(build_descriptor_sink(2), SystemClock())

        async def serve_reviews() -> None:
            async with (
                _open_review_config(driver, kubeconfig) as config,
                serve_webhook(config, WebhookListenOptions(**options), log) as url,
            ):
                log.info("answering reviews", driver=driver.name, url=url)
                await asyncio.Event().wait()

        async def run_to_exit_code() -> int:
            return await run_until_signal(serve_reviews())

        return asyncio.run(run_to_exit_code())

    return serve


@asynccontextmanager
async def _open_review_config(driver: Driver, kubeconfig: str) -> AsyncIterator[ParameterReviewConfig]:
    """Build the review configuration; that of a classic driver needs a client to look up classes."""
    if not isinstance(driver, ClassicDriver):
        yield ParameterReviewConfig(driver.name, driver.parameters)
        return
    class_parameters = getattr(driver.controller, "class_parameters", None)
    async with connect(kubeconfig) as client:
        yield ParameterReviewConfig(
            driver.name, driver.parameters, class_parameters, make_class_driver_lookup(client)
        )


COMMAND_BUILDERS: Final[tuple[Callable[[Driver], click.Command], ...]] = (
    _build_devices_command,
    _build_schema_command,
    _build_webhook_command,
    build_manifests_command,
    build_controller_command,
)
