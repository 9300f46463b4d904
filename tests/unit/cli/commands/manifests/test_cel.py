"""`dray cel`: the value of an expression for every device."""

from __future__ import annotations

import json

import pytest

from tests.outside import ROOT
from tests.unit.cli.conftest import Typed

SLICES = str(ROOT / "examples" / "gpu-cluster")


def test_a_selector_on_every_device(typed: Typed) -> None:
    ended = typed("cel", 'device.driver == "nic.example.com"', "-f", SLICES)
    assert (ended.code, ended.err) == (0, "")
    lines = [line.split() for line in ended.out.splitlines()]
    assert lines[0] == ["DEVICE", "MATCH", "COST"]
    assert ["nic.example.com/node-a/eth1", "yes", "4"] in lines
    assert ["gpu.example.com/node-b/gpu-0", "no", "4"] in lines
    assert ended.out.endswith("matches 3 of 9 devices\n")


def test_errors_are_shown_device_by_device(typed: Typed) -> None:
    ended = typed("cel", 'device.attributes["gpu.example.com"].model == "a100"', "-f", SLICES)
    assert ended.code == 0
    assert "nic.example.com/node-a/eth1                  error   no such key: model" in ended.out
    assert "matches 4 of 9 devices\nfails on 3: " in ended.out
    assert "\nhint: " in ended.out


def test_no_match_is_a_no(typed: Typed) -> None:
    assert typed("cel", 'device.driver == "x"', "-f", SLICES).code == 1


def test_any_expression_shows_its_value(typed: Typed) -> None:
    ended = typed("cel", 'device.attributes["nic.example.com"]', "-f", SLICES)
    assert ended.code == 0
    assert '{"interfaceName": "eth1"}' in ended.out
    assert "a selector must be true or false" in ended.out


def test_the_same_for_machines(typed: Typed) -> None:
    ended = typed("cel", 'device.capacity["nic.example.com"].bandwidth', "-f", SLICES, "-o", "json")
    told = json.loads(ended.out)
    assert (told["expression"], told["type"]) == (
        'device.capacity["nic.example.com"].bandwidth',
        "kubernetes.Quantity",
    )
    by_name = {device["device"]: device for device in told["devices"]}
    assert by_name["nic.example.com/node-a/eth1"]["value"] == "10G"
    assert by_name["gpu.example.com/node-b/gpu-0"]["error"] == "no such key: bandwidth"
    assert by_name["gpu.example.com/node-b/gpu-0"]["match"] is None


def test_a_broken_expression_is_shown_with_a_caret(typed: Typed) -> None:
    ended = typed("cel", 'true &&\n device.drivr == "x"', "-f", SLICES)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines() == [
        "dray: the expression does not compile, 2:8: undefined field 'drivr'",
        '   device.drivr == "x"',
        "         ^",
    ]


def test_without_files_it_is_only_compiled(typed: Typed) -> None:
    ended = typed("cel", "device.allowMultipleAllocations")
    assert (ended.code, ended.out) == (0, "compiles: bool, costs at most 2\n")


def test_gates_decide_what_may_be_written(typed: Typed) -> None:
    ended = typed("cel", "device.allowMultipleAllocations", "--feature-gates", "DRAConsumableCapacity=false")
    assert ended.code == 2
    assert "allowMultipleAllocations" in ended.err


def test_slices_are_needed(typed: Typed) -> None:
    ended = typed("cel", "true", "-f", f"{SLICES}/nodes.yaml")
    assert ended.code == 2
    assert "no ResourceSlice is among the manifests" in ended.err


@pytest.mark.parametrize("expression", ["", "1 +", "device.", "\x00", "'\\u202e'", "a" * 20_000])
def test_hostile_expressions_end_in_an_error_message(expression: str, typed: Typed) -> None:
    ended = typed("cel", expression, "-f", SLICES)
    assert ended.code in (0, 2)
    assert "\u202e" not in ended.out
