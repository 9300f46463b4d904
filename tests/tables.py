"""YAML tables of tests, read by the fast reader where PyYAML has one: at every collection of tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

READER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def tables(source: Path) -> list[Any]:
    """The documents of a file."""
    return list(yaml.load_all(source.read_text("utf-8"), Loader=READER))


def table(source: Path) -> Any:
    """The one document of a file."""
    (only,) = tables(source)
    return only
