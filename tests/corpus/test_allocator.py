"""Allocator vectors of the corpus: the answer of Kubernetes, or one that a decision of ours explains.

Also, on every vector: the inputs are as they were, and the model of Kubernetes, with which differences are
judged, gives the answer on record wherever it is not too large for it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.api.json_text import ENCODER
from dray.simulation.vectors.comparison import (
    TIMEOUTS,
    VectorComparison,
    VectorStanding,
    compare_answer,
    matches_ours,
    matches_record,
)
from dray.simulation.vectors.reference.departures import ALL_DEPARTURES, Departure
from dray.simulation.vectors.reference.prediction import predict
from dray.simulation.vectors.vector import Vector, answer_vector, read_vector
from tests.corpus.conftest import SUMMARY
from tests.outside import NO_CORPUS, corpus_dir

JUDGE = AllocatorGateFilter.from_overrides({}).build_selector_evaluator()

PARTS = ("allocator", "probes", "random", "realistic", "examination")

STEPS = 20_000
"""Of the model, where it is only checked; almost all vectors need less."""


def _documents(corpus: Path, part: str) -> Iterator[dict[str, Any]]:
    lines = corpus / f"{part}.jsonl"
    if lines.exists():
        with lines.open(encoding="utf-8") as read:
            yield from map(json.loads, read)
    else:
        for path in sorted((corpus / part).glob("*.json")):
            yield json.loads(path.read_text("utf-8"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "document" not in metafunc.fixturenames:
        return
    corpus = corpus_dir(metafunc.config)
    if corpus is None:
        metafunc.parametrize("document", [pytest.param(None, marks=pytest.mark.skip(reason=NO_CORPUS))])
        return
    found = [document for part in PARTS for document in _documents(corpus, part)]
    metafunc.parametrize("document", found, ids=[document["name"] for document in found])


def _judge(vector: Vector) -> VectorComparison:
    return compare_answer(vector, answer_vector(vector, JUDGE), JUDGE)


def test_vector(document: dict[str, Any]) -> None:
    vector = read_vector(document)
    before = _written(vector)
    verdict = _judge(vector)
    assert _written(vector) == before, "the allocator changed its input"
    ours, theirs = "\n".join(verdict.ours.render_lines()), "\n".join(vector.recorded.render_lines())
    assert verdict.is_good, f"{verdict.because}\nKubernetes: {theirs}\nours: {ours}"
    if "decided" in document:
        assert verdict.standing in (VectorStanding.EQUAL, VectorStanding.DECIDED)


def test_model(document: dict[str, Any]) -> None:
    vector = read_vector(document)
    if vector.extras.derived or any(words in vector.recorded.text for words in TIMEOUTS):
        return
    theirs = predict(vector, JUDGE, max_steps=STEPS)
    assert theirs is None or matches_record(theirs, vector.recorded), theirs.summary
    ours = predict(vector, JUDGE, ALL_DEPARTURES, max_steps=STEPS)
    found = answer_vector(vector, JUDGE)
    assert ours is None or matches_ours(ours, found), f"model: {ours.summary}\nours: {found.summary}"


def _written(vector: Vector) -> bytes:
    return ENCODER.encode((vector.node, vector.classes, vector.slices, vector.claims, vector.held))


@pytest.fixture(scope="module")
def verdicts(corpus: Path) -> dict[str, list[VectorComparison]]:
    return {part: [_judge(read_vector(document)) for document in _documents(corpus, part)] for part in PARTS}


def test_most_answers_are_equal(
    verdicts: dict[str, list[VectorComparison]], pytestconfig: pytest.Config
) -> None:
    for part, evaluate_toy in verdicts.items():
        counts = Counter(verdict.standing for verdict in evaluate_toy)
        if part != "examination":
            assert counts[VectorStanding.EQUAL] > counts.total() * 0.8
        parts = " · ".join(f"{counts[standing]} {standing.value}" for standing in VectorStanding)
        pytestconfig.stash[SUMMARY].append(f"{part}: {counts.total()} vectors · {parts}")


def test_departures_without_a_vector_are_known(verdicts: dict[str, list[VectorComparison]]) -> None:
    """They have questions of their own in the tests of verdicts."""
    used = {
        name for evaluate_toy in verdicts.values() for verdict in evaluate_toy for name in verdict.departures
    }
    assert set(Departure) - used <= {
        *(Departure.PRIORITY, Departure.ALL_UNREACHED, Departure.NEGATIVE_DRAWS, Departure.WHOLE_POOL),
        *(Departure.REACHED_ONLY, Departure.SHARING_OFF, Departure.BOTH_CONSTRAINTS),
        *(Departure.NEGATIVE_COUNT, Departure.NEGATIVE_AMOUNT, Departure.BAD_NODE_SELECTOR),
    }
