"""The command line: the table of commands, their input and output, and the commands themselves.

This package reads files, prints, and chooses colours, progress bars and exit codes; it must not contain rules
about manifests or devices (see `dray.lint` and `dray.api`). Nothing imports it but the `dray` command itself,
and a command is only imported when it runs, so that `dray --version` stays fast.
"""

from __future__ import annotations

import os
import sys

GRPC_VERBOSITY_VARIABLE = "GRPC_VERBOSITY"
"""gRPC writes to standard error when a driver ends; it reads this variable when it is imported."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    os.environ.setdefault(GRPC_VERBOSITY_VARIABLE, "ERROR")
    from dray.cli.app import run

    sys.exit(run(sys.argv[1:]))


def kubectl() -> None:
    """Run as a kubectl plugin: `kubectl dray explain pod/NAME`."""
    from dray.cli.app import run

    sys.exit(run(sys.argv[1:], "kubectl dray"))
