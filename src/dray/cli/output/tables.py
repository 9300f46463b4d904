"""Tables as plain text: columns that line up, nothing to draw, easy to cut and to search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dray.cli.output.text import flat

GAP = "   "


def table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, right: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Lines of a table; columns in `right` are aligned there, and columns without any value are left out."""
    shown = [i for i in range(len(titles)) if any(row[i] for row in rows)]
    cells = [[titles[i].upper() for i in shown], *([flat(row[i]) for i in shown] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(shown))]
    for line in cells:
        padded = [
            cell.rjust(width) if titles[i] in right else cell.ljust(width)
            for i, cell, width in zip(shown, line, widths, strict=True)
        ]
        yield GAP.join(padded).rstrip()
