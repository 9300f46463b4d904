"""Commands of a driver's program for those who run clusters: manifests, and a classic controller."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any, Final

import click
import yaml

from dray.api.classic import ResourceClass
from dray.client.client import Client
from dray.client.connect import connected
from dray.client.errors import NotFound
from dray.client.rest_client import Habits
from dray.clock import SystemClock
from dray.driver.base import ClassicDriver, Driver
from dray.driver.classic.controller_service import ControllerChoices, Negotiation
from dray.driver.deploy.manifests import manifests
from dray.driver.service.shutdown import until_signal
from dray.driver.webhook.reviews import ClassDriver
from dray.telemetry.endpoint import telling
from dray.telemetry.logs import Level, Log, adopt, to_descriptor

_LEVELS: Final = [level.name.lower() for level in Level]

kubeconfig_option: Final = click.option(
    "--kubeconfig",
    envvar="KUBECONFIG",
    show_envvar=True,
    default="",
    metavar="FILE",
    help="How to reach the API server; the usual file or the pod's own account when not given.",
)


def manifests_command(driver: Driver) -> click.Command:
    """Prints what `kubectl apply -f -` takes."""

    @click.command("manifests", help="Write what a cluster needs to run this driver, as YAML for kubectl.")
    @click.option("--image", required=True, help="The image whose entry point is this program.")
    @click.option("--namespace", default="", help="Where it runs; a namespace of its own when not given.")
    @click.option(
        "--ca-bundle",
        default="",
        metavar="BASE64",
        help="The authority of the webhook's certificate; left to whoever issues it when not given.",
    )
    def show(image: str, namespace: str, ca_bundle: str) -> int:
        documents = manifests(driver, image, namespace, ca_bundle=ca_bundle)
        click.echo(yaml.safe_dump_all(documents, sort_keys=False), nl=False)
        return 0

    return show


def controller_command(driver: Driver) -> click.Command:
    """Runs the controller of a classic driver; other drivers have none."""
    made = driver.controller if isinstance(driver, ClassicDriver) else None

    @click.command("controller", hidden=made is None, help="Allocate claims of this driver, until stopped.")
    @kubeconfig_option
    @click.option("--elect", is_flag=True, help="Work only while no other of the same driver does.")
    @click.option(
        "--namespace",
        envvar="POD_NAMESPACE",
        show_envvar=True,
        default="kube-system",
        show_default=True,
        help="Where the lease is, and what node parts tell of their nodes.",
    )
    @click.option("--inventory", is_flag=True, help="Read what node parts tell of their nodes.")
    @click.option(
        "--identity", envvar="POD_NAME", show_envvar=True, default="", help="Tells candidates apart."
    )
    @click.option("--metrics-address", envvar="DRAY_METRICS_ADDRESS", default="", metavar="HOST:PORT")
    @click.option("--log-level", envvar="DRAY_LOG_LEVEL", type=click.Choice(_LEVELS), default="info")
    @click.option(
        "--log-format", envvar="DRAY_LOG_FORMAT", type=click.Choice(["text", "json"]), default="text"
    )
    def run(**chosen: Any) -> int:
        if made is None:
            raise click.UsageError(f"`{driver.name}` has no controller: its devices are published")

        async def work() -> int:
            return await until_signal(_control(made(), chosen))

        return asyncio.run(work())

    return run


async def _control(controller: Any, chosen: dict[str, Any]) -> None:
    level, is_json = Level[chosen["log_level"].upper()], chosen["log_format"] == "json"
    log = Log(to_descriptor(2), SystemClock(), level=level, json=is_json)
    adopt(log, "asyncio")
    choices = ControllerChoices(
        elect=chosen["elect"],
        namespace=chosen["namespace"],
        inventory=chosen["inventory"],
        identity=chosen["identity"] or f"{socket.gethostname()}_{os.getpid()}",
        log=log,
    )
    async with connected(chosen["kubeconfig"], habits=Habits(manager=controller.name)) as client:
        service = Negotiation(client, controller, choices)
        async with telling(service.metrics, {}, address=chosen["metrics_address"]):
            log.info("allocating", driver=controller.name)
            await service.run()


def class_driver_of(client: Client) -> ClassDriver:
    """Says which driver allocates claims of a class, by asking the server."""

    async def ask(name: str) -> str | None:
        try:
            return (await client.get(ResourceClass, name)).driver_name
        except NotFound:
            return None

    return ask
