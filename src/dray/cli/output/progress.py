"""Progress bars for long work, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

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
