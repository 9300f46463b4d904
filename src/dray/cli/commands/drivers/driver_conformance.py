"""`dray driver conformance`: checks a driver, in whatever language, against what kubelets and agents
expect.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dray.cli.exit_codes import EXIT_NO, EXIT_YES
from dray.cli.input.server_connection import connect_to_server, run_to_completion, server_options
from dray.cli.output.progress import show_progress
from dray.cli.output.tables import render_table
from dray.cli.output.text import sanitize_text
from dray.errors import InputError

if TYPE_CHECKING:
    from dray.driver.conformance import ConformanceOptions, ConformanceReport

_RESTART_TIMEOUT_SECONDS = 60.0

RestartDriver = Callable[[], Awaitable[None]]


@click.command("conformance")
@click.argument("socket_path", metavar="SOCKET", type=click.Path(path_type=Path))
@server_options
@click.option("--node", default="", metavar="NAME", help="The node whose driver this is.")
@click.option(
    "--cdi-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Where the driver writes CDI files; without it they are not checked.",
)
@click.option("--restart", default="", metavar="COMMAND", help="A shell command that restarts the driver.")
@click.option(
    "--supervised",
    is_flag=True,
    help="A supervisor restarts the driver: kill it (SIGKILL) to restart it.",
)
@click.option(
    "--driver",
    "name",
    default="",
    metavar="NAME",
    help="The driver's name, for a SOCKET without registration.",
)
@click.option(
    "--parameters",
    default="",
    metavar="JSON",
    help="Opaque parameters for every claim, when the driver needs some; `@FILE` reads a file.",
)
@click.option(
    "--class", "class_name", default="", metavar="NAME", help="The ResourceClass of classic claims."
)
@click.option("--only", multiple=True, metavar="CHECK", help="Only this check; may be given several times.")
@click.option("--strict", is_flag=True, help="Advised checks count for the exit code, too.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(socket_path: Path, kubeconfig: str, context: str, only: tuple[str, ...], **given: Any) -> int:
    """Check the driver at SOCKET, its registration socket or the one it serves.

    Creates claims in the namespace `dray-conformance`, allocates free devices of the driver to them, and
    calls the driver like an agent: once, twice, too late, concurrently, and after a restart. It needs the
    permissions of an administrator, and must run on the driver's node. It removes everything it creates. For
    a driver of classic claims (KEP-3063), its controller must run, and --class must name a class of it.

    Required checks are what a kubelet depends on; advised ones are stricter.

    Exit codes: 0 no required check failed (with --strict: no check), 1 some failed, 2 the driver could not be
    checked.
    """
    from dray.driver.conformance import ConformanceOptions
    from dray.driver.conformance.suite import select_checks

    select_checks(only)
    if given["restart"] and given["supervised"]:
        raise InputError("give --restart or --supervised, not both")
    options = ConformanceOptions(
        _resolve_socket(socket_path),
        driver=given["name"],
        node=given["node"],
        cdi_dir=given["cdi_dir"],
        restart=_build_restart(given["restart"], socket_path if given["supervised"] else None),
        parameters=_parse_parameters(given["parameters"]),
        class_name=given["class_name"],
        only=only,
    )
    report = run_to_completion(_run_checks(options, kubeconfig, context))
    click.echo(
        json.dumps(_build_document(report), indent=2) if given["output"] == "json" else _render_text(report)
    )
    passed = report.is_strictly_conformant if given["strict"] else report.is_conformant
    return EXIT_YES if passed else EXIT_NO


async def _run_checks(options: ConformanceOptions, kubeconfig: str, context: str) -> ConformanceReport:
    from dray.driver.conformance import run_conformance

    async with connect_to_server(kubeconfig, context) as (client, _):
        with ExitStack() as stack:

            def track_checks(checks: tuple[Any, ...]) -> Iterable[Any]:
                return stack.enter_context(show_progress(checks, "checking", min_items=1))

            return await run_conformance(client, options, track_checks)


def _resolve_socket(path: Path) -> Path:
    """Return the socket; a directory with one socket stands for it."""
    if not path.is_dir():
        return path.absolute()
    found = sorted(each for each in path.iterdir() if each.is_socket())
    if len(found) != 1:
        names = ", ".join(f"`{each.name}`" for each in found) or "none"
        raise InputError(f"`{path}` is a directory with {len(found)} sockets: {names}; name the one you mean")
    return found[0].absolute()


def _parse_parameters(text: str) -> dict[str, Any] | None:
    if not text:
        return None
    try:
        document = json.loads(Path(text[1:]).read_text("utf-8") if text.startswith("@") else text)
    except (OSError, ValueError) as wrong:
        raise InputError(f"--parameters: expected a JSON object: {wrong}") from None
    if not isinstance(document, dict):
        raise InputError(f"--parameters: expected a JSON object, got `{text}`")
    return document


# --- restarting the driver ---


def _build_restart(shell: str, supervised: Path | None) -> RestartDriver | None:
    if shell:
        return lambda: _run_shell(shell)
    if supervised is not None:
        return lambda: asyncio.to_thread(_kill_listener, _resolve_socket(supervised))
    return None


async def _run_shell(shell: str) -> None:
    process = await asyncio.create_subprocess_shell(
        shell, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, start_new_session=True
    )
    try:
        async with asyncio.timeout(_RESTART_TIMEOUT_SECONDS):
            code = await process.wait()
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise InputError(
            f"--restart: `{shell}` has not ended after {_RESTART_TIMEOUT_SECONDS:g} seconds; it "
            "should return when "
            "the driver is started"
        ) from None
    if code:
        raise InputError(f"--restart: `{shell}` ended with exit code {code}")


def _kill_listener(path: Path) -> None:
    """Kill the process that listens at a socket, and wait until it is gone."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(path))
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, _, _ = struct.unpack("3i", peer)
    if pid in (0, os.getpid()):
        raise InputError(
            f"--supervised: the process behind `{path}` cannot be identified from here; use --restart"
        )
    descriptor = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        select.select([descriptor], [], [], _RESTART_TIMEOUT_SECONDS)
    except OSError as refused:
        raise InputError(f"--supervised: cannot end process {pid}: {refused.strerror}") from None
    finally:
        os.close(descriptor)


# --- output ---


def _render_text(report: ConformanceReport) -> str:
    return "\n".join(_render_lines(report))


def _render_lines(report: ConformanceReport) -> Iterator[str]:
    where = f" on node {report.node}" if report.node else ""
    yield sanitize_text(f"driver {report.driver}{where}, {' and '.join(report.versions)}")
    yield ""
    rows = [(each.check, each.level.value, each.verdict.value, each.title) for each in report.results]
    yield from render_table(("check", "level", "result", "requirement"), rows)
    for (level, verdict, why, hint), names in _group_messages(report).items():
        yield ""
        yield sanitize_text(f"{', '.join(names)} ({level}): {verdict}: {why}")
        if hint:
            yield f"hint: {hint}"
    yield ""
    yield from _render_counts(report)


def _render_counts(report: ConformanceReport) -> Iterator[str]:
    """Render the verdicts of each level in a line."""
    from dray.driver.conformance import ConformanceLevel, ConformanceVerdict

    for level in ConformanceLevel:
        counts = {verdict.value: report.count(verdict, level) for verdict in ConformanceVerdict}
        if any(counts.values()):
            yield f"{level.value}: {', '.join(f'{count} {name}' for name, count in counts.items() if count)}"


def _group_messages(report: ConformanceReport) -> dict[tuple[str, str, str, str], list[str]]:
    """Group the checks by their message."""
    messages: dict[tuple[str, str, str, str], list[str]] = {}
    for each in report.results:
        if each.why:
            key = (each.level.value, each.verdict.value, each.why, each.hint)
            messages.setdefault(key, []).append(each.check)
    return messages


def _build_document(report: ConformanceReport) -> dict[str, Any]:
    return {
        "driver": report.driver,
        "node": report.node,
        "versions": list(report.versions),
        "good": report.is_conformant,
        "strictlyGood": report.is_strictly_conformant,
        "checks": [
            {
                "name": each.check,
                "level": each.level.value,
                "result": each.verdict.value,
                "title": each.title,
                "why": each.why,
                "expected": each.expected,
                "found": each.found,
                "hint": each.hint,
            }
            for each in report.results
        ],
    }
