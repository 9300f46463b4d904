"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class GatesType(click.ParamType[Any]):
    """`A=true,B=false`, as Kubernetes components take it."""

    name = "gates"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from dray.errors import GateError
        from dray.gates import GateSet

        if isinstance(value, GateSet):
            return value
        try:
            return GateSet.parse(value)
        except GateError as wrong:
            raise click.UsageError(str(wrong), ctx) from None


def gates_option(command: F) -> F:
    """Add `--feature-gates`."""
    return click.option(
        "--feature-gates",
        "gates",
        type=GatesType(),
        default="",
        metavar="A=true,B=false",
        help="Set feature gates; others keep their default. `dray gates` lists them.",
    )(command)


def strict_option(command: F) -> F:
    """Add `--strict`, for commands that read a cluster from files."""
    return click.option(
        "--strict",
        is_flag=True,
        help="Exit with code 2 when any object in the files is invalid, instead of skipping it.",
    )(command)


class SecondsType(click.ParamType[Any]):
    """`10s`, `500ms`, `2m`, or a number of seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, float):
            return value
        found = _DURATION.fullmatch(str(value).strip())
        seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
        if seconds <= 0:
            self.fail(f"expected a duration above 0, like `10s` or `500ms`, got `{value}`", param, ctx)
        return seconds


_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h|)")
_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def search_timeout_option(command: F) -> F:
    """Add `--search-timeout`."""
    return click.option(
        "--search-timeout",
        type=SecondsType(),
        default="1s",
        show_default=True,
        metavar="DURATION",
        help="Time for the search on one group of equal nodes before it gives up; a pod as a whole gets ten "
        "times as much.",
    )(command)


def output_option(command: F) -> F:
    """Add `--output`, for text or JSON."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Text for people or JSON for programs.",
    )(command)


def color_option(command: F) -> F:
    """Add `--color`."""
    return click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        help="When to use colour; no information depends on it.",
        show_default=True,
    )(command)


def should_use_color(choice: str, *, terminal: bool, no_color: bool) -> bool:
    """Whether to use colour; `NO_COLOR` overrides `auto`, and `always` overrides `NO_COLOR`."""
    return choice == "always" or (choice == "auto" and terminal and not no_color)
