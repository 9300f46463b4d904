# ruff: noqa: N802 - a test bears the id of its row
"""Faults of amounts, inputs and configuration: rows A17, A18, A22, A23."""

from __future__ import annotations

import pytest

from dray.allocator.refusals import RefusalReason
from dray.allocator.requests import normalize_claims
from dray.allocator.search.trace import Faulted
from dray.api.validation import validate_create
from dray.errors import UnanswerableClaimError
from tests.brute.builders import (
    asking,
    budget,
    capacity,
    claim,
    device,
    device_class,
    devices,
    draws,
    first_of,
    holding,
    partitioned,
    policy,
    published,
    request,
    result,
)
from tests.brute.config_builders import claim_config, class_config
from tests.brute.laws import results_of
from tests.brute.outcome import allocated, consumed, ending, picked, world

HUGE = "1000E"
BEYOND = str(2**63)


def shared(rule, total=HUGE):
    return published(device("a", shared=True, capacity={"mem": capacity(total, rule)}))


def complaints(slices):
    return [str(error) for error in validate_create(slices)]


def test_A17a_a_step_of_nothing_is_rejected_and_breaks_nothing():
    slices = shared(policy(1, least=1, step=0), total=9)
    assert any("validRange.step" in text for text in complaints(slices))
    assert consumed(world(slices, claim(request("r", capacity={"mem": 3})))) == [{"mem": "3"}]


BOUNDS = {
    "least beyond": policy(BEYOND, least=BEYOND, step=1),
    "most beyond": policy(1, least=1, most=BEYOND, step=1),
    "step beyond": policy(1, least=1, step=BEYOND),
    "least at 2^64": policy(str(2**64), least=str(2**64), step=1),
    "least below nothing": policy(1, least=-1, step=1),
    "step below nothing": policy(1, least=1, step=-1),
    "default between the steps": policy("1500m", least=1, step=1),
}


@pytest.mark.parametrize("case", BOUNDS)
def test_A17b_bounds_that_no_range_can_hold_are_rejected(case):
    assert any("requestPolicy" in text for text in complaints(shared(BOUNDS[case])))


@pytest.mark.parametrize("order", [1, -1], ids=["first", "last"])
@pytest.mark.parametrize("asked", [str(2**63), str(2**63 - 2)], ids=["above", "rounded above"])
def test_A17c_amounts_beyond_all_arithmetic_end_the_allocation(asked, order):
    """The same end whichever capacity is looked at first, and also for a device behind it that would fit."""
    held = dict([("cores", capacity(1)), ("mem", capacity(HUGE, policy(1, least=1, step=1000)))][::order])
    slices = published(device("a", shared=True, capacity=held), device("b", shared=True))
    found = ending(world(slices, claim(request("r", capacity={"mem": asked, "cores": 5}))))
    assert isinstance(found, Faulted)
    assert found.refusal.reason is RefusalReason.CAPACITY_UNREPRESENTABLE
    assert (found.candidate, found.refusal.detail.name) == (0, "mem")


def test_A17c_amounts_below_nothing_end_the_allocation():
    with pytest.raises(UnanswerableClaimError, match="request `r`: asks for a negative amount of `mem`"):
        normalize_claims([claim(request("r", capacity={"mem": -1}))], {"any": device_class("any")}.get)
    stored = published(device("a", shared=True, capacity={"mem": capacity(4, policy(-1))}), device("b"))
    found = ending(world(stored, claim(request("r"))))
    assert isinstance(found, Faulted)
    assert found.refusal.reason is RefusalReason.CAPACITY_UNREPRESENTABLE


@pytest.mark.req("K5075-092")
def test_A17d_tenths_are_exact():
    """Ten tenths are one, which no sum of floats is."""
    tenths = shared(policy("0.1", least="0.1", step="0.1"), total=1)
    asked = [request(f"r{i}", capacity={"mem": "0.1"}) for i in range(10)]
    assert consumed(world(tenths, claim(*asked))) == [{"mem": "100m"}] * 10
    assert picked(world(tenths, claim(*asked, request("more", capacity={"mem": "0.1"})))) is None
    values = shared(policy("0.1", values=("0.1", "0.2", "0.3")), total=1)
    assert consumed(world(values, claim(request("r", capacity={"mem": "0.3"})))) == [{"mem": "300m"}]
    assert consumed(world(values, claim(request("r", capacity={"mem": "0.11"})))) == [{"mem": "200m"}]


def test_A18_inputs_are_as_they_were_however_odd_their_numbers():
    fine = "1.123456789"
    slices = [
        *partitioned(budget(slots=HUGE), device("a", consumes_counters=(draws(slots=fine),))),
        published(
            device("b", shared=True, capacity={"mem": capacity(HUGE, policy(fine))}), name="other", pool="zz"
        ),
    ]
    asked = claim(request("r0", 1, "single"), request("r1", 1, "shared", capacity={"mem": "1e21"}))
    problem = world(slices, asked, held=[holding(result("b", pool="zz", share="id", consumed={"mem": fine}))])
    before = problem.text()
    first, second = results_of(problem), results_of(problem)
    assert problem.text() == before
    assert first == second
    assert picked(world(slices, asked)) == ["r0=a", "r1=b"]


# --- configuration ---

CLASSES = (
    device_class("any", config=(class_config("class-1"), class_config("class-2"))),
    device_class("plain"),
)


def config(problem):
    (found,) = allocated(problem)
    return [(item.source, item.requests, bytes(item.opaque.parameters)) for item in found.devices.config]


def test_A22_configuration_of_alternatives_of_one_request_is_not_widened():
    ways = [("s0", asking(1, "never", device_class="plain")), ("s1", asking(device_class="plain"))]
    asked = claim(
        first_of("gpu", *ways),
        request("nic", device_class="plain"),
        config=[claim_config("x", "gpu/s0", "gpu/s1")],
    )
    found = config(world(published(*devices("a", "b")), asked, classes=CLASSES))
    assert found == [("FromClaim", ("gpu/s0", "gpu/s1"), b'"x"')]


def test_A23a_configuration_of_everything_names_nothing():
    asked = claim(
        request("r0", device_class="plain"),
        request("r1", device_class="plain"),
        config=[claim_config("x", "r0", "r1"), claim_config("y")],
    )
    found = config(world(published(*devices("a", "b")), asked, classes=CLASSES))
    assert found == [("FromClaim", (), b'"x"'), ("FromClaim", (), b'"y"')]


def test_A23b_configuration_of_a_class_comes_once_and_names_its_requests():
    asked = claim(request("r0"), request("r1"), request("r2", device_class="plain"))
    found = config(world(published(*devices("a", "b", "c")), asked, classes=CLASSES))
    assert found == [
        ("FromClass", ("r0", "r1"), b'"class-1"'),
        ("FromClass", ("r0", "r1"), b'"class-2"'),
    ]
    twice = claim(request("r0", 2), request("r1", device_class="plain"))
    assert config(world(published(*devices("a", "b", "c")), twice, classes=CLASSES)) == [
        ("FromClass", ("r0",), b'"class-1"'),
        ("FromClass", ("r0",), b'"class-2"'),
    ]
