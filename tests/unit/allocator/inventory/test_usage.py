"""What is taken already: whole devices, shares, and devices whose flag changed since."""

from __future__ import annotations

from typing import Any

import pytest

from dray.allocator.inventory.usage import NO_USAGE, DeviceUsage
from tests.brute.builders import (
    DRIVER,
    POOL,
    budget,
    capacity,
    claim,
    device,
    devices,
    draws,
    holding,
    partitioned,
    policy,
    published,
    quantity,
    request,
    result,
)
from tests.brute.outcome import picked, world

HERE = (DRIVER, POOL)


def share(device, amounts=None, **fields):
    return result(device, share="id", consumed=amounts or {}, **fields)


def test_a_pool_without_allocations_has_no_usage():
    assert DeviceUsage().get_pool(HERE) is NO_USAGE
    assert DeviceUsage.from_claims([claim(request("r"))]) == DeviceUsage()


def test_a_result_holds_its_device_as_a_whole():
    used = DeviceUsage.from_claims([holding("a", name="c1")]).get_pool(HERE)
    assert used.whole == {"a": "ml/c1"}
    assert used.shares == {}
    assert used.holders == {"a": ("ml/c1",)}


@pytest.mark.parametrize(
    "held",
    [share("a"), result("a", consumed={"mem": 1}), share("a", {"mem": 1})],
    ids=["id", "amounts", "both"],
)
def test_a_share_id_or_amounts_make_a_share(held):
    used = DeviceUsage.from_claims([holding(held)]).get_pool(HERE)
    assert used.whole == {}
    assert used.shares == {"a": {name: amount.nanos for name, amount in held.consumed_capacity.items()}}
    assert used.devices == {"a"}


@pytest.mark.req("K5075-088", "K5075-133")
def test_amounts_of_all_shares_are_added_up():
    claims = [
        holding(share("a", {"mem": 1, "bw": 2}), name="c1"),
        holding(share("a", {"mem": "1500m"}), name="c2"),
    ]
    used = DeviceUsage.from_claims(claims).get_pool(HERE)
    assert used.shares == {"a": {"mem": quantity("2500m").nanos, "bw": quantity(2).nanos}}
    assert used.holders == {"a": ("ml/c1", "ml/c2")}


def test_admin_access_holds_nothing():
    assert (
        DeviceUsage.from_claims(
            [holding(result("a", admin_access=True), share("b", {"mem": 1}, admin_access=True))]
        )
        == DeviceUsage()
    )


def test_negative_amounts_add_nothing_for_others():
    held = [holding(share("a", {"mem": -5}), share("a", {"mem": 3}))]
    assert DeviceUsage.from_claims(held).get_pool(HERE).shares == {"a": {"mem": quantity(3).nanos}}
    slices = published(device("a", shared=True, capacity={"mem": 4}))
    assert picked(world(slices, claim(request("r", capacity={"mem": 2})), held=held)) is None


def test_untouched_pools_keep_their_usage_objects():
    before = DeviceUsage.from_claims([holding(result("a"), result("b", pool="other"))])
    after = before.add_claims([holding(result("c", pool="other"))])
    assert after.get_pool(HERE) is before.get_pool(HERE)
    assert after.get_pool((DRIVER, "other")) is not before.get_pool((DRIVER, "other"))
    assert before.get_pool((DRIVER, "other")).devices == {"b"}
    assert after.get_pool((DRIVER, "other")).devices == {"b", "c"}
    assert before.add_claims([]) is before


def test_pools_of_one_name_and_two_drivers_are_two_pools():
    used = DeviceUsage.from_claims([holding(result("a", driver="one.example"))])
    assert used.get_pool(("two.example", POOL)) is NO_USAGE
    slices = [
        published(device("a"), name="1", driver="one.example"),
        published(device("a"), name="2", driver="two.example"),
    ]
    problem = world(slices, claim(request("r")), held=[holding(result("a", driver="one.example"))])
    assert picked(problem) == ["r=a"]


ONE = claim(request("r"))
MANY: dict[str, Any] = {"shared": True, "capacity": {"mem": capacity(4, policy(1))}}


@pytest.mark.req("K5075-129")
def test_a_whole_device_is_given_out_once():
    assert picked(world(published(device("a")), ONE, held=[holding("a")])) is None
    assert picked(world(published(*devices("a", "b")), ONE, held=[holding("a")])) == ["r=b"]


@pytest.mark.req("K5075-023", "K5075-096")
def test_a_device_that_became_shared_stays_whole_for_its_holder():
    slices = published(device("a", **MANY))
    assert picked(world(slices, ONE, held=[holding("a")])) is None
    assert picked(world(slices, ONE, held=[holding("a"), holding(share("a", {"mem": 1}), name="h2")])) is None
    assert picked(world(slices, ONE)) == ["r=a"]


@pytest.mark.req("K5075-097")
@pytest.mark.parametrize("amounts", [{}, {"mem": 1}])
def test_a_device_that_became_whole_waits_for_its_last_share(amounts):
    slices = published(device("a", capacity={"mem": 4}))
    assert picked(world(slices, ONE, held=[holding(share("a", amounts))])) is None
    assert picked(world(slices, ONE)) == ["r=a"]


def test_admin_access_sees_devices_whatever_became_of_them():
    asked = claim(request("r", admin_access=True))
    assert picked(world(published(device("a")), asked, held=[holding(share("a"))])) == ["r=a"]
    assert picked(world(published(device("a", **MANY)), asked, held=[holding("a")])) == ["r=a"]


@pytest.mark.parametrize("held", ["a", share("a"), share("a", {"mem": 1})], ids=["whole", "id", "amounts"])
def test_whoever_holds_a_device_holds_its_counters(held):
    slices = partitioned(
        budget(slots=3),
        device("a", consumes_counters=(draws(slots=2),), **MANY),
        device("b", consumes_counters=(draws(slots=2),)),
    )
    only_b = claim(request("r", 1, "single"))
    assert picked(world(slices, only_b)) == ["r=b"]
    assert picked(world(slices, only_b, held=[holding(held)])) is None
    assert picked(world(slices, only_b, held=[holding(result("a", admin_access=True))])) == ["r=b"]
