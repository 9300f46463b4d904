"""Every allocator vector of the corpus gets the answer of Kubernetes, or a listed one with a reason.

Also, on every vector: the inputs are as they were, and the referee finds nothing wrong with a solution.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dray.allocator.admit import Admission
from dray.allocator.verify import Given, verify
from dray.api.jsontext import ENCODER
from dray.sim.vectors import Answer, Kind, Vector, answer, read_vector
from dray.sim.verdicts import Known, Standing, Verdict
from tests.corpus.conftest import SUMMARY
from tests.outside import NO_CORPUS, corpus_dir

_LIST: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parent / "allocator_differences.yaml").read_text("utf-8")
)
KNOWN = Known.read(_LIST)
JUDGE = Admission.switched({}).judge()
MOST_LISTED = {"allocator": 30, "probes": 10, "random": 20}
"""How many vectors of each part may be listed one by one."""


def _documents(corpus: Path, part: str) -> Iterator[dict[str, Any]]:
    if part == "random":
        with (corpus / "random.jsonl").open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)
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
    found = [document for part in MOST_LISTED for document in _documents(corpus, part)]
    metafunc.parametrize("document", found, ids=[document["name"] for document in found])


def _judged(vector: Vector) -> Verdict:
    return KNOWN.judged(vector, answer(vector, JUDGE))


def test_vector(document: dict[str, Any]) -> None:
    vector = read_vector(document)
    before = _written(vector)
    verdict = _judged(vector)
    assert _written(vector) == before, "the allocator changed its input"
    assert verdict.good, (
        f"{verdict.standing}\nKubernetes: {vector.recorded.words}\nours: {verdict.ours.words}"
    )
    assert _complaints(vector, verdict.ours) == []


def _written(vector: Vector) -> bytes:
    return ENCODER.encode((vector.node, vector.classes, vector.slices, vector.claims, vector.held))


def _complaints(vector: Vector, ours: Answer) -> list[str]:
    """What the referee says about a solution."""
    if ours.kind is not Kind.ALLOCATED:
        return []
    door = Admission.switched(vector.switches)
    given = Given(tuple(door.slices(vector.slices)), vector.classes, vector.held, vector.node, JUDGE)
    return [str(finding) for finding in verify(given, door.claims(vector.claims), ours.results)]


@pytest.fixture(scope="module")
def verdicts(corpus: Path) -> dict[str, list[Verdict]]:
    return {
        part: [_judged(read_vector(document)) for document in _documents(corpus, part)]
        for part in MOST_LISTED
    }


@pytest.mark.parametrize("part", MOST_LISTED)
def test_the_list_is_short_and_nothing_hides_as_not_built(
    part: str, verdicts: dict[str, list[Verdict]], pytestconfig: pytest.Config
) -> None:
    counts = Counter(verdict.standing for verdict in verdicts[part])
    assert counts[Standing.NOT_BUILT] == _LIST["not_built"][part]
    assert counts[Standing.KNOWN] < MOST_LISTED[part]
    assert counts[Standing.PASSED] > counts.total() * 0.8
    parts = " · ".join(f"{counts[standing]} {standing.value}" for standing in Standing if counts[standing])
    pytestconfig.stash[SUMMARY].append(f"{part}: {counts.total()} vectors · {parts}")


def test_every_entry_of_the_list_is_needed(verdicts: dict[str, list[Verdict]]) -> None:
    every = [verdict for judged in verdicts.values() for verdict in judged]
    names = {verdict.vector.name for verdict in every}
    assert KNOWN.differences.keys() <= names
    needed = {verdict.because for verdict in every if verdict.standing is Standing.REFUSED}
    assert needed == {abort.because for abort in KNOWN.aborts}
