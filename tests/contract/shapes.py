"""Whether an answer has the shape of a recorded one: the same keys and types, whatever the values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

FREE = frozenset({"labels", "annotations", "fieldsV1", "data", "capacity", "attributes", "allocatable"})
"""Maps whose keys are names that somebody chose."""


def missing(ours: Any, recorded: Any, place: str = "") -> Iterator[str]:
    """What the recorded answer has and ours has not, or has in another type."""
    if isinstance(recorded, dict):
        if not isinstance(ours, dict):
            yield f"{place or 'the whole'}: expected an object, got {type(ours).__name__}"
            return
        for key, value in recorded.items():
            if place.rpartition(".")[2] in FREE:
                return
            if key not in ours:
                yield f"{place}.{key}: missing"
            else:
                yield from missing(ours[key], value, f"{place}.{key}")
    elif isinstance(recorded, list):
        if not isinstance(ours, list):
            yield f"{place}: expected a list, got {type(ours).__name__}"
        elif recorded and not ours:
            yield f"{place}: empty"
        elif recorded:
            yield from missing(ours[0], recorded[0], f"{place}[0]")
    elif not _alike(ours, recorded):
        yield f"{place}: expected {type(recorded).__name__}, got {type(ours).__name__}"


def _alike(ours: Any, recorded: Any) -> bool:
    return type(ours) is type(recorded)


def differences(ours: Any, recorded: Any) -> list[str]:
    """Everything in which two answers differ in shape, both ways."""
    extra = [line.replace("missing", "not in the record") for line in missing(recorded, ours)]
    return [*missing(ours, recorded), *extra]
