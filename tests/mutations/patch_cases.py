"""Cases of patches: JSON patch, merge patch, strategic merge patch and apply."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.mutations.case import Base, Case, Document
from tests.mutations.field_paths import Path
from tests.mutations.request_cases import DRY
from tests.mutations.values import change_value, choose, list_values, walk

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

_APPLY_QUERY = {**DRY, "fieldManager": "tester"}


def list_patch_cases(base: Base, position: int) -> Iterator[Case]:
    """Yield the cases of one object: all for a thorough one, a share for others."""
    cases = [*_list_json_patches(base), *_list_merges(base), *_list_applies(base)]
    for number, case in enumerate(cases):
        if (number + position) % base.share == 0:
            yield case
    yield from _list_field_patches(base)


def _send(
    base: Base, name: str, kind: str, body: Any, query: dict[str, str] | None = None, path: str = ""
) -> Case:
    return Case(
        f"{base.name}/patch/{name}",
        base,
        "PATCH",
        path or base.path,
        body,
        content_type=kind,
        query=DRY if query is None else query,
    )


def _list_json_patches(base: Base) -> Iterator[Case]:
    label = "/metadata/labels"
    bodies: dict[str, Any] = {
        "adds labels": [{"op": "add", "path": label, "value": {"a": "b"}}],
        "adds a bad label": [{"op": "add", "path": label, "value": {"a": "two words"}}],
        "adds labels as text": [{"op": "add", "path": label, "value": "text"}],
        "removes what is missing": [{"op": "remove", "path": "/metadata/missing"}],
        "replaces what is missing": [{"op": "replace", "path": "/metadata/missing", "value": 1}],
        "adds below what is missing": [{"op": "add", "path": "/missing/inner", "value": 1}],
        "tests a wrong value": [{"op": "test", "path": "/metadata/name", "value": "another"}],
        "tests the right value": [{"op": "test", "path": "/metadata/name", "value": base.name}],
        "has an unknown operation": [{"op": "change", "path": "/metadata/name"}],
        "has no operation": [{"path": "/metadata/name", "value": "x"}],
        "has no path": [{"op": "add", "value": "x"}],
        "has a path without slash": [{"op": "add", "path": "metadata", "value": {}}],
        "is an object": {"op": "add"},
        "is a list of text": ["add"],
        "is empty": [],
        "is null": "null",
        "is truncated": '[{"op": ',
        "changes the name": [{"op": "replace", "path": "/metadata/name", "value": "another"}],
        "changes the kind": [{"op": "replace", "path": "/kind", "value": "Unknown"}],
        "changes the version": [{"op": "replace", "path": "/apiVersion", "value": "v9"}],
        "changes the uid": [{"op": "replace", "path": "/metadata/uid", "value": "mine"}],
        "sets an old version": [{"op": "add", "path": "/metadata/resourceVersion", "value": "1"}],
        "removes the metadata": [{"op": "remove", "path": "/metadata"}],
        "replaces everything": [{"op": "replace", "path": "", "value": {}}],
        "adds an unknown field": [{"op": "add", "path": "/unknownField", "value": 1}],
        "moves a field to nowhere": [{"op": "move", "from": "/metadata/name", "path": "/a/b"}],
        "copies what is missing": [{"op": "copy", "from": "/metadata/missing", "path": "/metadata/labels"}],
        "adds to a bad position": [{"op": "add", "path": "/metadata/finalizers/x", "value": "example.com/f"}],
    }
    for name, body in bodies.items():
        yield _send(base, f"JSON patch {name}", JSON_PATCH, body)
    strict = {**DRY, "fieldValidation": "Strict"}
    unknown = bodies["adds an unknown field"]
    yield _send(base, "strict JSON patch adds an unknown field", JSON_PATCH, unknown, strict)
    many = [{"op": "test", "path": "/metadata/name", "value": base.name}] * 10001
    if base.name == "claim":
        yield _send(base, "JSON patch of too many operations", JSON_PATCH, many)


def _list_merges(base: Base) -> Iterator[Case]:
    bodies: dict[str, Any] = {
        "is empty": {},
        "is a list": [],
        "is text": '"text"',
        "is null": "null",
        "is truncated": '{"metadata": ',
        "is no JSON": "metadata: {}",
        "adds a label": {"metadata": {"labels": {"a": "b"}}},
        "adds a bad label": {"metadata": {"labels": {"a": "two words"}}},
        "adds a label as number": {"metadata": {"labels": {"a": 1}}},
        "removes the labels": {"metadata": {"labels": None}},
        "sets labels to text": {"metadata": {"labels": "text"}},
        "changes the name": {"metadata": {"name": "another"}},
        "changes the namespace": {"metadata": {"namespace": "another"}},
        "changes the uid": {"metadata": {"uid": "mine"}},
        "sets an old version": {"metadata": {"resourceVersion": "1"}},
        "sets its version": {"metadata": {"resourceVersion": "@resourceVersion"}},
        "changes the kind": {"kind": "Unknown"},
        "changes the version": {"apiVersion": "v9"},
        "removes the metadata": {"metadata": None},
        "adds an unknown field": {"unknownField": 1},
        "adds a finalizer without domain": {"metadata": {"finalizers": ["mine"]}},
    }
    for name, body in bodies.items():
        yield _send(base, f"merge patch {name}", MERGE, body)
        yield _send(base, f"strategic patch {name}", STRATEGIC, body)
    strict = {**DRY, "fieldValidation": "Strict"}
    for name, kind in (("merge", MERGE), ("strategic", STRATEGIC)):
        unknown = bodies["adds an unknown field"]
        yield _send(base, f"strict {name} patch adds an unknown field", kind, unknown, strict)
        missing = f"{base.collection}/missing"
        yield _send(base, f"{name} patch of what is missing", kind, {}, path=missing)
        force = {**DRY, "force": "true"}
        yield _send(base, f"{name} patch with force", kind, {}, force)
        text = '{"metadata": {"labels": {"a": "b"}, "labels": {"a": "c"}}}'
        yield _send(base, f"{name} patch with a key twice", kind, text)
    directives: dict[str, Document] = {
        "has an unknown directive": {"metadata": {"labels": {"$patch": "sideways"}}},
        "replaces the labels": {"metadata": {"labels": {"$patch": "replace", "c": "d"}}},
        "deletes from a list": {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/f"]}},
        "deletes from a list as text": {"metadata": {"$deleteFromPrimitiveList/finalizers": "example.com/f"}},
        "orders a list": {"metadata": {"$setElementOrder/finalizers": ["example.com/f"]}},
        "merges an owner without key": {"metadata": {"ownerReferences": [{"kind": "Pod"}]}},
    }
    for name, body in directives.items():
        yield _send(base, f"strategic patch {name}", STRATEGIC, body)
    for name, kind in (("no", ""), ("JSON", "application/json"), ("unknown", "application/other-patch+json")):
        yield _send(base, f"patch of {name} type", kind, {})


def _list_applies(base: Base) -> Iterator[Case]:
    identity = {"apiVersion": base.api_version, "kind": base.kind}
    named: Document = {**identity, "metadata": {"name": base.name}}
    if base.namespace:
        named["metadata"] = {**named["metadata"], "namespace": base.namespace}
    rows: dict[str, tuple[Any, dict[str, str]]] = {
        "the object": (base.object, _APPLY_QUERY),
        "the object by force": (base.object, {**_APPLY_QUERY, "force": "true"}),
        "without manager": (named, DRY),
        "with nothing": ({}, _APPLY_QUERY),
        "no body": (None, _APPLY_QUERY),
        "text": ("text", _APPLY_QUERY),
        "a list": ([], _APPLY_QUERY),
        "bad YAML": ("a: [", _APPLY_QUERY),
        "without kind": ({"apiVersion": base.api_version, "metadata": named["metadata"]}, _APPLY_QUERY),
        "without version": ({"kind": base.kind, "metadata": named["metadata"]}, _APPLY_QUERY),
        "kind of another": ({**named, "kind": "Unknown"}, _APPLY_QUERY),
        "version of another": ({**named, "apiVersion": "v9"}, _APPLY_QUERY),
        "without name": (identity, _APPLY_QUERY),
        "name of another": ({**identity, "metadata": {"name": "another"}}, _APPLY_QUERY),
        "managed fields": ({**named, "metadata": {**named["metadata"], "managedFields": []}}, _APPLY_QUERY),
        "some managed fields": (
            {**named, "metadata": {**named["metadata"], "managedFields": [{"manager": "m"}]}},
            _APPLY_QUERY,
        ),
        "an old version": (
            {**named, "metadata": {**named["metadata"], "resourceVersion": "1"}},
            _APPLY_QUERY,
        ),
        "an unknown field": ({**named, "unknownField": 1}, _APPLY_QUERY),
        "an unknown field strictly": (
            {**named, "unknownField": 1},
            {**_APPLY_QUERY, "fieldValidation": "Strict"},
        ),
        "labels as text": ({**named, "metadata": {**named["metadata"], "labels": "text"}}, _APPLY_QUERY),
        "a bad label": ({**named, "metadata": {**named["metadata"], "labels": {"a": "b c"}}}, _APPLY_QUERY),
        "a label": ({**named, "metadata": {**named["metadata"], "labels": {"a": "b"}}}, _APPLY_QUERY),
        "an overlong manager": (named, {**DRY, "fieldManager": "m" * 129}),
        "a key twice": (json.dumps(named)[:-1] + f', "kind": "{base.kind}"}}', _APPLY_QUERY),
    }
    for name, (body, query) in rows.items():
        yield _send(base, f"apply {name}", APPLY, body, query)
    new = base.build_new()
    missing = f"{base.collection}/{new['metadata']['name']}"
    yield _send(base, "apply a new object", APPLY, new, _APPLY_QUERY, path=missing)
    unnamed = {**new, "metadata": {**new["metadata"], "uid": "5d1cd0a6-7d9c-4d2b-a0a4-2d9d4e5c6f08"}}
    yield _send(base, "apply a new object with uid", APPLY, unnamed, _APPLY_QUERY, path=missing)


def _list_field_patches(base: Base) -> Iterator[Case]:
    """Yield merge patches of one field below an object; fields inside lists are left to updates."""
    if base.depth == "stored":
        return
    for path, good in walk(base.object):
        if path[0] in ("metadata", "apiVersion", "kind") or any(isinstance(step, int) for step in path):
            continue
        place = ".".join(map(str, path))
        values = [
            ("changed", change_value(good)),
            *choose(list_values(good), 1, f"{base.name}/patch/{place}"),
        ]
        for name, value in values:
            if isinstance(value, str) and value == "<removed>":
                value = None
            yield _send(base, f"{place}: {name}", MERGE, _nest(path, value))


def _nest(path: Path, value: Any) -> Any:
    for step in reversed(path):
        value = {step: value}
    return value
