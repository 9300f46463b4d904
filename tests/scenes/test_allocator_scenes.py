"""Every scene of the allocator ends as it says, and is explained in the words it says."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import yaml

from dray.explain import DiagnosisVerdict
from tests.scenes.allocator_scenes import Case, Stage, Told, cases
from tests.scenes.allocator_words import Document, SceneError, listed

FOLDER = Path(__file__).parent / "allocator"
CASES = [case for source in sorted(FOLDER.glob("*.yaml")) for case in cases(source)]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_scene(case: Case) -> None:
    play(case)


HONEST = {
    "scene": "two of three",
    "devices": "gpu-0 numa=0; gpu-1 numa=1; gpu-2 numa=0",
    "claim": "gpu x2, same numa",
    "solved": ["gpu-0", "gpu-2"],
    "refused": {"gpu-1": "ConstraintViolated"},
    "explains": "gpu-1 with numa 1",
    "beats_at_most": 3,
}
SHORT = {
    "scene": "too little is left",
    "devices": "gpu-0 shared memory:10Gi",
    "taken": {"ml/old": "gpu-0 memory:7Gi"},
    "claim": "gpu memory:5Gi",
    "refused": {"gpu-0": "CapacityShort"},
    "explains": "with 3Gi of `memory` left",
    "hint": ["asking for 3Gi", "giving back claim ml/old"],
}
LIES: dict[str, tuple[Document, Document]] = {
    "another device": (HONEST, {"solved": ["gpu-0", "gpu-1"]}),
    "another order": (HONEST, {"solved": ["gpu-2", "gpu-0"]}),
    "another request": (HONEST, {"solved": {"nic": ["gpu-0", "gpu-2"]}}),
    "a share": (HONEST, {"solved": ["gpu-0 share", "gpu-2 share"]}),
    "another reason": (HONEST, {"refused": {"gpu-1": "InUse"}}),
    "no reason": (HONEST, {"refused": {}}),
    "another node": (HONEST, {"chosen": "node-2"}),
    "configuration": (HONEST, {"config": ["FromClaim a=b"]}),
    "other words": (HONEST, {"explains": "gpu-1 with numa 2"}),
    "no words": (HONEST, {"explains": []}),
    "fewer beats": (HONEST, {"beats_at_most": 2}),
    "an object nobody could write": (
        HONEST,
        {"devices": "gpu-0 numa=0; gpu-1 numa=1 c:5(default=1); gpu-2 numa=0"},
    ),
    "a fault": (HONEST, {"fault": "no"}),
    "a misspelt key": (HONEST, {"solvd": []}),
    "a misspelt word": (HONEST, {"claim": "gpu times-2"}),
    "no rows": (HONEST, {"rows": []}),
    "a solution": (SHORT, {"solved": ["gpu-0 memory:5Gi"]}),
    "another hint": (SHORT, {"hint": ["asking for 4Gi", "giving back claim ml/old"]}),
    "one hint less": (SHORT, {"hint": "asking for 3Gi"}),
    "one hint more": (SHORT, {"hint": [*SHORT["hint"], "praying"]}),
    "somebody unknown lets go": (SHORT, {"released": ["ml/nobody"]}),
    "a step that lies": (HONEST, {"then": [{"claim": "gpu", "solved": ["gpu-0"], "explains": "first"}]}),
}


@pytest.mark.parametrize("scene", [HONEST, SHORT], ids=["solved", "refused"])
def test_an_honest_scene_is_believed(scene: Document, tmp_path: Path) -> None:
    play(*read(scene, tmp_path))


@pytest.mark.parametrize("lie", LIES)
def test_a_scene_that_lies_is_caught(lie: str, tmp_path: Path) -> None:
    scene, change = LIES[lie]
    with pytest.raises((AssertionError, SceneError, KeyError)):
        play(*read({**scene, **change}, tmp_path))


def read(scene: Document, folder: Path) -> list[Case]:
    source = folder / "lies.yaml"
    source.write_text(yaml.safe_dump([scene]), "utf-8")
    return list(cases(source))


def play(case: Case) -> None:
    """Play a scene step by step, and compare everything that it says."""
    stage = Stage()
    for number, step in enumerate(case.steps):
        told = stage.play(number, step)
        page = f"step {number + 1}\n{told.page}"
        for what, expected, found in compared(step, told):
            assert found == expected, f"{what}, {page}"


def compared(step: Document, told: Told) -> list[tuple[str, Any, Any]]:
    """What a step says and what was found, pair by pair."""
    verdict = (
        DiagnosisVerdict.FITS
        if "solved" in step
        else DiagnosisVerdict.FAULTY
        if "fault" in step
        else DiagnosisVerdict.REFUSED
    )
    pairs: list[tuple[str, Any, Any]] = [
        ("invalid", step.get("invalid", []), told.invalid),
        ("verdict", verdict, told.verdict),
        ("explains", [], missing(step["explains"], told.page)),
    ]
    if "solved" in step:
        pairs.append(("solved", *solution(step["solved"], told)))
    if "refused" in step or verdict is DiagnosisVerdict.REFUSED:
        if "refused" not in step:
            raise SceneError("a scene says what is `solved`, `refused` or a `fault`")
        pairs.append(("refused", *refusals(step["refused"], told)))
    if "fault" in step:
        pairs.append(("fault", step["fault"], told.fault))
    for key, found in (("chosen", told.node), ("config", told.config)):
        if key in step:
            pairs.append((key, step[key], found))
    if "hint" in step:
        hints = zip_longest(listed(step["hint"]), told.hints, fillvalue="")
        pairs.append(("hint", [], [pair for pair in hints if not pair[0] or pair[0] not in pair[1]]))
    if "beats_at_most" in step:
        pairs.append(("beats_at_most", True, told.beats <= step["beats_at_most"]))
    return pairs


def missing(said: Any, page: str) -> list[str]:
    """Words that are not on the page; there must be some to look for."""
    texts = [" ".join(text.split()) for text in listed(said)]
    assert texts, "a scene says what is explained"
    assert all(texts), "a scene says what is explained"
    return [text for text in texts if text not in page]


def solution(said: Any, told: Told) -> tuple[Any, Any]:
    """The devices as the scene lists them: all in order, by request, or by claim and request."""
    if isinstance(said, list):
        return said, [line for results in told.results.values() for _, line in results]
    several = len(told.results) > 1
    by_claim = said if several else {next(iter(told.results), ""): said}
    expected = {
        name: entry if isinstance(entry, list) else {request: listed(line) for request, line in entry.items()}
        for name, entry in by_claim.items()
    }
    found: dict[str, Any] = {}
    for name, results in told.results.items():
        if isinstance(expected.get(name), list):
            found[name] = [line for _, line in results]
            continue
        found[name] = {}
        for request, line in results:
            found[name].setdefault(request, []).append(line)
    return expected, found


def refusals(said: dict[str, Any], told: Told) -> tuple[Any, Any]:
    """Reasons; where a scene names one for a device, it is the only one."""
    found: dict[str, Any] = {}
    for name, reasons in told.refused.items():
        distinct = sorted(set(reasons.values()))
        plain = isinstance(said.get(name), str) and len(distinct) == 1
        found[name] = distinct[0] if plain else reasons
    return said, found
