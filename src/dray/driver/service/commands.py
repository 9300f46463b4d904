"""Commands of a driver's program besides `run`: `devices` and `schema`, and the table of all of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

import click
import yaml

from dray.api.codec import to_document
from dray.driver.async_driver import AsyncDriver
from dray.driver.base import Driver
from dray.driver.devices import group_into_pools
from dray.driver.parameters import build_json_schema
from dray.driver.publishing.pool_plan import PublisherIdentity, plan_pool, to_desired_pool
from dray.driver.service.cluster_commands import build_controller_command, build_manifests_command
from dray.driver.service.options import node_option
from dray.driver.service.webhook_command import build_webhook_command


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


COMMAND_BUILDERS: Final[tuple[Callable[[Driver], click.Command], ...]] = (
    _build_devices_command,
    _build_schema_command,
    build_webhook_command,
    build_manifests_command,
    build_controller_command,
)
