"""The command line: parse, call, render, one file per command.

Reading files, printing, colours, progress and exit codes live here; what is true about manifests does not
(see `dray.lint` and `dray.api`). Nothing imports this package but the `dray` command itself, and a command is
only imported when it runs, so that asking for the version costs nothing.
"""

from __future__ import annotations

import os
import sys

GRPC_VERBOSITY_VARIABLE = "GRPC_VERBOSITY"
"""gRPC tells standard error about each driver that ends; it reads this when it is imported."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    os.environ.setdefault(GRPC_VERBOSITY_VARIABLE, "ERROR")
    from dray.cli.app import run

    sys.exit(run(sys.argv[1:]))


def kubectl() -> None:
    """The same as a plugin: `kubectl dray explain pod/NAME`."""
    from dray.cli.app import run

    sys.exit(run(sys.argv[1:], "kubectl dray"))
