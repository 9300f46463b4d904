"""Progress bars for long work, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def show_progress(work: Sequence[T], what: str, min_items: int = 20) -> Iterator[Iterable[T]]:
    """Yield the work with a progress bar on standard error; without one for few items."""
    if len(work) < min_items or not sys.stderr.isatty():
        yield work
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        yield bar.track(work, description=what)


@contextmanager
def show_steps() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that takes the current step, and how much of how much is done."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def update_progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what)
            bar.update(tasks[what], completed=done, total=total or None)

        yield update_progress
