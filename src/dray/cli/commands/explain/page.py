"""Pages of explanations: the options of the command, the width of a page, and its colours."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from dray.allocator.search.resumable import TimeLimit
from dray.cli.input.options import should_use_color
from dray.explain import Diagnosis, PageRole, render_text
from dray.gates import GateSet

_DEFAULT_WIDTH, _MAX_WIDTH = 100, 120
"""Columns without a terminal, and the maximum on one."""

_STYLES: dict[PageRole, dict[str, Any]] = {
    PageRole.HEADLINE: {"bold": True},
    PageRole.NODE: {"bold": True},
    PageRole.MARK: {"fg": "green"},
    PageRole.HINT: {"fg": "cyan"},
}


@dataclass(frozen=True, slots=True)
class ExplainCommandOptions:
    """The options of the command line."""

    namespace: str | None
    node: str | None
    alone: bool
    output: str
    gates: GateSet
    strict: bool
    color: str
    search_timeout: float

    @property
    def limit(self) -> TimeLimit:
        """The time limit of searches."""
        return TimeLimit(time.monotonic, self.search_timeout)


def get_page_width() -> int:
    """Return the columns of a page."""
    return min(shutil.get_terminal_size().columns, _MAX_WIDTH) if sys.stdout.isatty() else _DEFAULT_WIDTH


def paint(role: PageRole, text: str) -> str:
    """Colour a part of a page; `print_pages` removes the colour where none is wanted."""
    return click.style(text, **_STYLES[role])


def render_page(diagnosis: Diagnosis) -> str:
    """Render the page of a diagnosis."""
    return render_text(diagnosis, get_page_width(), paint=paint)


def print_pages(pages: Sequence[str], color: str) -> None:
    """Print pages, with an empty line between them."""
    wanted = should_use_color(color, terminal=sys.stdout.isatty(), no_color="NO_COLOR" in os.environ)
    click.echo("\n\n".join(pages), color=wanted)
