"""Replaying the history of recorded objects gives their recorded entries."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from dray.api.kinds import parse_document_kind
from dray.server.patch.managed_fields.field_comparison import compare_documents
from dray.server.patch.managed_fields.field_ownership import apply_configuration, update_managed_fields
from dray.server.patch.managed_fields.field_set import FieldSet
from dray.server.patch.schema.kind_structures import get_structure
from tests.outside import corpus_dir
from tests.unit.server.patch.kinds import CLAIM, POD

ADMITTED = ("tolerations", "priority", "preemptionPolicy")
"""What admission added to the recorded pods after their creator's fields were noted."""


def recorded(config, name):
    corpus = corpus_dir(config)
    path = corpus.parent / "api-samples" / name if corpus else Path(name)
    if not path.is_file():
        pytest.skip(f"no recorded watch `{name}` (api-samples) beside the corpus")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    return [event["object"] for event in events if event["type"] != "BOOKMARK"]


def entries(document):
    return document["metadata"].get("managedFields", [])


def bare(document, without=()):
    metadata = {name: value for name, value in document["metadata"].items() if name != "managedFields"}
    spec = {name: value for name, value in document["spec"].items() if name not in without}
    return {**document, "metadata": metadata, "spec": spec}


def by_uid(objects):
    histories: dict = {}
    for document in objects:
        histories.setdefault(document["metadata"]["uid"], []).append(document)
    return list(histories.values())


def writer(entry):
    return entry["manager"], entry["operation"], entry.get("subresource", "")


def test_created_pods_are_owned_as_recorded(pytestconfig):
    histories = by_uid(recorded(pytestconfig, "watch_rv1.jsonl"))
    assert len(histories) >= 3
    for first, *_ in histories:
        (entry,) = entries(first)
        made = update_managed_fields(
            POD, None, bare(first, ADMITTED), manager=entry["manager"], now=entry["time"]
        )
        assert made == [entry]


def test_ownership_of_pods_changes_as_recorded(pytestconfig):
    """Each recorded change is written again by whoever is newly named, and gives the recorded entries."""
    replayed = set()
    for history in by_uid(recorded(pytestconfig, "watch_rv1.jsonl")):
        for old, new in pairwise(history):
            newest = [entry for entry in entries(new) if entry not in entries(old)]
            if not newest:
                continue  # a binding: Kubernetes gives no owner to what it writes
            (entry,) = newest
            manager, operation, subresource = writer(entry)
            options = {"manager": manager, "now": entry["time"], "subresource": subresource}
            if operation == "Apply":
                claims = new["status"]["resourceClaimStatuses"]
                wanted = {"metadata": {"name": "p"}, "status": {"resourceClaimStatuses": claims}}
                made = apply_configuration(POD, old, wanted, force=True, **options).managed_fields
            else:
                made = update_managed_fields(POD, old, bare(new), **options)
            assert made == entries(new)
            replayed.add(operation)
    assert replayed == {"Apply", "Update"}


def test_claims_are_owned_as_recorded(pytestconfig):
    """Every recorded claim, made in the steps its entries tell of, ends with the recorded entries."""
    claims = recorded(pytestconfig, "watchlist_resourceclaims.jsonl")
    assert len(claims) >= 4
    for claim in claims:
        document, made = None, []
        for entry in entries(claim):
            step = as_written(claim, entry, document)
            made = update_managed_fields(
                CLAIM,
                document,
                step,
                manager=entry["manager"],
                now=entry["time"],
                subresource=entry.get("subresource", ""),
            )
            document = {**step, "metadata": {**step["metadata"], "managedFields": made}}
        assert made == entries(claim)


def as_written(claim, entry, before):
    """The claim with everything an entry owns, and what was there before."""
    parts = {part.removeprefix("f:") for part in entry["fieldsV1"]}
    step = {**bare(before if before is not None else {"metadata": {}, "spec": {"devices": {}}})}
    for part in parts - {"metadata"}:
        step[part] = claim[part]
    named = {name.removeprefix("f:") for name in entry["fieldsV1"].get("f:metadata", {})}
    step["metadata"] = {**step["metadata"], **{name: claim["metadata"][name] for name in named}}
    return step


def test_the_fields_of_a_recorded_object_are_all_its_entries_together(pytestconfig):
    for claim in recorded(pytestconfig, "watchlist_resourceclaims.jsonl"):
        kind, _ = parse_document_kind(claim)
        together = FieldSet({})
        for entry in entries(claim):
            together = together.union(FieldSet.parse(entry["fieldsV1"]))
        own = {"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "managedFields"}
        metadata = {name: value for name, value in claim["metadata"].items() if name not in own}
        document = {"metadata": metadata, "spec": claim["spec"], "status": claim["status"]}
        assert FieldSet(compare_documents(get_structure(kind), {}, document).changed) == together
