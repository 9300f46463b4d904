"""Tables as plain text with aligned columns, easy to cut and to search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dray.cli.output.text import sanitize_line

COLUMN_GAP = "   "


def render_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, right_aligned: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Yield the lines of a table; columns in `right_aligned` are aligned there, and empty columns are
    omitted.
    """
    shown = [i for i in range(len(titles)) if any(row[i] for row in rows)]
    cells = [[titles[i].upper() for i in shown], *([sanitize_line(row[i]) for i in shown] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(shown))]
    for line in cells:
        padded = [
            cell.rjust(width) if titles[i] in right_aligned else cell.ljust(width)
            for i, cell, width in zip(shown, line, widths, strict=True)
        ]
        yield COLUMN_GAP.join(padded).rstrip()
