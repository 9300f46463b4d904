"""What a pod needs of a node."""

from __future__ import annotations

from typing import Any

import pytest

from dray.placement.resource_requests import (
    DEFAULT_CPU,
    DEFAULT_MEMORY,
    NO_REQUESTS,
    ResourceRequests,
    compute_requests,
)
from dray.values.quantity import NANOS_PER_UNIT, Quantity
from tests.unit.placement.pods_and_nodes import container, pod


def sidecar(**amounts: str) -> dict[str, Any]:
    return container(amounts, restartPolicy="Always")


def main(**amounts: str) -> dict[str, Any]:
    return container(amounts)


ROWS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "no containers": ({}, {}),
    "containers add up": (
        {"containers": [main(cpu="1"), main(cpu="500m", memory="1Gi")]},
        {"cpu": "1.5", "memory": "1Gi"},
    ),
    "an init container smaller than the rest is free": (
        {"containers": [main(cpu="2")], "initContainers": [main(cpu="1")]},
        {"cpu": "2"},
    ),
    "init containers run one after the other": (
        {"containers": [main(cpu="1")], "initContainers": [main(cpu="3"), main(cpu="2")]},
        {"cpu": "3"},
    ),
    "each resource has its own hungriest moment": (
        {"containers": [main(cpu="1", memory="3Gi")], "initContainers": [main(cpu="2", memory="1Gi")]},
        {"cpu": "2", "memory": "3Gi"},
    ),
    "a sidecar runs beside the main containers": (
        {"containers": [main(cpu="1")], "initContainers": [sidecar(cpu="1")]},
        {"cpu": "2"},
    ),
    "a sidecar runs beside the init containers after it": (
        {"containers": [main(cpu="1")], "initContainers": [sidecar(cpu="1"), main(cpu="2")]},
        {"cpu": "3"},
    ),
    "a sidecar does not run beside the init containers before it": (
        {"containers": [main(cpu="1")], "initContainers": [main(cpu="2"), sidecar(cpu="1")]},
        {"cpu": "2"},
    ),
    "sidecars add up": (
        {
            "containers": [main()],
            "initContainers": [sidecar(cpu="1"), sidecar(cpu="2"), main(cpu="4"), sidecar(cpu="3")],
        },
        {"cpu": "7"},
    ),
    "only `Always` makes a sidecar": (
        {"containers": [main(cpu="1")], "initContainers": [container({"cpu": "1"}, restartPolicy="Never")]},
        {"cpu": "1"},
    ),
    "overhead comes on top of the hungriest moment": (
        {
            "containers": [main(cpu="1")],
            "initContainers": [main(cpu="2")],
            "overhead": {"cpu": "250m", "memory": "1Gi"},
        },
        {"cpu": "2.25", "memory": "1Gi"},
    ),
    "a limit without a request is a request": (
        {"containers": [container({"cpu": "1"}, limits={"cpu": "2", "memory": "1Gi"})]},
        {"cpu": "1", "memory": "1Gi"},
    ),
    "an amount of zero is nothing": ({"containers": [main(cpu="0")]}, {}),
    "less than nothing is nothing": ({"containers": [main(cpu="-3"), main(cpu="1")]}, {"cpu": "1"}),
    "ephemeral containers are free": (
        {"containers": [main(cpu="1")], "ephemeralContainers": [main(cpu="5")]},
        {"cpu": "1"},
    ),
    "a pod is one pod whatever its containers say": ({"containers": [container({"pods": "7"})]}, {}),
    "extended resources are counted like cpu": (
        {
            "containers": [container({"example.com/gpu": "2"})],
            "initContainers": [container({"example.com/gpu": "1"})],
        },
        {"example.com/gpu": "2"},
    ),
    "requests of the pod replace those of its containers": (
        {
            "containers": [main(cpu="1", memory="1Gi")],
            "initContainers": [sidecar(cpu="3"), main(cpu="8")],
            "resources": {"requests": {"cpu": "2", "hugepages-2Mi": "4Mi"}},
        },
        {"cpu": "2", "memory": "1Gi", "hugepages-2Mi": "4Mi"},
    ),
    "overhead comes on top of the requests of the pod": (
        {"containers": [main()], "resources": {"requests": {"cpu": "2"}}, "overhead": {"cpu": "500m"}},
        {"cpu": "2.5"},
    ),
    "a limit of the pod is a request when no container has one": (
        {"containers": [main(cpu="1")], "resources": {"limits": {"cpu": "4", "memory": "2Gi"}}},
        {"cpu": "1", "memory": "2Gi"},
    ),
    "pods as a whole ask for no extended resources": (
        {
            "containers": [container({"example.com/gpu": "1"})],
            "resources": {"requests": {"example.com/gpu": "5", "ephemeral-storage": "1Gi"}},
        },
        {"example.com/gpu": "1"},
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_pod_requests_the_maximum_over_its_phases(name: str) -> None:
    spec, expected = ROWS[name]
    amounts = {resource: Quantity.parse(text).nanos for resource, text in expected.items()}
    assert compute_requests(pod(**spec)).amounts == amounts | {"pods": NANOS_PER_UNIT}


WEIGHED: dict[str, tuple[dict[str, Any], tuple[int, int]]] = {
    "a container that asks for nothing is a small one": (
        {"containers": [main()]},
        (DEFAULT_CPU, DEFAULT_MEMORY),
    ),
    "every container is": ({"containers": [main(), main()]}, (2 * DEFAULT_CPU, 2 * DEFAULT_MEMORY)),
    "each amount for itself": ({"containers": [main(cpu="2")]}, (2 * NANOS_PER_UNIT, DEFAULT_MEMORY)),
    "zero is an answer": ({"containers": [main(cpu="0", memory="0")]}, (0, 0)),
    "init containers too": (
        {"containers": [main()], "initContainers": [main(cpu="2")]},
        (2 * NANOS_PER_UNIT, DEFAULT_MEMORY),
    ),
    "sidecars too": (
        {"containers": [main()], "initContainers": [sidecar()]},
        (2 * DEFAULT_CPU, 2 * DEFAULT_MEMORY),
    ),
    "overhead counts as it is": (
        {"containers": [main()], "overhead": {"cpu": "1"}},
        (DEFAULT_CPU + NANOS_PER_UNIT, DEFAULT_MEMORY),
    ),
    "overhead without an amount adds none": (
        {"containers": [main()], "overhead": {"memory": "1"}},
        (DEFAULT_CPU, DEFAULT_MEMORY + NANOS_PER_UNIT),
    ),
    "requests of the pod count instead": (
        {"containers": [main(), main()], "resources": {"requests": {"cpu": "3"}}},
        (3 * NANOS_PER_UNIT, 2 * DEFAULT_MEMORY),
    ),
    "a pod without containers weighs nothing": ({}, (0, 0)),
}


@pytest.mark.parametrize("name", WEIGHED)
def test_scores_count_containers_that_ask_for_nothing(name: str) -> None:
    spec, expected = WEIGHED[name]
    assert compute_requests(pod(**spec)).scored == expected


def test_pods_of_one_template_share_their_needs() -> None:
    spec = {"containers": [main(cpu="1", memory="1Gi")]}
    assert compute_requests(pod(**spec)) is compute_requests(pod(**spec))


def test_needs_are_equal_by_value_in_any_order() -> None:
    one, other = (
        ResourceRequests({"cpu": 1, "memory": 2}, (1, 2)),
        ResourceRequests({"memory": 2, "cpu": 1}, (1, 2)),
    )
    assert one == other
    assert hash(one) == hash(other)
    assert one != ResourceRequests({"cpu": 1, "memory": 2}, (1, 3))
    assert one != "something else"


def test_what_is_zero_is_not_there() -> None:
    assert ResourceRequests({"cpu": 0}) == NO_REQUESTS
    assert ResourceRequests({"cpu": 2, "memory": 1}).subtract(
        ResourceRequests({"memory": 1})
    ) == ResourceRequests({"cpu": 2})
    assert (ResourceRequests({"cpu": 2}).get("cpu"), ResourceRequests({"cpu": 2}).get("memory")) == (2, 0)
