"""Amounts of devices whose objects the API would refuse, or which were shared before: never too much."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dray.allocator.checks.capacity import compute_consumption
from dray.allocator.refusals import Refusal, RefusalReason
from dray.allocator.verify.amounts import derive_consumption
from tests.brute.builders import (
    capacity,
    claim,
    device,
    holding,
    policy,
    published,
    quantity,
    request,
    result,
)
from tests.brute.outcome import picked, world

SHORT, POLICY = RefusalReason.CAPACITY_SHORT, RefusalReason.CAPACITY_POLICY

ODD = [
    # capacity, asked, consumed
    # without a default the whole is taken, when the policy allows that much (the API wants a default)
    (capacity(10, policy(least=3, most=5)), None, POLICY),
    (capacity(5, policy(least=3, most=5)), None, "5"),
    (capacity(10, policy(least=3, step=2)), None, POLICY),
    (capacity(9, policy(least=3, step=2)), None, "9"),
    (capacity(10, policy(values=(2, 4))), None, POLICY),
    (capacity(4, policy(values=(2, 4))), None, "4"),
    # a range without a least amount has no grid, but still a most (the API wants one; Kubernetes panics)
    (capacity(10, policy(1, most=5, step=2)), "2", "2"),
    (capacity(10, policy(1, most=5, step=2)), "6", POLICY),
    # a default above the most: it can be had by saying nothing, or by its very amount, but not by steps
    (capacity(7, policy(7, least=1, most=3, step=3)), None, "7"),
    (capacity(7, policy(7, least=1, most=3, step=3)), "6", POLICY),
    (capacity(7, policy(7, least=1, most=3)), "7", "7"),
    # values that are not in order: the first that is enough
    (capacity(10, policy(9, values=(9, 7, 1))), "2", "9"),
    (capacity(8, policy(1, values=(9, 7, 1))), "2", SHORT),
    # a default above the whole (the API refuses it)
    (capacity(10, policy(20)), None, SHORT),
]


@pytest.mark.parametrize(("held", "asked", "expected"), ODD)
def test_what_one_share_consumes_under_an_odd_policy(held, asked, expected):
    one = device("a", shared=True, capacity={"mem": held})
    found = compute_consumption(one, (("mem", quantity(asked).nanos),) if asked is not None else ())
    wanted = {"mem": quantity(asked)} if asked is not None else {}
    if isinstance(expected, RefusalReason):
        assert isinstance(found, Refusal)
        assert (found.reason, derive_consumption(one, wanted)) == (expected, None)
    else:
        assert found == {"mem": quantity(expected).nanos}
        assert derive_consumption(one, wanted) == {"mem": Fraction(expected)}


@pytest.mark.parametrize(
    ("held", "found"),
    [(capacity(10, policy(20)), None), (capacity(20, policy(20)), ["r=a"]), (capacity(10), ["r=a"])],
)
def test_a_device_that_could_not_give_its_own_default_is_not_taken(held, found):
    """The check is the same whether a device is shared or not, and whether anything is asked or not."""
    for shared in (True, False):
        slices = published(device("a", shared=shared, capacity={"bw": held}))
        assert picked(world(slices, claim(request("r")))) == found


def test_admin_access_is_refused_where_existing_shares_fill_a_device():
    """As with shared devices: a device that became dedicated still has the shares it had."""
    slices = published(device("a", capacity={"bw": 10}))
    asked = claim(request("r", admin_access=True))

    def found(amount):
        return picked(world(slices, asked, held=[holding(result("a", share="id", consumed={"bw": amount}))]))

    assert found(10) is None
    assert found(0) == ["r=a"]
    assert picked(world(slices, asked, held=[holding(result("a", share="id"))])) == ["r=a"]
    assert picked(world(slices, asked, held=[holding(result("a"))])) == ["r=a"]
