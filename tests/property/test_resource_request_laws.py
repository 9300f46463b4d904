"""Resource requests are sums: adding and removing leaves no trace; a pod needs at least its largest part."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dray.placement.resource_requests import NO_REQUESTS, PODS, ResourceRequests, compute_requests
from tests.unit.placement.pods_and_nodes import container, pod

RESOURCES = ("cpu", "memory", "example.com/gpu")

amounts = st.dictionaries(st.sampled_from((*RESOURCES, PODS)), st.integers(0, 5), max_size=4)
needs = st.builds(ResourceRequests, amounts, st.tuples(st.integers(0, 9), st.integers(0, 9)))
requests = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 5).map(str), max_size=3)
containers = st.lists(st.builds(container, requests), max_size=3)


@st.composite
def starters(draw: st.DrawFn) -> list[dict[str, Any]]:
    kinds = draw(st.lists(st.tuples(requests, st.booleans()), max_size=4))
    return [container(asked, restartPolicy="Always") if stays else container(asked) for asked, stays in kinds]


@given(needs, needs)
def test_adding_and_removing_leaves_no_trace(one: ResourceRequests, other: ResourceRequests) -> None:
    assert one.add(other).subtract(other) == one
    assert one.subtract(other).add(other) == one
    assert one.subtract(one) == NO_REQUESTS


@given(st.lists(needs, max_size=4).flatmap(lambda all_: st.tuples(st.just(all_), st.permutations(all_))))
def test_the_order_of_pods_does_not_matter(
    orders: tuple[list[ResourceRequests], list[ResourceRequests]],
) -> None:
    sums = []
    for order in orders:
        total = NO_REQUESTS
        for each in order:
            total = total.add(each)
        sums.append(total)
    assert sums[0] == sums[1]
    assert hash(sums[0]) == hash(sums[1])


@given(containers, starters(), st.sampled_from(RESOURCES))
def test_a_pod_needs_its_largest_moment_simulated(
    main: list[dict[str, Any]], init: list[dict[str, Any]], resource: str
) -> None:
    """The life of a pod step by step: what runs at the same time, counted anew at every moment."""

    def total(running: list[dict[str, Any]]) -> int:
        return sum(int(each["resources"]["requests"].get(resource, 0)) for each in running)

    staying: list[dict[str, Any]] = []
    moments = [0]
    for each in init:
        moments.append(total([*staying, each]))
        if "restartPolicy" in each:
            staying.append(each)
    moments.append(total([*staying, *main]))
    assert compute_requests(pod(containers=main, initContainers=init)).get(resource) == max(moments) * 10**9
