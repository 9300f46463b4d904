"""`dray cel`: try a selector, or any expression about a device, on the devices of slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from dray.api.devices.device_cel import COST_LIMIT, environment, prepare
from dray.cel import CompileFault, EvalFault, Measured, Program
from dray.cel.values import type_name
from dray.cli.app import BROKEN, NO, YES
from dray.cli.input.cluster_files import bundle_of, files_option, say
from dray.cli.input.options import gates_option
from dray.cli.output.tables import table
from dray.cli.output.text import clean
from dray.errors import InputError
from dray.gates import GateSet
from dray.manifests import as_json
from dray.manifests.source import excerpt
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
    help="A table for people or json for machines.",
)
@gates_option
def command(
    expression: str, paths: tuple[str, ...], more: tuple[str, ...], output: str, gates: GateSet
) -> int:
    """Try a selector on every device of some slices: does it match, what is its value, what does it cost.

    Any expression about `device` will do; one that is no selector shows its value. Without files the
    expression is only compiled. Exit code 0 when a device matches, 1 when none does, 2 when the expression
    does not compile or the input is broken.
    """
    program = environment(
        sharing=gates.enabled("DRAConsumableCapacity"), lists=gates.enabled("DRAListTypeAttributes")
    ).compile(expression)
    if isinstance(program, CompileFault):
        for line in _issues(program):
            click.echo(line, err=True)
        return BROKEN
    answers = list(_answers(program, bundle_of((*paths, *more)))) if paths or more else None
    if output == "json":
        click.echo(as_json([_document(program, answers or [])]), nl=False)
    else:
        _print(program, answers)
    if answers is None:
        return YES
    return YES if any(answer.result is True or answer.has_value for answer in answers) else NO


@dataclass(frozen=True, slots=True)
class Answer:
    """What the expression says of one device."""

    device: str
    measured: Measured

    @property
    def result(self) -> Any:
        return self.measured.result

    @property
    def has_value(self) -> bool:
        """Whether there is a value, of an expression that is no selector."""
        return not isinstance(self.result, bool | EvalFault)


def _answers(program: Program, bundle: Bundle) -> Iterator[Answer]:
    if not bundle.slices:
        raise InputError("no ResourceSlice is among the manifests: there is no device to try it on")
    for published in bundle.slices:
        spec = published.spec
        for device in spec.devices:
            value = prepare(spec.driver, device).value
            fails = isinstance(value, EvalFault)
            measured = Measured(value, 0) if fails else program.measure({"device": value})
            yield Answer(f"{spec.driver}/{spec.pool.name}/{device.name}", measured)


def _issues(fault: CompileFault) -> Iterator[str]:
    """What is wrong with the expression: each issue with its line and a caret."""
    lines = fault.text.split("\n")
    for issue in fault.issues:
        line, column = _place(fault.text, issue.offset)
        yield f"dray: the expression does not compile, {line}:{column}: {clean(issue.message)}"
        shown, caret = excerpt(clean(lines[line - 1]), column)
        yield f"  {shown}"
        yield f"  {caret}"


def _place(text: str, offset: int) -> tuple[int, int]:
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def _print(program: Program, answers: Sequence[Answer] | None) -> None:
    if program.cost > COST_LIMIT:
        say(f"too complex: it may cost {_bound(program)}, and a selector at most {COST_LIMIT:,}")
    if answers is None:
        click.echo(f"compiles: {program.type}, costs at most {_bound(program)}")
        return
    rows = [
        (answer.device, _match(answer), clean(_value(answer)), f"{answer.measured.cost:,}")
        for answer in answers
    ]
    click.echo("\n".join(table(("device", "match", "value", "cost"), rows, right=frozenset({"cost"}))))
    click.echo("")
    click.echo(_summary(answers))


def _bound(program: Program) -> str:
    return f"{program.cost:,}" if program.cost < 2**64 - 1 else "any amount"


def _match(answer: Answer) -> str:
    if isinstance(answer.result, EvalFault):
        return "error"
    return {True: "yes", False: "no"}.get(answer.result, "") if isinstance(answer.result, bool) else ""


def _value(answer: Answer) -> str:
    if isinstance(answer.result, EvalFault):
        return str(answer.result)
    return "" if isinstance(answer.result, bool) else shown(answer.result)


def shown(value: Any) -> str:
    """A value of CEL as people write it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"'
        case dict():
            return "{" + ", ".join(f"{shown(key)}: {shown(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(shown(item) for item in value) + "]"
        case _:
            return str(value)


def _summary(answers: Sequence[Answer]) -> str:
    matching = sum(answer.result is True for answer in answers)
    failing = sum(isinstance(answer.result, EvalFault) for answer in answers)
    valued = [answer for answer in answers if answer.has_value]
    text = f"matches {matching} of {len(answers)} devices"
    if valued:
        text = f"{len(valued)} of {len(answers)} devices have a value, of type {type_name(valued[0].result)}"
        text += "; a selector must be true or false"
    if failing:
        text += f"\nfails on {failing}: a selector that fails keeps a claim from that node"
        text += '\nhint: test first whether the attribute is there, with `has(…)` or `"…" in …`'
    return text


def _document(program: Program, answers: Sequence[Answer]) -> dict[str, Any]:
    return {
        "expression": program.text,
        "type": str(program.type),
        "maxCost": program.cost,
        "devices": [
            {
                "device": answer.device,
                "match": answer.result if isinstance(answer.result, bool) else None,
                "value": None if isinstance(answer.result, EvalFault) else _plain(answer.result),
                "error": str(answer.result) if isinstance(answer.result, EvalFault) else None,
                "cost": answer.measured.cost,
            }
            for answer in answers
        ],
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | None) else shown(value)
