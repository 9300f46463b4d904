"""`dray guard`: keeps the ledger of devices for any Kubernetes API server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dray.cli.commands.services.service_options import apply_options, build_log, log_options, run_service
from dray.cli.commands.services.standalone import print_started
from dray.cli.exit_codes import EXIT_YES
from dray.cli.input.server_connection import server_options

if TYPE_CHECKING:
    from dray.guard.options import GuardOptions

_OPTIONS = (
    server_options,
    click.option(
        "--listen",
        default="0.0.0.0:8443",
        metavar="HOST:PORT",
        show_default=True,
        help="The address of the webhook.",
    ),
    click.option(
        "--advertise",
        default="",
        envvar="POD_IP",
        metavar="HOST",
        help="The host or address by which other guards reach this one.  [default: that of --listen]",
    ),
    click.option(
        "--name",
        "names",
        multiple=True,
        metavar="NAME",
        help="A host name or address in the certificate, the first is the one that API servers call.  "
        "[default: dray-guard.kube-system.svc]",
    ),
    click.option(
        "--cert-dir",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        help="Take `tls.crt`, `tls.key` and `ca.crt` from this directory, and reload them when they change.  "
        "[default: the guard issues them, and keeps them in a Secret]",
    ),
    click.option(
        "--lease-duration",
        type=click.FloatRange(min=8),
        default=12.0,
        show_default=True,
        metavar="SECONDS",
        help="After a leader has failed for so long, another guard leads.",
    ),
    click.option(
        "--request-timeout",
        type=click.FloatRange(min=1),
        default=65.0,
        show_default=True,
        metavar="SECONDS",
        help="How long a request to the API server can take: its --request-timeout, and some more.",
    ),
    click.option(
        "--max-fenced-claims",
        type=click.IntRange(min=0),
        default=1000,
        show_default=True,
        metavar="NUMBER",
        help="With more claims that wait for an allocation, a new leader waits for --request-timeout instead "
        "of writing to all of them.",
    ),
    click.option(
        "--identity",
        default="",
        metavar="NAME",
        help="The holder of the lease.  [default: the host name and a random number]",
    ),
    click.option(
        "--metrics-address",
        default="",
        metavar="HOST:PORT",
        help="Serve /metrics, /healthz and /readyz at this address.  [default: not served]",
    ),
    log_options,
)


def _guard_options(command: Any) -> Any:
    return apply_options(command, _OPTIONS)


def _build_guard_options(chosen: dict[str, Any]) -> GuardOptions:
    from dray.cluster.services.components import generate_identity
    from dray.guard.options import GuardOptions, build_lease_timing

    defaults = GuardOptions()
    return GuardOptions(
        identity=chosen["identity"] or generate_identity(),
        listen_address=chosen["listen"],
        advertised_host=chosen["advertise"],
        service_names=chosen["names"] or defaults.service_names,
        certificate_directory=chosen["cert_dir"],
        lease_timing=build_lease_timing(chosen["lease_duration"]),
        request_timeout=chosen["request_timeout"],
        max_fenced_claims=chosen["max_fenced_claims"],
        log=build_log(chosen),
    )


@click.command("guard", short_help="Keep devices from being allocated twice, on any Kubernetes API server")
@_guard_options
def command(**chosen: Any) -> int:
    """Refuse allocations of devices that another claim has, whoever writes them.

    A validating admission webhook on the status of resource claims, for API servers that have no ledger: it
    works beside kube-scheduler and any other scheduler. deploy/guard.yaml has the permissions it needs and
    registers it. Of several processes one decides, and the others forward to it. Exit code 2 when the server
    cannot be reached or permissions are missing.
    """
    from dray.client.config.kubeconfig import load_client_config
    from dray.cluster.services.permissions import GUARD_PERMISSIONS, GUARD_SECRET_RULES, GUARD_TLS_RULES
    from dray.cluster.services.standalone import StandaloneOptions, run_standalone
    from dray.guard.options import NAMESPACE
    from dray.guard.service import GuardService

    options = _build_guard_options(chosen)
    permissions = GUARD_PERMISSIONS
    if options.certificate_directory is None:
        permissions = replace(
            permissions,
            rules=permissions.rules + GUARD_TLS_RULES,
            namespaced_rules=((NAMESPACE, GUARD_SECRET_RULES),),
        )
    standalone = StandaloneOptions(
        load_client_config(chosen["kubeconfig"], chosen["context"]),
        permissions,
        metrics_address=chosen["metrics_address"],
        standby_ready=False,
        log=options.log,
    )
    run_service(
        run_standalone(
            standalone,
            lambda client: GuardService(client, options),
            lambda started: print_started(permissions, started),
        )
    )
    click.echo("stopped", err=True)
    return EXIT_YES
