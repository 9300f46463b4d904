"""Cases about the request itself: path, method, content type, query, and bodies that are no object."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.mutations.case import JSON, Base, Case, Document
from tests.mutations.field_paths import REMOVED

DRY = {"dryRun": "All"}
_YAML = "application/yaml"


def list_request_cases(base: Base, position: int) -> Iterator[Case]:
    """Yield the cases of one object: all for a thorough one, a share for others."""
    cases = [*_list_bodies(base), *_list_identities(base), *_list_paths(base), *_list_queries(base)]
    cases += _list_deletes(base)
    for number, case in enumerate(cases):
        if (number + position) % base.share == 0:
            yield case


def _send(base: Base, name: str, method: str, path: str, body: Any = None, **rest: Any) -> Case:
    return Case(f"{base.name}/request/{name}", base, method, path, body, **rest)


def _list_bodies(base: Base) -> Iterator[Case]:
    text = json.dumps(base.build_new())
    bodies = {
        "no body": None,
        "blank body": " \n",
        "truncated body": text[: len(text) // 2],
        "one brace too many": f"{text}}}",
        "two documents": f"{text}{text}",
        "list as body": f"[{text}]",
        "null as body": "null",
        "number as body": "7",
        "text as body": '"text"',
        "no JSON": "kind: Pod",
        "empty object": "{}",
        "body with a key twice": f'{text[:-1]}, "kind": "{base.kind}"}}',
        "metadata twice": f'{text[:-1]}, "metadata": {{"name": "second"}}}}',
        "metadata as list": json.dumps({**base.build_new(), "metadata": []}),
        "metadata as null": json.dumps({**base.build_new(), "metadata": None}),
        "key in another case": text.replace('"metadata"', '"MetaData"', 1),
        "NaN as value": text.replace(json.dumps(base.build_new()["metadata"]["name"]), "NaN", 1),
        "bad escape": text.replace('"name"', '"na\\qme"', 1),
        "surrogate alone": text.replace('"name": "', '"name": "\\ud800', 1),
    }
    for name, body in bodies.items():
        yield _send(base, f"create with {name}", "POST", base.collection, body)
    for name in ("no body", "truncated body", "empty object", "null as body"):
        yield _send(base, f"update with {name}", "PUT", base.path, bodies[name])
    strict = {**DRY, "fieldValidation": "Strict"}
    twice = bodies["body with a key twice"]
    yield _send(base, "strict create with a key twice", "POST", base.collection, twice, query=strict)
    new = base.build_new()
    for name, content_type in {
        "YAML sent as YAML": _YAML,
        "plain text": "text/plain",
        "XML": "application/xml",
        "JSON in utf-8": "application/json; charset=utf-8",
        "a patch type": "application/merge-patch+json",
        "nonsense": "nonsense",
        "protobuf that is JSON": "application/vnd.kubernetes.protobuf",
        "CBOR that is JSON": "application/cbor",
    }.items():
        yield _send(
            base, f"create with content type: {name}", "POST", base.collection, new, content_type=content_type
        )
    yield _send(base, "create from bad YAML", "POST", base.collection, "a: [", content_type=_YAML)
    yield _send(base, "create from YAML list", "POST", base.collection, "- a", content_type=_YAML)


def _list_identities(base: Base) -> Iterator[Case]:
    changes: dict[str, Document] = {
        "kind of another": {"kind": "ConfigMap" if base.kind != "ConfigMap" else "Secret"},
        "kind unknown": {"kind": "Unknown"},
        "kind removed": {"kind": REMOVED},
        "kind empty": {"kind": ""},
        "kind in lower case": {"kind": base.kind.lower()},
        "kind as number": {"kind": 7},
        "list kind": {"kind": f"{base.kind}List"},
        "version unknown": {"apiVersion": base.api_version + "beta9"},
        "version of another group": {"apiVersion": "apps/v1" if base.api_version != "apps/v1" else "v1"},
        "version removed": {"apiVersion": REMOVED},
        "version with two slashes": {"apiVersion": "a/b/c"},
        "version as number": {"apiVersion": 1},
        "kind and version removed": {"kind": REMOVED, "apiVersion": REMOVED},
    }
    for name, change in changes.items():
        for verb, method, path, document in (
            ("create", "POST", base.collection, base.build_new()),
            ("update", "PUT", base.path, base.build_update()),
        ):
            body = {key: value for key, value in {**document, **change}.items() if value != REMOVED}
            yield _send(base, f"{verb} with {name}", method, path, body)


def _list_paths(base: Base) -> Iterator[Case]:
    new, update = base.build_new(), base.build_update()
    missing = f"{base.collection}/missing"
    yield _send(base, "create at the path of an object", "POST", base.path, new)
    yield _send(base, "update at the path of the collection", "PUT", base.collection, update)
    yield _send(
        base,
        "patch of the collection",
        "PATCH",
        base.collection,
        {},
        content_type="application/merge-patch+json",
    )
    yield _send(base, "create of what exists", "POST", base.collection, base.object)
    yield _send(base, "unknown subresource", "PUT", f"{base.path}/unknown", update)
    yield _send(base, "unknown subresource read", "GET", f"{base.path}/unknown", query={})
    yield _send(base, "status read", "GET", f"{base.path}/status", query={})
    yield _send(base, "status deleted", "DELETE", f"{base.path}/status", query=DRY)
    yield _send(base, "status created", "POST", f"{base.path}/status", update)
    yield _send(base, "read of what is missing", "GET", missing, query={})
    yield _send(base, "read of a bad name", "GET", f"{base.collection}/Not_Valid", query={})
    gone = {**new, "metadata": {**new["metadata"], "name": "missing"}}
    yield _send(base, "update of what is missing", "PUT", missing, gone)
    versioned = {**gone, "metadata": {**gone["metadata"], "resourceVersion": "5"}}
    yield _send(base, "update of what is missing with version", "PUT", missing, versioned)
    identified = {**gone, "metadata": {**gone["metadata"], "uid": "5d1cd0a6-7d9c-4d2b-a0a4-2d9d4e5c6f06"}}
    yield _send(base, "update of what is missing with uid", "PUT", missing, identified)
    yield _send(base, "status update of what is missing", "PUT", f"{missing}/status", gone)
    if base.namespace:
        elsewhere = {**new, "metadata": {**new["metadata"], "namespace": "missing"}}
        yield _send(
            base, "create in a missing namespace", "POST", base.build_collection("missing"), elsewhere
        )
        yield _send(base, "create in no namespace", "POST", base.build_collection(""), new)
        yield _send(base, "create in a bad namespace", "POST", base.build_collection("Not_Valid"), new)
    else:
        yield _send(base, "create in a namespace", "POST", base.build_collection("mutations"), new)


def _list_queries(base: Base) -> Iterator[Case]:
    new, update = base.build_new(), base.build_update()
    unknown = {**new, "unknownField": 1}
    for name, query in {
        "dry run of nothing": {"dryRun": "None"},
        "empty dry run": {"dryRun": ""},
        "unknown field validation": {**DRY, "fieldValidation": "Sometimes"},
        "field validation in lower case": {**DRY, "fieldValidation": "strict"},
        "overlong field manager": {**DRY, "fieldManager": "m" * 129},
        "field manager with a tab": {**DRY, "fieldManager": "a\tb"},
        "unknown parameter": {**DRY, "unknown": "1"},
        "timeout without unit": {**DRY, "timeout": "many"},
        "pretty output": {**DRY, "pretty": "true"},
    }.items():
        yield _send(base, f"create with {name}", "POST", base.collection, unknown, query=query)
    for name, query in {
        "dry run of nothing": {"dryRun": "None"},
        "unknown field validation": {**DRY, "fieldValidation": "Sometimes"},
        "overlong field manager": {**DRY, "fieldManager": "m" * 129},
    }.items():
        yield _send(base, f"update with {name}", "PUT", base.path, update, query=query)
    for name, query in {
        "bad label selector": {"labelSelector": "a in ("},
        "bad field selector": {"fieldSelector": "spec"},
        "unknown field selector": {"fieldSelector": "spec.unknown=1"},
        "negative limit": {"limit": "-1"},
        "limit as text": {"limit": "many"},
        "bad continue": {"continue": "nonsense"},
        "bad resource version": {"resourceVersion": "newest"},
        "bad version match": {"resourceVersion": "1", "resourceVersionMatch": "Sometimes"},
        "version match alone": {"resourceVersionMatch": "Exact"},
        "exact version zero": {"resourceVersion": "0", "resourceVersionMatch": "Exact"},
        "initial events without watch": {"sendInitialEvents": "true"},
        "watch as text": {"watch": "maybe", "timeoutSeconds": "1", "limit": "nothing"},
    }.items():
        yield _send(base, f"list with {name}", "GET", base.collection, query=query)


def _list_deletes(base: Base) -> Iterator[Case]:
    yield _send(base, "delete of what is missing", "DELETE", f"{base.collection}/missing")
    yield _send(base, "delete dry", "DELETE", base.path)
    # With a body, a server does not read options from the query.
    options: Document = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}
    uid = "5d1cd0a6-7d9c-4d2b-a0a4-2d9d4e5c6f07"
    for name, body in {
        "the uid of another": {**options, "preconditions": {"uid": uid}},
        "an old version": {**options, "preconditions": {"resourceVersion": "1"}},
        "its own uid": {**options, "preconditions": {"uid": "@uid"}},
        "a negative grace period": {**options, "gracePeriodSeconds": -1},
        "a grace period as text": {**options, "gracePeriodSeconds": "soon"},
        "an unknown propagation": {**options, "propagationPolicy": "Sideways"},
        "foreground propagation": {**options, "propagationPolicy": "Foreground"},
        "propagation and orphans": {**options, "propagationPolicy": "Orphan", "orphanDependents": True},
        "an unknown dry run": {**options, "dryRun": ["Some"]},
        "dry run as text": {**options, "dryRun": "All"},
        "options of another kind": {**options, "kind": "Pod"},
        "options without kind": {"gracePeriodSeconds": 0, "dryRun": ["All"]},
        "options of an unknown version": {**options, "apiVersion": "v7"},
        "an unknown option": {**options, "unknownField": 1},
        "a list as options": "[]",
        "truncated options": '{"kind": ',
    }.items():
        yield _send(base, f"delete with {name}", "DELETE", base.path, body)
    for name, query in {
        "a negative grace period in the query": {**DRY, "gracePeriodSeconds": "-1"},
        "a grace period as text in the query": {**DRY, "gracePeriodSeconds": "soon"},
        "an unknown propagation in the query": {**DRY, "propagationPolicy": "Sideways"},
        "an unknown dry run in the query": {"dryRun": "Some"},
    }.items():
        yield _send(base, f"delete with {name}", "DELETE", base.path, query=query)
    yield _send(
        base, "delete with options in plain text", "DELETE", base.path, options, content_type="text/plain"
    )
    yield _send(
        base,
        "delete of a collection with bad selector",
        "DELETE",
        base.collection,
        query={**DRY, "labelSelector": "a in ("},
    )
    yield _send(
        base,
        "delete of nothing in a collection",
        "DELETE",
        base.collection,
        options,
        query={**DRY, "labelSelector": "no=one"},
        content_type=JSON,
    )
