"""Command-line options that several commands of a driver's program share, and the logger they configure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from dray.clock import SystemClock
from dray.telemetry.logs import LogLevel, StructuredLogger, build_descriptor_sink, redirect_library_logs

node_option: Final = click.option(
    "--node",
    envvar="NODE_NAME",
    show_envvar=True,
    default="",
    metavar="NAME",
    help="The node this runs on.",
)

kubeconfig_option: Final = click.option(
    "--kubeconfig",
    envvar="KUBECONFIG",
    show_envvar=True,
    default="",
    metavar="FILE",
    help="How to reach the API server; the usual file or the pod's own account when not given.",
)

metrics_address_option: Final = click.option(
    "--metrics-address",
    envvar="DRAY_METRICS_ADDRESS",
    show_envvar=True,
    default="",
    metavar="HOST:PORT",
    help="Serve metrics at /metrics and health at /healthz and /readyz there; nowhere unless given.",
)

log_level_option: Final = click.option(
    "--log-level",
    envvar="DRAY_LOG_LEVEL",
    type=click.Choice([level.name.lower() for level in LogLevel]),
    default="info",
    show_default=True,
    help="The lowest level that is logged.",
)

log_format_option: Final = click.option(
    "--log-format",
    envvar="DRAY_LOG_FORMAT",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Lines for people or for machines.",
)


def build_logger(options: Mapping[str, Any], *libraries: str) -> StructuredLogger:
    """Build the logger that `--log-level` and `--log-format` ask for, and redirect the logs of libraries."""
    log = StructuredLogger(
        build_descriptor_sink(2),
        SystemClock(),
        level=LogLevel[options["log_level"].upper()],
        json=options["log_format"] == "json",
    )
    redirect_library_logs(log, *libraries)
    return log
