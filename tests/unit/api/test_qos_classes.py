"""QoS classes: what they are, and that a class that was computed before is the same."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from dray.api.core.pod_amounts import (
    BEST_EFFORT,
    BURSTABLE,
    GUARANTEED,
    MAX_CACHED_BYTES,
    QOS_CLASSES,
    compute_qos_class,
)
from dray.values.cache_bounds import CACHE_BOUNDS

FULL = {"cpu": "1", "memory": "1Gi"}
RESOURCES: tuple[tuple[Any, str], ...] = (
    (None, BEST_EFFORT),
    ({}, BEST_EFFORT),
    ("text", BEST_EFFORT),
    ({"requests": None, "limits": {}}, BEST_EFFORT),
    ({"requests": {"cpu": "0", "memory": None}}, BEST_EFFORT),
    ({"requests": {"example.com/gpu": "1"}}, BEST_EFFORT),
    ({"requests": {"cpu": "not an amount", "memory": True}}, BEST_EFFORT),
    ({"requests": {"cpu": "1"}}, BURSTABLE),
    ({"limits": FULL}, BURSTABLE),
    ({"requests": FULL, "limits": {"cpu": "1"}}, BURSTABLE),
    ({"requests": FULL, "limits": FULL}, GUARANTEED),
    ({"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": {"cpu": 1, "memory": "1Gi"}}, GUARANTEED),
)


@pytest.mark.parametrize("time", ["first", "second"])
def test_a_pod_is_what_all_its_containers_are_and_otherwise_burstable(time: str) -> None:
    for (one, first), (other, second) in product(RESOURCES, repeat=2):
        spec = {"containers": [{"resources": one}], "initContainers": [{"resources": other}]}
        assert compute_qos_class(spec) == (first if first == second else BURSTABLE)


def test_resources_of_the_pod_as_a_whole_replace_those_of_its_containers() -> None:
    whole = {"requests": FULL, "limits": FULL}
    assert compute_qos_class({"resources": whole, "containers": [{}]}) == GUARANTEED


def test_large_resources_have_a_class_too_and_the_cache_has_a_bound() -> None:
    large = {"requests": {**FULL, "example.com/" + "g" * MAX_CACHED_BYTES: "1"}, "limits": FULL}
    assert compute_qos_class({"containers": [{"resources": large}]}) == GUARANTEED
    assert CACHE_BOUNDS[QOS_CLASSES.name] is QOS_CLASSES
