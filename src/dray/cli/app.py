"""The entry point of the command line: the table of commands, and how every run ends.

Exit codes: 0 yes, 1 no, 2 invalid input (also: a wrong command line), 3 a bug in dray, 130 interrupted, 141
nobody reads the output any more. Every error is one line on standard error; never a traceback, unless
`DRAY_DEBUG` is set.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import click

from dray import __version__
from dray.cli.exit_codes import (
    EXIT_BROKEN_PIPE,
    EXIT_INTERNAL_ERROR,
    EXIT_INTERRUPTED,
    EXIT_INVALID_INPUT,
    EXIT_YES,
)

COMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "up": ("dray.cli.commands.services.up", "Run a whole cluster in this terminal"),
        "status": ("dray.cli.commands.operations.status", "Show nodes, pods and used devices"),
        "allocate": (
            "dray.cli.commands.manifests.allocate",
            "Allocate devices to pending pods and claims",
        ),
        "explain": (
            "dray.cli.commands.explain.command",
            "Explain which devices a pod gets, or why it gets none",
        ),
        "free": ("dray.cli.commands.simulation.free", "Show the devices that can be had now"),
        "server": ("dray.cli.commands.services.server", "Serve the Kubernetes API for devices"),
        "scheduler": (
            "dray.cli.commands.services.scheduler",
            "Schedule pods with claims, for any Kubernetes API server",
        ),
        "controller": (
            "dray.cli.commands.services.controller",
            "Create and release claims, for any Kubernetes API server",
        ),
        "guard": (
            "dray.cli.commands.services.guard",
            "Keep devices from being allocated twice, on any Kubernetes API server",
        ),
        "driver": (
            "dray.cli.commands.drivers.driver",
            "Start a new driver, and check one for conformance",
        ),
        "node": (
            "dray.cli.commands.services.node",
            "Run the agent of a node",
        ),
        "doctor": (
            "dray.cli.commands.operations.doctor",
            "Verify the ledger, the audit log and nodes, and repair the ledger",
        ),
        "fence": (
            "dray.cli.commands.operations.fence",
            "Declare a lost node out of service and free its devices",
        ),
        "unfence": ("dray.cli.commands.operations.unfence", "Take a fenced node back into service"),
        "lint": ("dray.cli.commands.manifests.lint", "Find errors in manifests"),
        "convert": ("dray.cli.commands.manifests.convert", "Convert manifests to another API version"),
        "cel": ("dray.cli.commands.manifests.cel", "Evaluate a CEL selector on devices"),
        "verify": (
            "dray.cli.commands.manifests.verify",
            "Verify allocations with independent code",
        ),
        "vectors": ("dray.cli.commands.development.vectors", "Compare the allocator with recorded results"),
        "bench": ("dray.cli.commands.development.bench", "Benchmark the allocator on scenarios"),
        "gates": ("dray.cli.commands.operations.gates", "Show the feature gates"),
        "reference": (
            "dray.cli.commands.development.reference",
            "Write the reference pages of the documentation",
        ),
    }
)
"""Every command: the module whose `command` it is, and its description in a line."""


class _OutputClosedError(Exception):
    """Standard output is closed."""


class _LazyGroup(click.Group):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        row = COMMANDS.get(name)
        if row is None:
            return None
        command: click.Command = importlib.import_module(row[0]).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"no such command `{args[0]}`{_suggest_match(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _OutputClosedError from None  # click would exit here, with its own exit code

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
    epilog="Exit codes: 0 yes, 1 no, 2 invalid input. Data goes to stdout, messages to stderr.",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def dray() -> None:
    """Dynamic Resource Allocation: allocate devices, explain the answer, lint and convert manifests."""


def run(arguments: Sequence[str], name: str = "dray") -> int:
    """Run a command line; return the exit code."""
    try:
        code = dray.main(list(arguments), prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else EXIT_YES
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return EXIT_INVALID_INPUT
    except click.ClickException as error:
        return _print_error(_describe_click_error(error), EXIT_INVALID_INPUT)
    except (click.Abort, KeyboardInterrupt):
        return _print_error("interrupted", EXIT_INTERRUPTED)
    except (BrokenPipeError, _OutputClosedError):
        _discard_output()
        return EXIT_BROKEN_PIPE
    except Exception as error:
        return _report_exception(error)


def _report_exception(error: Exception) -> int:
    from dray.errors import DrayError

    if isinstance(error, DrayError):
        return _print_error(str(error), EXIT_INVALID_INPUT)
    if os.environ.get("DRAY_DEBUG"):
        raise error
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return _print_error(f"a fault of dray itself: {what} (DRAY_DEBUG=1 shows where)", EXIT_INTERNAL_ERROR)


def _print_error(message: str, code: int) -> int:
    click.echo(f"dray: {' '.join(message.split())}", err=True)
    return code


def _describe_click_error(error: click.ClickException) -> str:
    """Describe an error in the command line, in a line."""
    if isinstance(error, click.NoSuchOption):
        return (
            "no such option "
            f"`{error.option_name}`{_suggest_match(error.option_name, error.possibilities or ())}"
        )
    message = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    if isinstance(error, click.UsageError) and context is not None and "`" not in message:
        message += f"; see `{context.command_path} --help`"
    return message[:1].lower() + message[1:]


def _suggest_match(word: str, known: Sequence[str] | Mapping[str, object]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def _discard_output() -> None:
    """Redirect standard output to the null device, so that buffered output is no error at exit."""
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, sys.stdout.fileno())
    os.close(null_device)
