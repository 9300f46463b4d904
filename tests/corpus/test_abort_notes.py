"""Notes about Kubernetes are true: one where it aborts and we allocate, none where it answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.allocator.allocate import search_nodes
from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.usage import DeviceUsage
from dray.allocator.requests import normalize_claims
from dray.allocator.search.trace import SearchEnding, Solved
from dray.errors import UnanswerableClaimError
from dray.explain import KubernetesAbort, find_abort
from dray.simulation.vectors.answers import AnswerKind
from dray.simulation.vectors.vector import Vector, read_vector
from tests.outside import NO_CORPUS, corpus_dir

NOTED = ("constraint would not be satisfied", "asks for all devices, but", "CEL", "cannot be represented")
"""Parts of the errors that notes are about; others are crashes and time-outs."""


def _vectors(corpus: Path) -> Iterator[Vector]:
    documents: list[dict[str, Any]] = [
        json.loads(path.read_text("utf-8"))
        for part in ("allocator", "probes")
        for path in sorted((corpus / part).glob("*.json"))
    ]
    for name in ("random.jsonl", "realistic.jsonl"):
        with (corpus / name).open(encoding="utf-8") as lines:
            documents += map(json.loads, lines)
    yield from map(read_vector, documents)


def _asked(vector: Vector) -> tuple[SearchEnding, KubernetesAbort | None] | None:
    gate_filter = AllocatorGateFilter.from_overrides(vector.gate_overrides)
    try:
        inventory = DeviceInventory(
            gate_filter.admit_slices(vector.slices),
            vector.classes,
            DeviceUsage.from_claims(vector.held),
            gate_filter.build_selector_evaluator(),
        )
        ask = normalize_claims(gate_filter.admit_claims(vector.claims), inventory.classes.get)
    except UnanswerableClaimError:
        return None
    looked_at = list(search_nodes(inventory, ask, [vector.node]))
    return looked_at[0][1], find_abort(ask, looked_at)


def test_notes_say_what_kubernetes_does(request: pytest.FixtureRequest) -> None:
    corpus = corpus_dir(request.config)
    if corpus is None:
        pytest.skip(NO_CORPUS)
    false, missing, noted = [], [], 0
    for vector in _vectors(corpus):
        asked = _asked(vector)
        if asked is None:
            continue
        ending, abort = asked
        recorded = vector.recorded
        if recorded.kind in (AnswerKind.ALLOCATED, AnswerKind.REFUSED):
            false += [vector.name] if abort is not None else []
        elif recorded.kind is AnswerKind.FAULT and any(part in recorded.text for part in NOTED):
            noted += abort is not None
            if isinstance(ending, Solved) and abort is None and not vector.extras.needs_unbuilt:
                missing.append(vector.name)
    assert (false, missing) == ([], [])
    assert noted > 50
