"""Commands of a driver's program for cluster administrators: `manifests` and the classic `controller`."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import PurePosixPath
from typing import Any, Final

import click
import yaml

from dray.api.classic import ResourceClass
from dray.client.certificate_renewal import renew_while_open
from dray.client.client import Client
from dray.client.config.kubeconfig import load_client_config
from dray.client.connect import open_client
from dray.client.errors import NotFoundError
from dray.client.rest_client import ClientOptions
from dray.driver.base import ClassicDriver, Driver
from dray.driver.classic.controller_service import ClassicControllerOptions, ClassicControllerService
from dray.driver.deploy.manifests import build_manifests
from dray.driver.deploy.objects import CDI_DIR, KUBELET_DIR, DeploymentTarget
from dray.driver.service.options import (
    build_logger,
    kubeconfig_option,
    log_format_option,
    log_level_option,
    metrics_address_option,
)
from dray.driver.service.shutdown import run_until_signal
from dray.driver.webhook.reviews import ClassDriverLookup
from dray.telemetry.endpoint import serve_telemetry

_HOST_PATH: Final = click.Path(path_type=PurePosixPath)
_kubelet_dir_option = click.option(
    "--kubelet-dir",
    type=_HOST_PATH,
    default=KUBELET_DIR,
    show_default=True,
    help="The kubelet's root directory on the nodes (its `--root-dir`).",
)
_cdi_dir_option = click.option(
    "--cdi-dir",
    type=_HOST_PATH,
    default=CDI_DIR,
    show_default=True,
    help="Where container runtimes look for CDI files on the nodes.",
)


def build_manifests_command(driver: Driver) -> click.Command:
    """Build the command that prints manifests for `kubectl apply -f -`."""

    @click.command("manifests", help="Write what a cluster needs to run this driver, as YAML for kubectl.")
    @click.option("--image", required=True, help="The image whose entry point is this program.")
    @click.option("--namespace", default="", help="Where it runs; a namespace of its own when not given.")
    @_kubelet_dir_option
    @_cdi_dir_option
    @click.option(
        "--webhook-certificate",
        type=click.Choice(["self", "issuer"]),
        default="self",
        show_default=True,
        help="Who issues the webhook's certificate: the webhook itself, or an issuer of the cluster, which "
        "puts it into the secret that the manifests name.",
    )
    @click.option(
        "--ca-bundle",
        default="",
        metavar="BASE64",
        help="The authority of the issuer's certificate; left to the issuer when not given.",
    )
    def show(webhook_certificate: str, **options: Any) -> int:
        issues_certificate = webhook_certificate == "self" and not options["ca_bundle"]
        target = DeploymentTarget(issues_certificate=issues_certificate, **options)
        documents = build_manifests(driver, target)
        click.echo(yaml.safe_dump_all(documents, sort_keys=False), nl=False)
        return 0

    return show


def build_controller_command(driver: Driver) -> click.Command:
    """Build the command that runs the controller of a classic driver; other drivers have none."""
    controller_class = driver.controller if isinstance(driver, ClassicDriver) else None

    @click.command(
        "controller", hidden=controller_class is None, help="Allocate claims of this driver, until stopped."
    )
    @kubeconfig_option
    @click.option("--elect", is_flag=True, help="Work only while holding the driver's leader lease.")
    @click.option(
        "--namespace",
        envvar="POD_NAMESPACE",
        show_envvar=True,
        default="kube-system",
        show_default=True,
        help="The namespace of the lease and of the inventory of nodes.",
    )
    @click.option("--inventory", is_flag=True, help="Read the inventory that drivers publish on their nodes.")
    @click.option(
        "--identity",
        envvar="POD_NAME",
        show_envvar=True,
        default="",
        help="The candidate's name in the lease.",
    )
    @metrics_address_option
    @log_level_option
    @log_format_option
    def run(**options: Any) -> int:
        if controller_class is None:
            raise click.UsageError(f"`{driver.name}` has no controller: its devices are published")

        async def run_to_exit_code() -> int:
            return await run_until_signal(_run_controller(controller_class(), options))

        return asyncio.run(run_to_exit_code())

    return run


async def _run_controller(controller: Any, options: dict[str, Any]) -> None:
    log = build_logger(options, "asyncio")
    service_options = ClassicControllerOptions(
        elect=options["elect"],
        namespace=options["namespace"],
        inventory=options["inventory"],
        identity=options["identity"] or f"{socket.gethostname()}_{os.getpid()}",
        log=log,
    )
    config = load_client_config(options["kubeconfig"])
    async with open_client(config, ClientOptions(field_manager=controller.name)) as client:
        service = ClassicControllerService(client, controller, service_options)
        async with (
            renew_while_open(client, config.credential_provider, log, service.metrics),
            serve_telemetry(service.metrics, {}, address=options["metrics_address"]),
        ):
            log.info("allocating", driver=controller.name)
            await service.run()


def make_class_driver_lookup(client: Client) -> ClassDriverLookup:
    """Make a lookup that reads the driver of a class from the server."""

    async def look_up(name: str) -> str | None:
        try:
            return (await client.get(ResourceClass, name)).driver_name
        except NotFoundError:
            return None

    return look_up
