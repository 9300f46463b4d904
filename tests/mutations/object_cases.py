"""Cases that change one field of a valid object: on create, on update, and in its status."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.mutations.case import Base, Case, Document
from tests.mutations.field_paths import Path, format_path, set_value
from tests.mutations.values import change_value, choose, list_values, list_wrong_types, walk

UNKNOWN = "unknownField"
_IDENTITY = frozenset({("apiVersion",), ("kind",)})
_VALUES = {"thorough": 5, "main": 3, "light": 1}
_VALIDATIONS = ("Strict", "Warn", "Ignore")


def list_object_cases(base: Base) -> Iterator[Case]:
    """Yield the cases of one object."""
    yield from _list_creates(base)
    yield from _list_unknown_fields(base)
    yield from _list_updates(base)
    if base.status is not None:
        yield from _list_status_updates(base)


def _walk_fields(document: Document) -> Iterator[tuple[Path, Any]]:
    """Yield the fields of an object without its metadata and identity, which other cases change."""
    for path, value in walk(document):
        if path not in _IDENTITY and path[0] != "metadata":
            yield path, value


def _choose_values(base: Base, place: str, good: Any) -> list[tuple[str, Any]]:
    if base.depth == "stored":
        return choose(list_wrong_types(good), 1, place)
    return choose(list_values(good), _VALUES[base.depth], place)


def _list_creates(base: Base) -> Iterator[Case]:
    new = base.build_new()
    yield Case(f"{base.name}/create/as it is", base, "POST", base.collection, new)
    for path, good in _walk_fields(new):
        place = format_path(path)
        for name, value in _choose_values(base, f"{base.name}/{place}", good):
            yield Case(
                f"{base.name}/create/{place}: {name}",
                base,
                "POST",
                base.collection,
                set_value(new, path, value),
            )


def _list_unknown_fields(base: Base) -> Iterator[Case]:
    new = base.build_new()
    levels = [(), *(path for path, value in walk(new) if isinstance(value, dict))]
    for number, path in enumerate(levels):
        body = set_value(new, (*path, UNKNOWN), "text")
        modes = _VALIDATIONS if number == 0 else (_VALIDATIONS[number % 2],)
        for mode in modes:
            yield Case(
                f"{base.name}/create/{format_path((*path, UNKNOWN))}: {mode}",
                base,
                "POST",
                base.collection,
                body,
                query={"dryRun": "All", "fieldValidation": mode},
            )


def _list_updates(base: Base) -> Iterator[Case]:
    update = base.build_update()
    yield Case(f"{base.name}/update/as it is", base, "PUT", base.path, update)
    unconditional = {key: value for key, value in update["metadata"].items() if key != "resourceVersion"}
    yield Case(
        f"{base.name}/update/without version", base, "PUT", base.path, {**update, "metadata": unconditional}
    )
    for number, (path, good) in enumerate(_walk_fields(update)):
        if base.depth == "stored" and number % 4:
            continue
        place = format_path(path)
        values = [("changed", change_value(good))]
        values += choose(
            list_wrong_types(good) if base.depth == "stored" else list_values(good),
            1,
            f"{base.name}/put/{place}",
        )
        for name, value in values[-1:] if base.depth == "stored" else values:
            yield Case(
                f"{base.name}/update/{place}: {name}", base, "PUT", base.path, set_value(update, path, value)
            )


def _list_status_updates(base: Base) -> Iterator[Case]:
    whole = {**base.build_update(), "status": base.status}
    target = f"{base.path}/status"
    yield Case(f"{base.name}/status/as it is", base, "PUT", target, whole)
    for path, good in walk(base.status, ("status",)):
        place = format_path(path)
        values = choose(list_values(good), 3 if len(path) > 4 else 5, f"{base.name}/status/{place}")
        for name, value in values:
            yield Case(
                f"{base.name}/status/{place}: {name}", base, "PUT", target, set_value(whole, path, value)
            )
        if isinstance(good, dict):
            body = set_value(whole, (*path, UNKNOWN), 1)
            yield Case(f"{base.name}/status/{place}.{UNKNOWN}", base, "PUT", target, body)
    spec: Document = {"spec": {}} if "spec" in whole else {}
    yield Case(f"{base.name}/status/without spec", base, "PUT", target, {**whole, **spec})
