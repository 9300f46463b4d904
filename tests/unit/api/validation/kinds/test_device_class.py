"""Device classes: selectors and configuration."""

from __future__ import annotations

import msgspec
import pytest

from dray.api.validation import validate_create, validate_update
from tests.unit.api.validation.building import device_class, found, opaque

SELECTOR = {"cel": {"expression": "true"}}

CASES = {
    "nothing but a name": ({}, []),
    "selector": ({"selectors": [SELECTOR]}, []),
    "selector without a language": ({"selectors": [SELECTOR, {}]}, ["Required spec.selectors[1].cel"]),
    "expression that does not compile": (
        {"selectors": [SELECTOR, {"cel": {"expression": "device.nope"}}]},
        ["Invalid spec.selectors[1].cel.expression"],
    ),
    "expression that is no condition": (
        {"selectors": [{"cel": {"expression": "device.driver"}}]},
        ["Invalid spec.selectors[0].cel.expression"],
    ),
    "expression that may cost too much": (
        {"selectors": [{"cel": {"expression": "lists.range(1000000).all(x, x >= 0)"}}]},
        ["Forbidden spec.selectors[0].cel.expression"],
    ),
    "empty expression": (
        {"selectors": [{"cel": {"expression": ""}}]},
        ["Invalid spec.selectors[0].cel.expression"],
    ),
    "configuration": ({"config": [{"opaque": opaque()}]}, []),
    "configuration without opaque": ({"config": [{}]}, ["Required spec.config[0].opaque"]),
    "configuration without driver and parameters": (
        {"config": [{"opaque": {}}]},
        ["Required spec.config[0].opaque.driver", "Required spec.config[0].opaque.parameters"],
    ),
    "bad driver": ({"config": [{"opaque": opaque("a b")}]}, ["Invalid spec.config[0].opaque.driver"]),
    "parameters that are no object": (
        {"config": [{"opaque": opaque(parameters=[1])}]},
        ["Invalid spec.config[0].opaque.parameters"],
    ),
}


@pytest.mark.parametrize(("spec", "expected"), CASES.values(), ids=CASES)
def test_create(spec, expected):
    assert found(validate_create(device_class(**spec))) == expected


def test_everything_but_the_name_may_change():
    old = device_class(selectors=[SELECTOR], config=[{"opaque": opaque()}])
    new = device_class(selectors=[{"cel": {"expression": "false"}}])
    assert not validate_update(new, old)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (b"{", "Invalid"),
        (b'{"a":1} x', "Invalid"),
        (b"\xff", "Invalid"),
        (b"[" * 5000, "Invalid"),
        (b'{"a":1e999}', "Invalid"),
        (b'"text"', "Invalid"),
        (b"null", "Required"),
        (b"", "Required"),
    ],
)
def test_parameters_that_no_decoder_lets_through(written, expected):
    spoiled = device_class(config=[{"opaque": opaque()}])
    msgspec.structs.force_setattr(spoiled.spec.config[0].opaque, "parameters", msgspec.Raw(written))
    assert found(validate_create(spoiled)) == [f"{expected} spec.config[0].opaque.parameters"]
