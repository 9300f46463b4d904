"""`dray doctor certificates`: shows which certificates expire when, who renews them, and what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dray.cli.commands.services.service_options import DATA_DIR
from dray.cli.exit_codes import EXIT_NO, EXIT_YES
from dray.cli.input.options import output_option
from dray.cli.input.server_connection import run_to_completion, server_options
from dray.cli.output.text import sanitize_text
from dray.errors import InputError

if TYPE_CHECKING:
    from cryptography import x509

    from dray.client.config.client_config import ClientConfig
    from dray.cluster.services.certificate_report import CertificateReport

_DIRECTORY = click.Path(path_type=Path, file_okay=False)
_CONNECT_SECONDS = 5.0


@click.command("certificates")
@click.option(
    "--data-dir",
    type=_DIRECTORY,
    help=f"The data directory of a server or of `dray up`.  [default: {DATA_DIR}, if it exists]",
)
@click.option("--keys", type=_DIRECTORY, help="The directory of keys; otherwise inside --data-dir.")
@click.option("--root", type=_DIRECTORY, help="The directory of a node agent (`dray node --root`).")
@server_options
@output_option
def command(
    data_dir: Path | None, keys: Path | None, root: Path | None, kubeconfig: str, context: str, output: str
) -> int:
    """Show when certificates expire, who renews them, and what to do about those that were not renewed.

    The certificates are those in the data directory of a server, in the root of a node agent, in a
    kubeconfig, and the one that the server of that kubeconfig shows. Exit code 1 when one has expired, was
    not renewed in time, or ends soon and is renewed by nobody.
    """
    from dray.clock import SystemClock

    now = SystemClock().now()
    reports = list(_collect_reports(data_dir, keys, root, now))
    if kubeconfig or context or os.environ.get("KUBECONFIG") or not reports:
        reports += run_to_completion(_report_connection(kubeconfig, context, now))
    if not reports:
        raise InputError("no certificate was found: give --data-dir, --root or --kubeconfig")
    if output == "json":
        from dray.manifests import to_json

        click.echo(to_json([{"certificates": [each.to_document() for each in reports]}]), nl=False)
    else:
        for line in render_reports(reports, now):
            click.echo(sanitize_text(line))
    return EXIT_YES if all(each.state.value == "ok" for each in reports) else EXIT_NO


def _collect_reports(
    data_dir: Path | None, keys: Path | None, root: Path | None, now: datetime
) -> Iterator[CertificateReport]:
    from dray.cluster.services.certificate_report import report_node_directory, report_server_directory

    if data_dir is not None or keys is not None or Path(DATA_DIR).is_dir():
        yield from report_server_directory(data_dir or Path(DATA_DIR), keys, now)
    if root is not None:
        yield from report_node_directory(root, now)


async def _report_connection(kubeconfig: str, context: str, now: datetime) -> list[CertificateReport]:
    """Report the client certificate of a kubeconfig, and the certificate of its server."""
    from dray.client.config.kubeconfig import load_client_config
    from dray.cluster.services.certificate_report import report_client, report_served
    from dray.x509_certificates import parse_certificates

    config = load_client_config(kubeconfig, context)
    credential = await config.credential_provider.get_credential()
    found = parse_certificates(credential.certificate)
    reports = [report_client(found[0], config.source, now)] if found else []
    served = await _fetch_served_certificate(config)
    return [*reports, report_served(served, config.server, now)] if served is not None else reports


async def _fetch_served_certificate(config: ClientConfig) -> x509.Certificate | None:
    """Fetch the certificate that a server shows, whatever it is worth; None without TLS."""
    import asyncio
    import ssl
    from urllib.parse import urlsplit

    from cryptography import x509

    where = urlsplit(config.server)
    if where.scheme != "https":
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(where.hostname, where.port or 443, ssl=context)
    except (OSError, TimeoutError) as refused:
        why = str(refused).lower() or "no answer in time"
        raise InputError(f"{config.server} cannot be reached: {why} (`{config.source}` names it)") from None
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return x509.load_der_x509_certificate(der)


def render_reports(reports: Sequence[CertificateReport], now: datetime) -> Iterator[str]:
    """Render reports as text."""
    for each in reports:
        days = abs(each.expires - now).days
        count = f"{days:,} day{'' if days == 1 else 's'}"
        when = f"{each.expires:%Y-%m-%d %H:%M} UTC"
        expires = f"expired {when}, {count} ago" if each.expires <= now else f"expires {when}, in {count}"
        yield f"{each.state.value}: {each.name}: {expires}; renewed by {each.renewed_by} (`{each.where}`)"
        if each.hint:
            yield f"hint: {each.hint}"
