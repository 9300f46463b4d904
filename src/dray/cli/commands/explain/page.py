"""How explanations reach people: what was chosen, and pages as wide as the screen, in colour where wanted."""

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
"""Columns where there is no screen, and the most of one that a page takes."""

_STYLES: dict[PageRole, dict[str, Any]] = {
    PageRole.HEADLINE: {"bold": True},
    PageRole.NODE: {"bold": True},
    PageRole.MARK: {"fg": "green"},
    PageRole.HINT: {"fg": "cyan"},
}


@dataclass(frozen=True, slots=True)
class ExplainCommandOptions:
    """What the command line chose."""

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
        """How long searches may take."""
        return TimeLimit(time.monotonic, self.search_timeout)


def get_page_width() -> int:
    """Columns of a page."""
    return min(shutil.get_terminal_size().columns, _MAX_WIDTH) if sys.stdout.isatty() else _DEFAULT_WIDTH


def paint(role: PageRole, text: str) -> str:
    """A piece of a page in its colour; `print_pages` takes it away again where none is wanted."""
    return click.style(text, **_STYLES[role])


def render_page(diagnosis: Diagnosis) -> str:
    """The page of a diagnosis."""
    return render_text(diagnosis, get_page_width(), paint=paint)


def print_pages(pages: Sequence[str], color: str) -> None:
    """Pages, with an empty line between them."""
    wanted = should_use_color(color, terminal=sys.stdout.isatty(), no_color="NO_COLOR" in os.environ)
    click.echo("\n\n".join(pages), color=wanted)
