"""Patches of one part of an object: the server looks at nothing else, and answers as if it had looked at
everything.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.contract.api import MERGE, STRATEGIC, Api, ServerResponse, path, serving
from tests.contract.documents import allocation, claim, node, pod, template

_CONDITION = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
_TIME = re.compile(r"'time': '[^']*'")
_ANY: tuple[dict[str, Any], ...] = (
    {},
    {"status": None},
    {"status": {}},
    {"status": {"conditions": [_CONDITION]}},
    {"status": {"conditions": [_CONDITION, {"type": "Ready", "$patch": "delete"}]}},
    {"status": {"conditions": "none"}},
    {"status": {"unknownField": 1, "conditions": None}},
    {"status": {"$patch": "replace", "phase": "Running"}},
    {"metadata": {"labels": {"a": "b"}, "uid": "another"}, "status": {"phase": "Running"}},
    {"metadata": {"labels": {"a": "b"}, "unknownField": 1}, "status": {"phase": "Running"}},
    {"metadata": {"labels": {"a": 1}}},
    {"metadata": {"name": "other"}},
    {"metadata": {"resourceVersion": "1"}, "status": {"phase": "Running"}},
    {"metadata": {"managedFields": []}, "status": {"phase": "Running"}},
    {"metadata": {"managedFields": "none"}, "status": {"phase": "Running"}},
    {"metadata": None, "status": {"phase": "Running"}},
    {"kind": "Secret", "status": {"phase": "Running"}},
    {"apiVersion": None, "status": {"phase": "Running"}},
)
_CLAIMS: tuple[dict[str, Any], ...] = (
    {"status": {"allocation": allocation()}},
    {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}},
    {"status": {"devices": [{"driver": "gpu.example.com"}]}},
)
_PODS: tuple[dict[str, Any], ...] = (
    {"status": {"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "y"}]}},
    {"status": {"hostIP": "10.0.0.1", "containerStatuses": [{"name": "c", "image": "i", "ready": True}]}},
)


def _compare(short: ServerResponse, whole: ServerResponse) -> None:
    for answer in (short, whole):
        answer.document.pop("spec", None)
    assert (short.code, short.warnings) == (whole.code, whole.warnings)
    assert _TIME.sub("", str(short.document)) == _TIME.sub("", str(whole.document))


async def _patch(api: Api, where: str, patch: Any, kind: str, mode: str) -> ServerResponse:
    query = {"dryRun": "All", "fieldValidation": mode}
    return await api.ask("PATCH", where, patch, headers={"content-type": kind}, **query)


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
@pytest.mark.parametrize("mode", ["Strict", "Warn", "Ignore"])
async def test_a_patch_of_a_status_gives_what_it_gives_when_it_also_names_an_empty_spec(
    content_type: str, mode: str
) -> None:
    async with serving() as api:
        await api.create(claim("a"))
        await api.create(pod("a", labels={"kept": "1"}))
        await api.create(node("a"))
        for plural, patches in (
            ("pods", (*_ANY, *_PODS)),
            ("nodes", _ANY),
            ("resourceclaims", (*_ANY, *_CLAIMS)),
        ):
            where = path(plural, "a", sub="status")
            for patch in patches:
                short = await _patch(api, where, patch, content_type, mode)
                _compare(short, await _patch(api, where, {**patch, "spec": {}}, content_type, mode))


_METADATA: tuple[dict[str, Any], ...] = (
    {"finalizers": None},
    {"finalizers": ["example.com/b"]},
    {"$setElementOrder/finalizers": ["example.com/b", "example.com/a"], "finalizers": ["example.com/b"]},
    {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]},
    {"finalizers": "none"},
    {"labels": {"kept": None, "new": "1"}, "annotations": {"a": "b"}},
    {"labels": {"kept": 1}},
    {"labels": {"not valid": "1"}},
    {"ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Thing", "name": "q", "uid": "2"}]},
    {"ownerReferences": [{"uid": "1", "$patch": "delete"}]},
    {"managedFields": [{}]},
    {"managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsV1": {"f:a": {}}}]},
    {"uid": "another"},
    {"resourceVersion": "1"},
    {"generation": 7, "unknownField": 1},
    {"namespace": "other"},
    {"name": "other"},
    {"deletionTimestamp": None, "creationTimestamp": "2020-01-01T00:00:00Z"},
)


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
@pytest.mark.parametrize("mode", ["Strict", "Warn", "Ignore"])
async def test_a_patch_of_the_metadata_gives_what_it_gives_when_it_also_names_an_empty_spec(
    content_type: str, mode: str
) -> None:
    async with serving() as api:
        owner = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "p", "uid": "1"}
        finalizers = ["example.com/a", "example.com/c"]
        made: dict[str, Any] = {"labels": {"kept": "1"}, "finalizers": finalizers, "ownerReferences": [owner]}
        await api.create(claim("a", **made))
        await api.patch(path("resourceclaims", "a", sub="status"), _CLAIMS[0], MERGE)
        await api.create({**template("a"), "metadata": {"name": "a", "namespace": "default", **made}})
        for plural in ("resourceclaims", "resourceclaimtemplates"):
            for metadata in _METADATA:
                patch = {"metadata": metadata}
                short = await _patch(api, path(plural, "a"), patch, content_type, mode)
                whole = await _patch(api, path(plural, "a"), {**patch, "spec": {}}, content_type, mode)
                assert short.document.get("spec") == whole.document.get("spec")
                _compare(short, whole)


async def test_a_patch_of_a_status_keeps_a_spec_that_was_stored_unchecked() -> None:
    async with serving() as api:
        old = await api.create(pod("a"))
        spec = {**old["spec"], "fieldOfTheFuture": {"a": 1}}
        await api.plant({**old, "spec": spec})
        changed = await api.patch(path("pods", "a", sub="status"), {"status": {"phase": "Running"}}, MERGE)
        assert changed["spec"] == spec
        assert changed["status"]["phase"] == "Running"
