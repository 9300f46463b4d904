"""The environment the tests of the engine share: a few variables of every sort, and nothing about devices."""

from __future__ import annotations

from typing import Any

import pytest

from dray.cel import Env, Variable
from dray.cel import types as t
from dray.cel.library import INCLUDES_LIBRARY, STANDARD_LIBRARIES

THING = t.Type(t.TypeKind.STRUCT, "test.Thing")

VALUES: dict[str, Any] = {
    "i": 3,
    "d": 3,
    "text": "Hello World",
    "words": ("a", "b"),
    "mixed": {"text": "Hello", "number": 1, "list": (1, 2), "inner": {"x": 1}},
    "thing": {"name": "x"},
    "anything": 1,
}


@pytest.fixture(scope="session")
def env() -> Env:
    variables = (
        Variable("i", t.INT),
        Variable("d", t.DYN),
        Variable("text", t.STRING),
        Variable("words", t.make_list_type(t.STRING)),
        Variable("mixed", t.make_map_type(t.STRING, t.DYN)),
        Variable("thing", THING),
        Variable("anything", t.ANY),
    )
    return Env(variables, (*STANDARD_LIBRARIES, INCLUDES_LIBRARY), {THING.name: {"name": t.STRING}})


@pytest.fixture
def values() -> dict[str, Any]:
    return VALUES
