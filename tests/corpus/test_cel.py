"""Every CEL case of the corpus gets the answer of Kubernetes: match or error, type, worst and actual cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dray.api.devices.device_cel import DeviceBinding, InvalidSelector, bind_device, compile_selector
from dray.api.resource.device import Device
from dray.cel import EvalFault
from dray.gates import GateSet
from dray.values.quantity import Quantity
from tests.corpus.conftest import SUMMARY
from tests.outside import NO_CORPUS, corpus_dir

_DIFFERENCES: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    (Path(__file__).parent / "cel_differences.yaml").read_text("utf-8")
)
WORDS = {entry["case"]: entry for entry in _DIFFERENCES["words"]}
PRICES = {(entry["case"], entry["variant"]): entry for entry in _DIFFERENCES["prices"]}

_FIELDS = ("compileError", "matchError", "match", "maxCost", "actualCost", "outputType")


@dataclass(frozen=True)
class Variant:
    """One environment a case was run in, and what came out."""

    name: str
    stored: bool
    gates: GateSet
    expected: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """An expression about a device."""

    name: str
    expression: str
    device: DeviceBinding
    variants: tuple[Variant, ...]


def load(folder: Path) -> Iterator[Case]:
    """The selectors of Kubernetes, then those of our own."""
    for case in json.loads((folder / "cel.json").read_text("utf-8"))["selectors"]:
        yield Case(
            case["name"], case["expression"], _bound(case["device"]), tuple(map(_variant, case["variants"]))
        )
    extra = json.loads((folder / "cel_extra.json").read_text("utf-8"))
    device = _bound(extra["device"])
    for case in extra["cases"]:
        variants = (
            Variant("list", True, _gates(sharing=True, lists=True), case["list"]),
            Variant("nolist", False, _gates(sharing=True, lists=False), case["nolist"]),
        )
        yield Case(case["expression"], case["expression"], device, variants)


def _variant(found: dict[str, Any]) -> Variant:
    gates = _gates(sharing=found["consumableCapacity"], lists=found["listTypeAttributes"])
    name = " ".join(str(found[key]) for key in ("envType", "consumableCapacity", "listTypeAttributes"))
    return Variant(name, found["envType"] == "StoredExpressions", gates, found)


def _gates(*, sharing: bool, lists: bool) -> GateSet:
    return GateSet.from_defaults().override(
        {"DRAConsumableCapacity": sharing, "DRAListTypeAttributes": lists}
    )


def _bound(found: dict[str, Any]) -> DeviceBinding:
    fields = {key: value for key, value in found.items() if value is not None and key != "driver"}
    return bind_device(found["driver"], msgspec.convert(fields, Device, dec_hook=_quantity))


def _quantity(kind: type, value: Any) -> Any:
    assert kind is Quantity
    return Quantity.from_json_value(value)


def answer(case: Case, variant: Variant) -> dict[str, Any]:
    """What we say, in the words of the corpus."""
    selector = compile_selector(case.expression, stored=variant.stored, gates=variant.gates)
    if isinstance(selector, InvalidSelector):
        return {"compileError": selector.detail}
    measured = selector.measure(case.device)
    outcome: dict[str, Any] = {
        "maxCost": selector.program.cost,
        "actualCost": measured.cost,
        "outputType": str(selector.program.type),
    }
    if isinstance(measured.result, EvalFault):
        return outcome | {"matchError": measured.result.message}
    return outcome | {"match": measured.result}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    folder = corpus_dir(metafunc.config)
    if folder is None:
        metafunc.parametrize("case", [pytest.param(None, marks=pytest.mark.skip(reason=NO_CORPUS))])
        return
    metafunc.parametrize("case", [pytest.param(case, id=case.name[:80]) for case in load(folder)])


def test_case(case: Case) -> None:
    for variant in case.variants:
        ours = answer(case, variant)
        theirs = {key: variant.expected[key] for key in _FIELDS if key in variant.expected}
        if case.name in WORDS:
            assert ours.keys() == theirs.keys() == {"compileError"}
            assert ours["compileError"].startswith(WORDS[case.name]["ours"])
            assert ours != theirs, "equal to Kubernetes now: take it off the list"
            continue
        listed = PRICES.get((case.name, variant.name))
        if listed is not None:
            assert ours["actualCost"] == listed["ours"]
            assert ours["actualCost"] != theirs["actualCost"], "equal to Kubernetes now: take it off the list"
            theirs["actualCost"] = ours["actualCost"]
        assert ours == theirs, variant.name


@pytest.fixture(scope="module")
def cases(corpus: Path) -> list[Case]:
    return list(load(corpus))


def test_every_listed_case_exists(cases: list[Case]) -> None:
    variants = {(case.name, variant.name) for case in cases for variant in case.variants}
    assert WORDS.keys() <= {case.name for case in cases}
    assert PRICES.keys() <= variants


def test_count(cases: list[Case], pytestconfig: pytest.Config) -> None:
    """Printed after the run; every answer is counted, so that no variant is lost on the way."""
    counts = Counter(
        "in other words"
        if case.name in WORDS
        else "at another price"
        if (case.name, variant.name) in PRICES
        else "equal"
        for case in cases
        for variant in case.variants
    )
    assert counts.total() == sum(len(case.variants) for case in cases)
    assert counts["equal"] > counts.total() / 2
    parts = " · ".join(f"{counts[name]} {name}" for name in ("equal", "in other words", "at another price"))
    pytestconfig.stash[SUMMARY].append(f"cel: {len(cases)} expressions, {counts.total()} answers · {parts}")
