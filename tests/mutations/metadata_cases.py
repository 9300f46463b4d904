"""Cases about metadata, which every kind has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from tests.mutations.case import Base, Case
from tests.mutations.field_paths import REMOVED

_OWNER = {
    "apiVersion": "v1",
    "kind": "Pod",
    "name": "owner",
    "uid": "5d1cd0a6-7d9c-4d2b-a0a4-2d9d4e5c6f03",
}

ON_CREATE: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "name removed": {"name": REMOVED},
        "name empty": {"name": ""},
        "name null": {"name": None},
        "name in upper case": {"name": "Upper"},
        "name with underscore": {"name": "a_b"},
        "name with dots": {"name": "a.b.c"},
        "name with two dots": {"name": "a..b"},
        "name with slash": {"name": "a/b"},
        "name with percent": {"name": "a%b"},
        "name with colon": {"name": "a:b"},
        "name is a dot": {"name": "."},
        "name with leading dash": {"name": "-a"},
        "name of 64 characters": {"name": "n" * 64},
        "name of 254 characters": {"name": "n" * 254},
        "name in unicode": {"name": "größe"},
        "name as number": {"name": 7},
        "name as object": {"name": {}},
        "generated name": {"name": REMOVED, "generateName": "made-"},
        "generated name in upper case": {"name": REMOVED, "generateName": "Made-"},
        "generated name overlong": {"name": REMOVED, "generateName": "m" * 260},
        "name and generated name": {"generateName": "Made-"},
        "resource version": {"resourceVersion": "12"},
        "uid of its own": {"uid": "mine"},
        "generation negative": {"generation": -1},
        "generation as text": {"generation": "two"},
        "creation timestamp as number": {"creationTimestamp": 7},
        "creation timestamp as text": {"creationTimestamp": "yesterday"},
        "creation timestamp null": {"creationTimestamp": None},
        "deletion timestamp": {"deletionTimestamp": "2026-01-05T10:00:00Z"},
        "deletion grace period": {"deletionGracePeriodSeconds": 5},
        "self link": {"selfLink": "/somewhere"},
        "label key in two domains": {"labels": {"a/b/c": "x"}},
        "label key empty": {"labels": {"": "x"}},
        "label key overlong": {"labels": {"k" * 64: "x"}},
        "label value with spaces": {"labels": {"key": "two words"}},
        "label value overlong": {"labels": {"key": "v" * 64}},
        "label value as number": {"labels": {"key": 1}},
        "label value as boolean": {"labels": {"key": True}},
        "label value null": {"labels": {"key": None}},
        "labels as list": {"labels": ["key"]},
        "labels null": {"labels": None},
        "annotation key bad": {"annotations": {"a b": "x"}},
        "annotation key in upper case": {"annotations": {"Example.COM/Key": "x"}},
        "annotations too large": {"annotations": {"key": "v" * (256 * 1024 + 1)}},
        "annotation as number": {"annotations": {"key": 1}},
        "annotations as text": {"annotations": "key"},
        "finalizer without domain": {"finalizers": ["mine"]},
        "finalizer with domain": {"finalizers": ["example.com/mine"]},
        "finalizer bad": {"finalizers": ["example.com/not valid"]},
        "finalizer empty": {"finalizers": [""]},
        "finalizers orphan and foreground": {"finalizers": ["orphan", "foregroundDeletion"]},
        "finalizers as text": {"finalizers": "example.com/mine"},
        "finalizers with number": {"finalizers": [1]},
        "owner": {"ownerReferences": [_OWNER]},
        "owner without uid": {"ownerReferences": [{**_OWNER, "uid": ""}]},
        "owner without name": {"ownerReferences": [{**_OWNER, "name": ""}]},
        "owner without kind": {"ownerReferences": [{**_OWNER, "kind": ""}]},
        "owner without version": {"ownerReferences": [{**_OWNER, "apiVersion": ""}]},
        "owner of a bad version": {"ownerReferences": [{**_OWNER, "apiVersion": "a/b/c"}]},
        "owner is an event": {"ownerReferences": [{**_OWNER, "kind": "Event"}]},
        "owners that both control": {
            "ownerReferences": [
                {**_OWNER, "controller": True},
                {
                    **_OWNER,
                    "name": "other",
                    "uid": "5d1cd0a6-7d9c-4d2b-a0a4-2d9d4e5c6f04",
                    "controller": True,
                },
            ]
        },
        "owner twice": {"ownerReferences": [_OWNER, _OWNER]},
        "owner with unknown field": {"ownerReferences": [{**_OWNER, "unknownField": 1}]},
        "owners as object": {"ownerReferences": {}},
        "managed fields bad": {"managedFields": [{"manager": "m", "operation": "Wrong"}]},
        "managed fields of a bad type": {"managedFields": [{"manager": "m", "fieldsType": "Other"}]},
        "unknown field": {"unknownField": 1},
    }
)

ON_UPDATE: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "name of another": {"name": "another"},
        "name removed": {"name": REMOVED},
        "uid of another": {"uid": "5d1cd0a6-7d9c-4d2b-a0a4-2d9d4e5c6f05"},
        "uid removed": {"uid": REMOVED},
        "resource version removed": {"resourceVersion": REMOVED},
        "resource version of zero": {"resourceVersion": "0"},
        "resource version old": {"resourceVersion": "1"},
        "resource version as text": {"resourceVersion": "newest"},
        "resource version as number": {"resourceVersion": 1},
        "creation timestamp changed": {"creationTimestamp": "2020-01-05T10:00:00Z"},
        "deletion timestamp set": {"deletionTimestamp": "2026-01-05T10:00:00Z"},
        "deletion grace period set": {"deletionGracePeriodSeconds": 5},
        "generation changed": {"generation": 99},
        "generate name set": {"generateName": "made-"},
        "label bad": {"labels": {"key": "two words"}},
        "annotation key bad": {"annotations": {"a b": "x"}},
        "finalizer without domain": {"finalizers": ["mine"]},
        "finalizer with domain": {"finalizers": ["example.com/mine"]},
        "owner without uid": {"ownerReferences": [{**_OWNER, "uid": ""}]},
        "unknown field": {"unknownField": 1},
        "managed fields removed": {"managedFields": []},
    }
)

_NAMESPACE: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "namespace of another": {"namespace": "admin"},
        "namespace that does not exist": {"namespace": "missing"},
        "namespace bad": {"namespace": "Not_Valid"},
        "namespace removed": {"namespace": REMOVED},
        "namespace as number": {"namespace": 7},
    }
)


def list_metadata_cases(base: Base, position: int) -> Iterator[Case]:
    """Yield the cases of one object: all for a thorough one, a share for others."""
    new, update = base.build_new(), base.build_update()
    rows = [
        ("POST", base.collection, new, name, change) for name, change in {**ON_CREATE, **_NAMESPACE}.items()
    ]
    rows += [("PUT", base.path, update, name, change) for name, change in {**ON_UPDATE, **_NAMESPACE}.items()]
    for number, (method, path, document, name, change) in enumerate(rows):
        if (number + position) % base.share:
            continue
        metadata = {**document["metadata"], **change}
        metadata = {field: value for field, value in metadata.items() if value != REMOVED}
        # A server looks at the version only when it stores the object.
        query = {} if name == "resource version" else {"dryRun": "All"}
        verb = "create" if method == "POST" else "update"
        yield Case(
            f"{base.name}/{verb}/metadata: {name}",
            base,
            method,
            path,
            {**document, "metadata": metadata},
            query=query,
        )
