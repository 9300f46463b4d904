"""The command `webhook` of a driver's program: serves admission reviews.

Its certificate is given, or it issues one itself and keeps it in a secret.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import click

from dray.client.client import Client
from dray.client.connect import connect
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff
from dray.client.webhooks.certificates import WebhookCertificates, WebhookTls
from dray.clock import SystemClock
from dray.driver.base import ClassicDriver, Driver
from dray.driver.service.cluster_commands import make_class_driver_lookup
from dray.driver.service.options import kubeconfig_option
from dray.driver.service.shutdown import run_until_signal
from dray.driver.webhook.reviews import ParameterReviewConfig
from dray.driver.webhook.server import serve_webhook
from dray.telemetry.logs import StructuredLogger, build_descriptor_sink
from dray.webhook_server import WebhookListenOptions

_FILE: Final = click.Path(path_type=Path, dir_okay=False)
_DIRECTORY: Final = click.Path(path_type=Path, file_okay=False, exists=True)
_ISSUED_FILE: Final = "webhook.pem"

_OPTIONS: Final[tuple[Callable[[Any], Any], ...]] = (
    click.option(
        "--address",
        envvar="DRAY_WEBHOOK_ADDRESS",
        show_envvar=True,
        default="0.0.0.0:8443",
        show_default=True,
        metavar="HOST:PORT",
        help="Where to listen.",
    ),
    click.option("--certificate", type=_FILE, help="The certificate that API servers trust, as PEM."),
    click.option("--key", type=_FILE, help="Its key."),
    click.option("--plain", is_flag=True, help="Serve without TLS, behind a proxy that terminates it."),
    click.option(
        "--tls-secret",
        default="",
        metavar="NAME",
        help="Issue the certificate, and keep it in this secret and valid.",
    ),
    click.option(
        "--tls-service", default="", metavar="NAME", help="The Service by which API servers call the webhook."
    ),
    click.option(
        "--tls-configuration",
        default="",
        metavar="NAME",
        help="The ValidatingWebhookConfiguration that gets the authority of the certificate.",
    ),
    click.option("--tls-dir", type=_DIRECTORY, help="A private directory for the issued certificate."),
    click.option(
        "--namespace",
        envvar="POD_NAMESPACE",
        show_envvar=True,
        default="",
        help="The namespace of the secret and the Service.",
    ),
    kubeconfig_option,
)


def build_webhook_command(driver: Driver) -> click.Command:
    """Build the command that serves the webhook, until stopped."""

    def serve(**options: Any) -> int:
        log = StructuredLogger(build_descriptor_sink(2), SystemClock())

        async def run_to_exit_code() -> int:
            return await run_until_signal(_serve_reviews(driver, options, log))

        return asyncio.run(run_to_exit_code())

    for option in reversed(_OPTIONS):
        serve = option(serve)
    return click.command("webhook", help="Refuse wrong parameters when claims and classes are created.")(
        serve
    )


async def _serve_reviews(driver: Driver, options: dict[str, Any], log: StructuredLogger) -> None:
    certificate, key = options["certificate"], options["key"]
    async with AsyncExitStack() as stack:
        if options["tls_secret"]:
            _check_tls_options(options)
            certificate = key = await stack.enter_async_context(_issue_certificate(options, log))
        config = await stack.enter_async_context(_open_review_config(driver, options["kubeconfig"]))
        listen = WebhookListenOptions(options["address"], certificate, key, options["plain"])
        url = await stack.enter_async_context(serve_webhook(config, listen, log))
        log.info("answering reviews", driver=driver.name, url=url)
        await asyncio.Event().wait()


def _check_tls_options(options: dict[str, Any]) -> None:
    if options["plain"] or options["certificate"] or options["key"]:
        raise click.UsageError(
            "`--tls-secret` issues a certificate: leave `--certificate`, `--key` and `--plain` out"
        )
    for name, flag in (
        ("tls_service", "--tls-service"),
        ("tls_dir", "--tls-dir"),
        ("namespace", "--namespace"),
    ):
        if not options[name]:
            raise click.UsageError(f"`--tls-secret` also needs `{flag}`")


@asynccontextmanager
async def _issue_certificate(options: dict[str, Any], log: StructuredLogger) -> AsyncIterator[Path]:
    """Keep an issued certificate valid while the context is open; yields the file with it and its key."""
    tls = WebhookTls(
        options["namespace"], options["tls_service"], options["tls_secret"], options["tls_configuration"]
    )
    file: Path = options["tls_dir"] / _ISSUED_FILE
    async with connect(options["kubeconfig"]) as client:
        certificates = WebhookCertificates(client, tls, log)
        await _write_first(certificates, file, client, log)
        renewing = asyncio.create_task(certificates.run(file))
        try:
            yield file
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])


async def _write_first(
    certificates: WebhookCertificates, file: Path, client: Client, log: StructuredLogger
) -> None:
    """Write the certificate; wait for a server that does not answer yet, and for rights that are missing."""
    backoff = Backoff(client.options.time_source, maximum=10.0)
    while True:
        try:
            await certificates.write(file)
            return
        except CALL_ERRORS as failed:
            log.warning("no certificate can be issued yet", error=failed)
        await backoff.wait()


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
