"""`dray cel`: try a selector, or any expression about a device, on the devices of slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from dray.api.devices.device_cel import SELECTOR_COST_LIMIT, bind_device, build_environment
from dray.cel import CelProgram, CompileFault, EvalFault, MeasuredResult
from dray.cel.values import get_type_name
from dray.cli.exit_codes import EXIT_INVALID_INPUT, EXIT_NO, EXIT_YES
from dray.cli.input.cluster_files import files_option, load_bundle
from dray.cli.input.options import gates_option
from dray.cli.output.tables import render_table
from dray.cli.output.text import print_message, sanitize_text
from dray.errors import InputError
from dray.gates import GateSet
from dray.manifests import to_json
from dray.manifests.source import render_excerpt
from dray.simulation.bundle import Bundle


@click.command("cel")
@click.argument("expression")
@files_option
@click.argument("more", nargs=-1, metavar="[FILES]...")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table for people or JSON for programs.",
)
@gates_option
def command(
    expression: str, paths: tuple[str, ...], more: tuple[str, ...], output: str, gates: GateSet
) -> int:
    """Evaluate a CEL selector on every device of some slices: whether it matches, its value and its cost.

    Any expression about `device` is allowed; one that is no selector shows its value. Without files the
    expression is only compiled. Exit code 0 when a device matches, 1 when none does, 2 when the expression
    does not compile or the input is invalid.
    """
    program = build_environment(
        sharing=gates.is_enabled("DRAConsumableCapacity"), lists=gates.is_enabled("DRAListTypeAttributes")
    ).compile(expression)
    if isinstance(program, CompileFault):
        for line in _render_issues(program):
            click.echo(line, err=True)
        return EXIT_INVALID_INPUT
    answers = list(_evaluate_devices(program, load_bundle((*paths, *more)))) if paths or more else None
    if output == "json":
        click.echo(to_json([_build_document(program, answers or [])]), nl=False)
    else:
        _print_table(program, answers)
    if answers is None:
        return EXIT_YES
    return EXIT_YES if any(answer.result is True or answer.has_value for answer in answers) else EXIT_NO


@dataclass(frozen=True, slots=True)
class DeviceEvaluation:
    """The result of the expression for one device."""

    device: str
    measured: MeasuredResult

    @property
    def result(self) -> Any:
        return self.measured.result

    @property
    def has_value(self) -> bool:
        """Whether there is a value, of an expression that is no selector."""
        return not isinstance(self.result, bool | EvalFault)


def _evaluate_devices(program: CelProgram, bundle: Bundle) -> Iterator[DeviceEvaluation]:
    if not bundle.slices:
        raise InputError("no ResourceSlice is among the manifests: there is no device to try it on")
    for published in bundle.slices:
        spec = published.spec
        for device in spec.devices:
            value = bind_device(spec.driver, device).value
            fails = isinstance(value, EvalFault)
            measured = MeasuredResult(value, 0) if fails else program.measure({"device": value})
            yield DeviceEvaluation(f"{spec.driver}/{spec.pool.name}/{device.name}", measured)


def _render_issues(fault: CompileFault) -> Iterator[str]:
    """Render the compile errors: each with its line and a caret."""
    lines = fault.text.split("\n")
    for issue in fault.issues:
        line, column = _locate_offset(fault.text, issue.offset)
        yield f"dray: the expression does not compile, {line}:{column}: {sanitize_text(issue.message)}"
        shown, caret = render_excerpt(sanitize_text(lines[line - 1]), column)
        yield f"  {shown}"
        yield f"  {caret}"


def _locate_offset(text: str, offset: int) -> tuple[int, int]:
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def _print_table(program: CelProgram, answers: Sequence[DeviceEvaluation] | None) -> None:
    if program.cost > SELECTOR_COST_LIMIT:
        print_message(
            f"too complex: it may cost {_format_cost_bound(program)}, and a selector at most "
            f"{SELECTOR_COST_LIMIT:,}"
        )
    if answers is None:
        click.echo(f"compiles: {program.type}, costs at most {_format_cost_bound(program)}")
        return
    rows = [
        (
            answer.device,
            _format_match(answer),
            sanitize_text(_format_value(answer)),
            f"{answer.measured.cost:,}",
        )
        for answer in answers
    ]
    click.echo(
        "\n".join(render_table(("device", "match", "value", "cost"), rows, right_aligned=frozenset({"cost"})))
    )
    click.echo("")
    click.echo(_render_summary(answers))


def _format_cost_bound(program: CelProgram) -> str:
    return f"{program.cost:,}" if program.cost < 2**64 - 1 else "any amount"


def _format_match(answer: DeviceEvaluation) -> str:
    if isinstance(answer.result, EvalFault):
        return "error"
    return {True: "yes", False: "no"}.get(answer.result, "") if isinstance(answer.result, bool) else ""


def _format_value(answer: DeviceEvaluation) -> str:
    if isinstance(answer.result, EvalFault):
        return str(answer.result)
    return "" if isinstance(answer.result, bool) else format_cel_value(answer.result)


def format_cel_value(value: Any) -> str:
    """Format a CEL value as CEL source."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"'
        case dict():
            return (
                "{"
                + ", ".join(
                    f"{format_cel_value(key)}: {format_cel_value(item)}" for key, item in value.items()
                )
                + "}"
            )
        case list() | tuple():
            return "[" + ", ".join(format_cel_value(item) for item in value) + "]"
        case _:
            return str(value)


def _render_summary(answers: Sequence[DeviceEvaluation]) -> str:
    matching = sum(answer.result is True for answer in answers)
    failing = sum(isinstance(answer.result, EvalFault) for answer in answers)
    valued = [answer for answer in answers if answer.has_value]
    text = f"matches {matching} of {len(answers)} devices"
    if valued:
        text = (
            f"{len(valued)} of {len(answers)} devices have a value, of type {get_type_name(valued[0].result)}"
        )
        text += "; a selector must be true or false"
    if failing:
        text += f"\nfails on {failing}: a selector that fails keeps a claim from that node"
        text += '\nhint: test first whether the attribute is there, with `has(…)` or `"…" in …`'
    return text


def _build_document(program: CelProgram, answers: Sequence[DeviceEvaluation]) -> dict[str, Any]:
    return {
        "expression": program.text,
        "type": str(program.type),
        "maxCost": program.cost,
        "devices": [
            {
                "device": answer.device,
                "match": answer.result if isinstance(answer.result, bool) else None,
                "value": None if isinstance(answer.result, EvalFault) else _to_plain_value(answer.result),
                "error": str(answer.result) if isinstance(answer.result, EvalFault) else None,
                "cost": answer.measured.cost,
            }
            for answer in answers
        ],
    }


def _to_plain_value(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | None) else format_cel_value(value)
