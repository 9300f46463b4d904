"""Every case of the allocator has the expected result and the expected explanation."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import yaml

from dray.explain import DiagnosisVerdict
from tests.cases.allocator_notation import CaseError, Document, listed
from tests.cases.allocator_runner import Case, CaseRunner, StepOutcome, cases

FOLDER = Path(__file__).parent / "allocator"
CASES = [case for source in sorted(FOLDER.glob("*.yaml")) for case in cases(source)]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_case(case: Case) -> None:
    run(case)


RIGHT = {
    "case": "two of three",
    "devices": "gpu-0 numa=0; gpu-1 numa=1; gpu-2 numa=0",
    "claim": "gpu x2, same numa",
    "solved": ["gpu-0", "gpu-2"],
    "refused": {"gpu-1": "ConstraintViolated"},
    "explains": "gpu-1 with numa 1",
    "events_at_most": 3,
}
SHORT = {
    "case": "too little is left",
    "devices": "gpu-0 shared memory:10Gi",
    "taken": {"ml/old": "gpu-0 memory:7Gi"},
    "claim": "gpu memory:5Gi",
    "refused": {"gpu-0": "CapacityShort"},
    "explains": "with 3Gi of `memory` left",
    "hint": ["asking for 3Gi", "giving back claim ml/old"],
}
WRONG: dict[str, tuple[Document, Document]] = {
    "another device": (RIGHT, {"solved": ["gpu-0", "gpu-1"]}),
    "another order": (RIGHT, {"solved": ["gpu-2", "gpu-0"]}),
    "another request": (RIGHT, {"solved": {"nic": ["gpu-0", "gpu-2"]}}),
    "a share": (RIGHT, {"solved": ["gpu-0 share", "gpu-2 share"]}),
    "another reason": (RIGHT, {"refused": {"gpu-1": "InUse"}}),
    "no reason": (RIGHT, {"refused": {}}),
    "another node": (RIGHT, {"chosen": "node-2"}),
    "configuration": (RIGHT, {"config": ["FromClaim a=b"]}),
    "other words": (RIGHT, {"explains": "gpu-1 with numa 2"}),
    "no words": (RIGHT, {"explains": []}),
    "fewer events": (RIGHT, {"events_at_most": 2}),
    "an object nobody could write": (
        RIGHT,
        {"devices": "gpu-0 numa=0; gpu-1 numa=1 c:5(default=1); gpu-2 numa=0"},
    ),
    "a fault": (RIGHT, {"fault": "no"}),
    "a misspelt key": (RIGHT, {"solvd": []}),
    "a misspelt word": (RIGHT, {"claim": "gpu times-2"}),
    "no rows": (RIGHT, {"rows": []}),
    "a solution": (SHORT, {"solved": ["gpu-0 memory:5Gi"]}),
    "another hint": (SHORT, {"hint": ["asking for 4Gi", "giving back claim ml/old"]}),
    "one hint less": (SHORT, {"hint": "asking for 3Gi"}),
    "one hint more": (SHORT, {"hint": [*SHORT["hint"], "praying"]}),
    "somebody unknown lets go": (SHORT, {"released": ["ml/nobody"]}),
    "a wrong step": (RIGHT, {"then": [{"claim": "gpu", "solved": ["gpu-0"], "explains": "first"}]}),
}


@pytest.mark.parametrize("case", [RIGHT, SHORT], ids=["solved", "refused"])
def test_a_case_that_is_right_passes(case: Document, tmp_path: Path) -> None:
    run(*read(case, tmp_path))


@pytest.mark.parametrize("change", WRONG)
def test_a_case_that_is_wrong_fails(change: str, tmp_path: Path) -> None:
    case, changed = WRONG[change]
    with pytest.raises((AssertionError, CaseError, KeyError)):
        run(*read({**case, **changed}, tmp_path))


def read(case: Document, folder: Path) -> list[Case]:
    source = folder / "wrong.yaml"
    source.write_text(yaml.safe_dump([case]), "utf-8")
    return list(cases(source))


def run(case: Case) -> None:
    """Run a case step by step, and compare every expected value."""
    runner = CaseRunner()
    for number, step in enumerate(case.steps):
        outcome = runner.run_step(number, step)
        page = f"step {number + 1}\n{outcome.page}"
        for what, expected, found in compared(step, outcome):
            assert found == expected, f"{what}, {page}"


def compared(step: Document, outcome: StepOutcome) -> list[tuple[str, Any, Any]]:
    """What a step says and what was found, pair by pair."""
    verdict = (
        DiagnosisVerdict.FITS
        if "solved" in step
        else DiagnosisVerdict.FAULTY
        if "fault" in step
        else DiagnosisVerdict.REFUSED
    )
    pairs: list[tuple[str, Any, Any]] = [
        ("invalid", step.get("invalid", []), outcome.invalid),
        ("verdict", verdict, outcome.verdict),
        ("explains", [], missing(step["explains"], outcome.page)),
    ]
    if "solved" in step:
        pairs.append(("solved", *solution(step["solved"], outcome)))
    if "refused" in step or verdict is DiagnosisVerdict.REFUSED:
        if "refused" not in step:
            raise CaseError("a case says what is `solved`, `refused` or a `fault`")
        pairs.append(("refused", *refusals(step["refused"], outcome)))
    if "fault" in step:
        pairs.append(("fault", step["fault"], outcome.fault))
    for key, found in (("chosen", outcome.node), ("config", outcome.config)):
        if key in step:
            pairs.append((key, step[key], found))
    if "hint" in step:
        hints = zip_longest(listed(step["hint"]), outcome.hints, fillvalue="")
        pairs.append(("hint", [], [pair for pair in hints if not pair[0] or pair[0] not in pair[1]]))
    if "events_at_most" in step:
        pairs.append(("events_at_most", True, outcome.events <= step["events_at_most"]))
    return pairs


def missing(said: Any, page: str) -> list[str]:
    """Words that are not on the page; there must be some to look for."""
    texts = [" ".join(text.split()) for text in listed(said)]
    assert texts, "a case says what is explained"
    assert all(texts), "a case says what is explained"
    return [text for text in texts if text not in page]


def solution(said: Any, outcome: StepOutcome) -> tuple[Any, Any]:
    """The devices as the case lists them: all in order, by request, or by claim and request."""
    if isinstance(said, list):
        return said, [line for results in outcome.results.values() for _, line in results]
    several = len(outcome.results) > 1
    by_claim = said if several else {next(iter(outcome.results), ""): said}
    expected = {
        name: entry if isinstance(entry, list) else {request: listed(line) for request, line in entry.items()}
        for name, entry in by_claim.items()
    }
    found: dict[str, Any] = {}
    for name, results in outcome.results.items():
        if isinstance(expected.get(name), list):
            found[name] = [line for _, line in results]
            continue
        found[name] = {}
        for request, line in results:
            found[name].setdefault(request, []).append(line)
    return expected, found


def refusals(said: dict[str, Any], outcome: StepOutcome) -> tuple[Any, Any]:
    """Reasons; where a case names one for a device, it is the only one."""
    found: dict[str, Any] = {}
    for name, reasons in outcome.refused.items():
        distinct = sorted(set(reasons.values()))
        plain = isinstance(said.get(name), str) and len(distinct) == 1
        found[name] = distinct[0] if plain else reasons
    return said, found
