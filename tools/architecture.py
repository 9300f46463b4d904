"""Draws the architecture diagram: reads boxes and arrows from a TOML file, writes an SVG.

`python -m tools.architecture` renews docs/internals/architecture.svg; `--check` ends with 1 when it is out of
date. The picture brings its own background and uses only fonts of the reader, so that it looks the same on a
code host, on the site and in either colour scheme.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "internals"
SOURCE = FOLDER / "architecture.toml"
TARGET = FOLDER / "architecture.svg"

COLUMN, ROW, MARGIN = 84.0, 44.0, 24.0
LINE = 17.0
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif"
INK, MUTED, ARROW = "#1f2937", "#4b5563", "#64748b"


@dataclass(frozen=True)
class Style:
    """How a box is filled and outlined."""

    fill: str
    stroke: str
    dash: str = ""
    ink: str = INK


STYLES: Mapping[str, Style] = {
    "outside": Style("#ffffff", "#94a3b8", dash="5 4"),
    "frame": Style("#f1f5f9", "#cbd5e1"),
    "part": Style("#ffffff", "#94a3b8"),
    "accent": Style("#4f46e5", "#3730a3", ink="#ffffff"),
    "service": Style("#e0e7ff", "#6366f1"),
    "store": Style("#fef3c7", "#d97706"),
    "pure": Style("#dcfce7", "#16a34a"),
}


@dataclass(frozen=True)
class Box:
    """A box in pixels."""

    x: float
    y: float
    width: float
    height: float
    title: str
    text: tuple[str, ...]
    style: str

    def find_point(self, name: str, at: float) -> tuple[float, float]:
        """A point on one of the four sides."""
        if name in ("top", "bottom"):
            return self.x + self.width * at, self.y + (self.height if name == "bottom" else 0)
        return self.x + (self.width if name == "right" else 0), self.y + self.height * at


def read_box(row: Mapping[str, Any]) -> Box:
    """A box of the source, with grid units turned into pixels."""
    return Box(
        x=MARGIN + row["x"] * COLUMN,
        y=MARGIN + row["y"] * ROW,
        width=row["width"] * COLUMN,
        height=row["height"] * ROW,
        title=row["title"],
        text=tuple(row.get("text", ())),
        style=row["style"],
    )


def render_text(x: float, y: float, words: str, **attributes: str) -> str:
    """One centred line of text."""
    rest = "".join(f" {name}={quoteattr(value)}" for name, value in attributes.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{rest}>{escape(words)}</text>'


def render_box(box: Box) -> Iterator[str]:
    """The elements of one box: outline, title, lines of text."""
    style = STYLES[box.style]
    dash = f' stroke-dasharray="{style.dash}"' if style.dash else ""
    yield (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="8" '
        f'fill="{style.fill}" stroke="{style.stroke}" stroke-width="1.4"{dash}/>'
    )
    middle = box.x + box.width / 2
    if box.style == "frame":
        yield render_text(middle, box.y + 23, box.title, **{"class": "title", "fill": INK})
        return
    y = box.y + box.height / 2 - len(box.text) * LINE / 2 + 5
    yield render_text(middle, y, box.title, **{"class": "title", "fill": style.ink})
    for line in box.text:
        y += LINE
        yield render_text(middle, y, line, **{"class": "text", "fill": style.ink})


def render_arrow(row: Mapping[str, Any], boxes: Mapping[str, Box]) -> Iterator[str]:
    """The elements of one arrow: a line with one bend at most, and its label."""
    (start, leaves), (end, enters) = (row[name].split(".") for name in ("from", "to"))
    x1, y1 = boxes[start].find_point(leaves, row.get("from_at", 0.5))
    x2, y2 = boxes[end].find_point(enters, row.get("to_at", 0.5))
    marks = ' marker-end="url(#head)"' + (' marker-start="url(#tail)"' if row.get("both") else "")
    yield (
        f'<path d="M {x1:.1f} {y1:.1f} L {x2:.1f} {y2:.1f}" fill="none" stroke="{ARROW}" '
        f'stroke-width="1.6"{marks}/>'
    )
    label = row.get("label", ())
    lines = [label] if isinstance(label, str) else list(label)
    if leaves in ("left", "right"):
        middle, y = (x1 + x2) / 2, (y1 + y2) / 2
        for number, line in enumerate(lines):
            place = y - 7 if number == 0 else y + 1 + LINE * number - 2
            yield render_text(middle, place, line, **{"class": "label"})
        return
    is_left = row.get("label_side") == "left"
    for number, line in enumerate(lines):
        y = (y1 + y2) / 2 + 4 + LINE * number
        side = "label left" if is_left else "label right"
        yield render_text(x1 - 7 if is_left else x1 + 7, y, line, **{"class": side})


def render(source: Mapping[str, Any]) -> str:
    """The whole picture."""
    boxes = {row["id"]: read_box(row) for row in source["box"]}
    width = source["columns"] * COLUMN + 2 * MARGIN
    height = source["rows"] * ROW + 2 * MARGIN
    size = 'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
    shape = f'<path d="M 0 0 L 8 4 L 0 8 z" fill="{ARROW}"/>'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-labelledby="title" font-family="{FONT}">',
        f'<title id="title">{escape(source["title"])}</title>',
        "<style>text{text-anchor:middle}.title{font-size:15px;font-weight:600}.text{font-size:12.5px}"
        f".label{{font-size:12px;fill:{MUTED}}}.left{{text-anchor:end}}.right{{text-anchor:start}}</style>",
        f'<defs><marker id="head" {size} orient="auto">{shape}</marker>'
        f'<marker id="tail" {size} orient="auto-start-reverse">{shape}</marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" rx="12" fill="#ffffff"/>',
    ]
    for box in boxes.values():
        parts += render_box(box)
    for row in source["arrow"]:
        parts += render_arrow(row, boxes)
    return "\n".join([*parts, "</svg>"]) + "\n"


def main(arguments: list[str]) -> int:
    """Write the picture, or with `--check` compare it."""
    picture = render(tomllib.loads(SOURCE.read_text("utf-8")))
    if "--check" not in arguments:
        TARGET.write_text(picture, "utf-8")
        return 0
    current = TARGET.is_file() and TARGET.read_text("utf-8") == picture
    if not current:
        print(f"{TARGET.name} is out of date; run `make reference`", file=sys.stderr)
    return 0 if current else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
