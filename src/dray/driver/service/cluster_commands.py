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
from dray.client.connect import connect
from dray.client.errors import NotFoundError
from dray.client.rest_client import ClientOptions
from dray.clock import SystemClock
from dray.driver.base import ClassicDriver, Driver
from dray.driver.classic.controller_service import ClassicControllerOptions, ClassicControllerService
from dray.driver.deploy.manifests import build_manifests
from dray.driver.service.shutdown import run_until_signal
from dray.driver.webhook.reviews import ClassDriverLookup
from dray.telemetry.endpoint import serve_telemetry
from dray.telemetry.logs import LogLevel, StructuredLogger, build_descriptor_sink, redirect_library_logs

_LEVELS: Final = [level.name.lower() for level in LogLevel]

kubeconfig_option: Final = click.option(
    "--kubeconfig",
    envvar="KUBECONFIG",
    show_envvar=True,
    default="",
    metavar="FILE",
    help="How to reach the API server; the usual file or the pod's own account when not given.",
)


def build_manifests_command(driver: Driver) -> click.Command:
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
        documents = build_manifests(driver, image, namespace, ca_bundle=ca_bundle)
        click.echo(yaml.safe_dump_all(documents, sort_keys=False), nl=False)
        return 0

    return show


def build_controller_command(driver: Driver) -> click.Command:
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
            return await run_until_signal(_run_controller(made(), chosen))

        return asyncio.run(work())

    return run


async def _run_controller(controller: Any, options: dict[str, Any]) -> None:
    level, is_json = LogLevel[options["log_level"].upper()], options["log_format"] == "json"
    log = StructuredLogger(build_descriptor_sink(2), SystemClock(), level=level, json=is_json)
    redirect_library_logs(log, "asyncio")
    choices = ClassicControllerOptions(
        elect=options["elect"],
        namespace=options["namespace"],
        inventory=options["inventory"],
        identity=options["identity"] or f"{socket.gethostname()}_{os.getpid()}",
        log=log,
    )
    async with connect(options["kubeconfig"], options=ClientOptions(field_manager=controller.name)) as client:
        service = ClassicControllerService(client, controller, choices)
        async with serve_telemetry(service.metrics, {}, address=options["metrics_address"]):
            log.info("allocating", driver=controller.name)
            await service.run()


def make_class_driver_lookup(client: Client) -> ClassDriverLookup:
    """Says which driver allocates claims of a class, by asking the server."""

    async def ask(name: str) -> str | None:
        try:
            return (await client.get(ResourceClass, name)).driver_name
        except NotFoundError:
            return None

    return ask
