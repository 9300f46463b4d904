"""Writes the table of every package: its modules with the first sentence of their docstrings.

`python -m tools.package_tables` renews docs/internals/packages.md; `--check` exits with 1 when it is stale.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "dray"
TARGET = ROOT / "docs" / "internals" / "packages.md"

HEAD = """# Packages and their files

Every package of `src/dray` with the first sentence of each module. `make reference` generates this page from
the docstrings; [the map](map.md) says how the packages fit together.
"""


def render() -> str:
    """Return the whole page."""
    return HEAD + "".join(_render_package(package) for package in _list_packages())


def _list_packages() -> Iterator[Path]:
    for path in sorted(SOURCE.rglob("__init__.py")):
        yield path.parent


def _render_package(package: Path) -> str:
    name = ".".join(("dray", *package.relative_to(SOURCE).parts))
    lines = [f"\n## `{name}`\n", f"{_join_lines(_read_docstring(package / '__init__.py'))}\n"]
    modules = [path for path in sorted(package.glob("*.py")) if path.name != "__init__.py"]
    if modules:
        lines += ["| module | contents |", "| --- | --- |"]
        lines += [f"| `{path.stem}` | {_read_first_sentence(path)} |" for path in modules]
        lines.append("")
    return "\n".join(lines)


def _read_docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""


def _read_first_sentence(path: Path) -> str:
    paragraph = _join_lines(_read_docstring(path).partition("\n\n")[0])
    return re.split(r"(?<=[.!?])\s", paragraph, maxsplit=1)[0].replace("|", "\\|")


def _join_lines(text: str) -> str:
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    return paragraphs[0] if paragraphs else ""


def main(arguments: list[str]) -> int:
    """Write the page, or compare it."""
    page = render()
    if "--check" in arguments:
        return int(not TARGET.is_file() or TARGET.read_text("utf-8") != page)
    TARGET.write_text(page, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
