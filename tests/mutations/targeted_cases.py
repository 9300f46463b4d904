"""Cases that break a particular rule of a kind: several fields at once, or values nobody would guess."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from tests.mutations.case import Base, Case
from tests.mutations.field_paths import parse_path, set_value

CHANGES = Path(__file__).parent / "changes"

_LARGE_VALUES: Mapping[object, Any] = MappingProxyType(
    {
        "TOO LARGE": "x" * (10 * 1024),
        "OVERLONG": "x" * 257,
        "LONG EXPRESSION": f"size('{'x' * (10 * 1024)}') > 0",
        "LONG ATTRIBUTE": "x" * 65,
        "LONG MESSAGE": "x" * 1025,
        "MEGABYTE": "x" * (1024 * 1024 + 1),
        "MANY REQUESTS": [
            {"name": f"request-{number}", "exactly": {"deviceClassName": "gpu.example.com"}}
            for number in range(33)
        ],
        "MANY DEVICES": [{"name": f"device-{number}"} for number in range(129)],
    }
)
"""Values that would not be readable in a file."""


def list_targeted_cases(bases: Mapping[str, Base]) -> Iterator[Case]:
    """Yield the cases of the files in `changes`: base, verb, name, and the fields that change."""
    for file in sorted(CHANGES.glob("*.yaml")):
        for name, verbs in yaml.safe_load(file.read_text()).items():
            for verb, rows in verbs.items():
                for title, fields in rows.items():
                    yield build_case(bases[name], verb, title, fields)


def _enlarge(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _enlarge(inner) for key, inner in value.items()}
    return _LARGE_VALUES.get(value, value) if isinstance(value, str) else value


def build_case(base: Base, verb: str, title: str, fields: Mapping[str, Any]) -> Case:
    """Build the case of one row."""
    document = base.build_new() if verb == "create" else base.build_update()
    if verb == "status" and base.status is not None:
        document = {**document, "status": base.status}
    for path, value in fields.items():
        document = set_value(document, parse_path(path), _enlarge(value))
    identifier = f"{base.name}/{verb}/{title}"
    if verb == "create":
        return Case(identifier, base, "POST", base.collection, document)
    return Case(identifier, base, "PUT", base.path + ("/status" if verb == "status" else ""), document)
