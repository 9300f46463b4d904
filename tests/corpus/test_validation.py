"""Every validation case of the corpus gets the answer of Kubernetes, or a listed one with a reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dray.api.json_text import ENCODER
from tests.corpus.conftest import SUMMARY
from tests.corpus.validation_cases import Answer, Case, answer, load
from tests.outside import NO_CORPUS, corpus_dir

_DIFFERENCES: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parent / "validation_differences.yaml").read_text("utf-8")
)
NOT_BUILT: dict[str, str] = _DIFFERENCES["not_built"]
LISTED: dict[str, dict[str, Any]] = {entry["case"]: entry for entry in _DIFFERENCES["decided"]}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    folder = corpus_dir(metafunc.config)
    if folder is None:
        metafunc.parametrize("case", [pytest.param(None, marks=pytest.mark.skip(reason=NO_CORPUS))])
        return
    metafunc.parametrize("case", [pytest.param(case, id=case.name) for case in load(folder / "validation")])


def _listed(entry: dict[str, Any]) -> Answer:
    return frozenset((fault, field) for fault, field in (line.split(" ", 1) for line in entry["ours"]))


def test_case(case: Case) -> None:
    if case.unknown:
        assert case.unknown <= NOT_BUILT.keys(), "a field that is neither known nor listed as not built"
        assert case.name not in LISTED, "not built, so there is nothing to compare"
        return
    before = [_written(item) for item in case.objects]
    ours = answer(case.evaluator())
    assert [_written(item) for item in case.objects] == before, "validation changed its input"
    entry = LISTED.get(case.name)
    if entry is None:
        assert ours == case.expected
    else:
        assert ours == _listed(entry)
        assert ours != case.expected, "equal to Kubernetes now: take it off the list"


def _written(item: msgspec.Struct) -> bytes:
    return ENCODER.encode(item)


@pytest.fixture(scope="module")
def cases(corpus: Path) -> list[Case]:
    return list(load(corpus / "validation"))


def test_every_listed_case_exists(cases: list[Case]) -> None:
    assert LISTED.keys() <= {case.name for case in cases}


def test_everything_listed_as_not_built_is_still_missing(cases: list[Case]) -> None:
    assert frozenset[str]().union(*(case.unknown for case in cases)) == NOT_BUILT.keys()


def test_count(cases: list[Case], pytestconfig: pytest.Config) -> None:
    """Printed after the run; the sum is the point, so that no case is lost on the way."""
    counts = Counter(_standing(case) for case in cases)
    assert counts.total() == len(cases)
    assert counts["equal"] > len(cases) / 2
    parts = " · ".join(f"{counts[name]} {name}" for name in _STANDINGS)
    pytestconfig.stash[SUMMARY].append(f"validation: {len(cases)} cases · {parts}")


_STANDINGS = ("equal", "different by decision", "not built")


def _standing(case: Case) -> str:
    if case.unknown:
        return "not built"
    return "different by decision" if case.name in LISTED else "equal"
