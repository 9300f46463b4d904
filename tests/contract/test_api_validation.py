"""The server and the reader of manifest files validate alike: the same errors, the same dropped fields."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dray.api.kinds import parse_document_kind
from dray.api.strategies.gated_fields import FeatureGateFilter
from dray.gates import GATES, GateSet
from dray.manifests import ManifestDocument, ManifestSource, read_documents
from dray.simulation.bundle import BundleError, build_bundle
from tests.contract.api import Api, path, serving
from tests.outside import NO_CORPUS, ROOT, corpus_dir

NOW = "2026-01-31T12:00:00Z"
NAMESPACES = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    for name, labels in {
        "ml": {},
        "team": {},
        "monitoring": {"resource.kubernetes.io/admin-access": "true"},
    }.items()
]
JUDGED = ("ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass", "DeviceTaintRule", "Pod")

PLURALS = ("resourceclaims", "resourceclaimtemplates", "resourceslices", "deviceclasses", "nodes", "pods")
ALLOCATION = {
    "devices": {
        "results": [
            {"request": "gpu", "driver": "gpu.example.com", "pool": "node-b", "device": "gpu-0"},
        ]
    }
}

Verdict = tuple[bool, frozenset[str]]
"""Whether an object is accepted, and the fields that are dropped from it."""


def _switched() -> Iterator[Any]:
    yield pytest.param(GateSet.from_defaults(), id="default")
    for gate in GATES:
        needing = [name for name, other in GATES.items() if gate in other.requires]
        if len(needing) < len(GATES) - 1:  # without the first gate nothing is served
            off = GateSet.from_defaults().override(dict.fromkeys([gate, *needing], False))
            yield pytest.param(off, id=gate)


def _examples() -> Iterator[dict[str, Any]]:
    for file in sorted((ROOT / "examples" / "gpu-cluster").glob("*.yaml")):
        yield from (found for found in yaml.safe_load_all(file.read_text()) if found["kind"] in JUDGED)


def _changed(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The object, and objects that are like it with one value replaced by something odd."""
    text = json.dumps(document)
    yield document
    for old, new in (
        ('"name": "', '"name": "A_'),
        ('"count": ', '"count": -'),
        ('"value": "', '"value": "-'),
        ('"generation": 1', '"generation": -1'),
        ('"deviceClassName": "', '"deviceClassName": "/'),
        ('"expression": "', '"expression": "nothing.'),
        ('"nodeName": "', '"allNodes": true, "nodeName": "'),
        ('"namespace": "monitoring"', '"namespace": "team"'),
        ('"effect": "', '"effect": "Odd'),
        ('"resourceClaimTemplateName": "', '"resourceClaimName": "x", "resourceClaimTemplateName": "'),
    ):
        if old in text:
            yield json.loads(text.replace(old, new, 1))


def _documents(*objects: dict[str, Any]) -> list[ManifestDocument]:
    return [
        document
        for one in objects
        for document in read_documents(ManifestSource.decode("f.json", json.dumps(one).encode()))
    ]


def _by_files(document: dict[str, Any], gates: GateSet) -> Verdict:
    try:
        found = build_bundle(_documents(*NAMESPACES, document), now=NOW, gates=FeatureGateFilter(gates))
    except BundleError:
        return False, frozenset()
    if found.invalid:
        return False, frozenset()
    return True, frozenset(warning.rpartition("`")[0].rpartition("`")[2] for warning in found.warnings)


async def _by_server(api: Api, document: dict[str, Any]) -> Verdict:
    kind, version = parse_document_kind(document)
    namespace = document["metadata"].get("namespace") or "default"
    where = path(
        kind.plural, namespace=namespace if kind.namespaced else "", version=version, group=kind.group
    )
    response = await api.ask("POST", where, document, dryRun="All")
    assert response.code in (201, 400, 404, 422), response.document
    if response.code != 201:
        return False, frozenset()
    warnings = response.warnings.split("dropped, because feature gate `")[1:]
    return True, frozenset(warning.partition("`")[0] for warning in warnings)


@pytest.mark.parametrize("gates", list(_switched()))
async def test_the_server_and_the_file_reader_report_the_same_errors(gates: GateSet) -> None:
    async with serving(gates=gates) as api:
        for namespace in NAMESPACES:
            await api.create(namespace)
        verdicts = []
        for example in _examples():
            if example["kind"] == "ResourceSlice" and gates != GateSet.from_defaults():
                continue  # in files a slice keeps the fields of closed gates: it says what hardware is there
            for document in _changed(example):
                verdict = _by_files(document, gates)
                assert verdict == await _by_server(api, document), document
                verdicts.append(verdict[0])
    assert {True, False} == set(verdicts)


async def test_an_object_read_from_the_server_can_be_written_back() -> None:
    async with serving() as api:
        for namespace in NAMESPACES:
            await api.create(namespace)
        for example in _examples():
            await api.create(example)
        given = [await api.get(path(plural, namespace="")) for plural in PLURALS]
    held = next(item for item in given[0]["items"] if item["metadata"]["name"] == "notebook")
    held["status"] = {
        "allocation": ALLOCATION,
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    }
    found = build_bundle(_documents(*given), now=NOW, gates=FeatureGateFilter(GateSet.from_defaults()))
    assert (found.invalid, found.warnings) == ((), ())
    assert len(found.claims) + len(found.slices) + len(found.pods) > 8
    assert [claim.metadata.name for claim in found.claims if claim.status.allocation] == ["notebook"]


async def test_the_test_cases_of_kubernetes_have_the_same_results(request: pytest.FixtureRequest) -> None:
    corpus = corpus_dir(request.config)
    if corpus is None:
        pytest.skip(NO_CORPUS)
    gates = GateSet.from_defaults()
    judged = 0
    async with serving(gates=gates) as api:
        for namespace in NAMESPACES:
            await api.create(namespace)
        for file in sorted((corpus / "validation").glob("*.json")):
            case = json.loads(Path(file).read_text())
            document = case.get("object")
            if case["operation"] != "create" or document is None or document["kind"] not in JUDGED:
                continue
            document.pop("status", None)  # a server takes it away from what is new
            document["metadata"].pop("resourceVersion", None)  # what has one comes out of a server
            if document["metadata"].get("namespace"):
                document["metadata"]["namespace"] = "ml"
            assert _by_files(document, gates) == await _by_server(api, document), file.name
            judged += 1
    assert judged > 100
