"""The lines of the specification about cost, each with its figures.

`python -m bench.specification [--only ID] [--full] [--json FILE]`. Figures of searches are times of this
process on objects that were never seen; those of clusters are of `dray up`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench.specification.lines import FULL, LINES, SHORT, CostLine
from bench.specification.timing import Figure


def main(arguments: list[str] | None = None) -> int:
    chosen = _parse(arguments)
    effort = FULL if chosen.full else SHORT
    rows = []
    for line in pick_lines(chosen.only):
        figures = list(line.measure(effort))
        rows.append(
            {"id": line.id, "sentence": line.sentence, "figures": [each._asdict() for each in figures]}
        )
        print(render_line(line, figures), flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=2) + "\n", "utf-8")
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench.specification", description=__doc__)
    parser.add_argument("--only", action="append", metavar="ID", help="this line; may be given again")
    parser.add_argument("--full", action="store_true", help="more repetitions")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    return parser.parse_args(arguments)


def pick_lines(ids: list[str] | None) -> list[CostLine]:
    """Pick the lines with these ids, or all of them."""
    unknown = set(ids or ()) - {line.id for line in LINES}
    if unknown:
        raise SystemExit(f"no line `{min(unknown)}`; there are {', '.join(line.id for line in LINES)}")
    return [line for line in LINES if not ids or line.id in ids]


def render_line(line: CostLine, figures: list[Figure]) -> str:
    """Render a line with its figures."""
    rows = [f"{line.id}  {line.sentence}"]
    for figure in figures:
        places = 0 if float(figure.value).is_integer() else 1
        rows.append(f"  {figure.what:<60}{figure.value:>12,.{places}f} {figure.unit}".rstrip())
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.exit(main())
