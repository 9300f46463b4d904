"""Amounts: what a share consumes, what a device could ever give, what is left."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.allocator.checks.capacity import compute_consumption
from dray.allocator.refusals import Refusal, RefusalReason
from dray.allocator.search.trace import Faulted
from dray.allocator.verify.amounts import derive_consumption
from dray.values.quantity import Quantity
from tests.brute.builders import (
    asking,
    capacity,
    claim,
    device,
    distinct,
    first_of,
    holding,
    policy,
    published,
    quantity,
    request,
    result,
)
from tests.brute.laws import results_of
from tests.brute.outcome import consumed, ending, picked, refusals, world

SHORT, POLICY, FAULT = (
    RefusalReason.CAPACITY_SHORT,
    RefusalReason.CAPACITY_POLICY,
    RefusalReason.CAPACITY_UNREPRESENTABLE,
)

NO_POLICY = capacity(10)
DEFAULT_ONLY = capacity(10, policy(3))
VALUES = capacity(10, policy(2, values=(2, 4, 8)))
RANGE = capacity(10, policy(4, least=2, most=8, step=3))
OPEN_RANGE = capacity(10, policy(2, least=2, most=8))
UP_TO_ALL = capacity(10, policy(1, least=1, step=4))
FRACTIONS = capacity(1, policy("100m", least="100m", step="150m"))
TENTHS = capacity(1, policy("0.1", values=("0.1", "0.2", "0.3")))
UNLIMITED = capacity(0, policy(0, values=(0,)))

ROUNDING = [
    # capacity, asked, consumed
    (NO_POLICY, None, "10"),
    (NO_POLICY, "0", "0"),
    (NO_POLICY, "3", "3"),
    (NO_POLICY, "10", "10"),
    (NO_POLICY, "11", SHORT),
    (NO_POLICY, "2500m", "2500m"),
    (DEFAULT_ONLY, None, "3"),
    (DEFAULT_ONLY, "1", "1"),
    (DEFAULT_ONLY, "7", "7"),
    (VALUES, None, "2"),
    (VALUES, "0", "2"),
    (VALUES, "2", "2"),
    (VALUES, "3", "4"),
    (VALUES, "4001m", "8"),
    (VALUES, "9", POLICY),
    (RANGE, None, "4"),
    (RANGE, "0", "2"),
    (RANGE, "1", "2"),
    (RANGE, "2", "2"),
    (RANGE, "2500m", "5"),
    (RANGE, "4", "5"),
    (RANGE, "5", "5"),
    (RANGE, "6", "8"),
    (RANGE, "8", "8"),
    (RANGE, "9", POLICY),
    (OPEN_RANGE, "1", "2"),
    (OPEN_RANGE, "3", "3"),
    (OPEN_RANGE, "2500m", "2500m"),
    (OPEN_RANGE, "8", "8"),
    (OPEN_RANGE, "8001m", POLICY),
    (UP_TO_ALL, "2", "5"),
    (UP_TO_ALL, "9", "9"),
    (UP_TO_ALL, "10", SHORT),
    (FRACTIONS, None, "100m"),
    (FRACTIONS, "50m", "100m"),
    (FRACTIONS, "100m", "100m"),
    (FRACTIONS, "101m", "250m"),
    (FRACTIONS, "230m", "250m"),
    (FRACTIONS, "1", "1"),
    (TENTHS, "0.1", "100m"),
    (TENTHS, "100001u", "200m"),
    (TENTHS, "0.3", "300m"),
    (TENTHS, "0.4", POLICY),
    (UNLIMITED, None, "0"),
    (UNLIMITED, "0", "0"),
    (UNLIMITED, "1", POLICY),
    # C-22: below the least is rounded up; C-23: the grid starts at the least
    (capacity(20, policy(5, least=5, most=17, step=4)), "1", "5"),
    (capacity(20, policy(5, least=5, most=17, step=4)), "6", "9"),
    (capacity(20, policy(5, least=5, most=17, step=4)), "17", "17"),
    (capacity(20, policy(5, least=5, most=16, step=4)), "14", POLICY),
    # the default passes even where the range would not
    (capacity(20, policy(18, least=2, most=10)), "18", "18"),
    (capacity(20, policy(18, least=2, most=10)), None, "18"),
    # seed example: 5Gi of a bandwidth of 10Gi in steps of 8 from 1Mi (C-25)
    (capacity("10Gi", policy("1Mi", least="1Mi", step="8")), "5Gi", "5Gi"),
    (capacity("10Gi", policy("1Mi", least="1Mi", step="8")), None, "1Mi"),
]


def named(amount):
    return "nothing" if amount is None else amount.value if isinstance(amount, RefusalReason) else amount


@pytest.mark.req("K5075-004", "K5075-033", "K5075-034", "K5075-035", "K5075-041", "K5075-042")
@pytest.mark.req("K5075-048", "K5075-049", "K5075-051", "K5075-052", "K5075-053", "K5075-054", "K5075-055")
@pytest.mark.req("K5075-056", "K5075-071", "K5075-072", "K5075-092", "K5075-135", "K5075-022", "K5075-036")
@pytest.mark.parametrize(("held", "asked", "expected"), ROUNDING, ids=lambda value: str(named(value))[:40])
def test_what_one_share_consumes(held, asked, expected):
    found = compute_consumption(
        device("a", shared=True, capacity={"mem": held}),
        (("mem", quantity(asked).nanos),) if asked is not None else (),
    )
    if isinstance(expected, RefusalReason):
        assert isinstance(found, Refusal)
        assert (found.reason, found.detail.name) == (expected, "mem")
    else:
        assert found == {"mem": quantity(expected).nanos}


QUANTITIES = st.integers(0, 40).map(lambda quarter: Quantity(quarter * 250_000_000))


@st.composite
def capacities(draw):
    least, step = draw(QUANTITIES), draw(QUANTITIES.filter(lambda q: q.nanos))
    steps = draw(st.integers(0, 8))
    rule = draw(
        st.sampled_from(
            [
                None,
                policy("1"),
                policy("1", values=("1", "2500m", "7")),
                policy(str(least), least=str(least), step=str(step)),
                policy(str(least), least=str(least), most=str(Quantity(least.nanos + steps * step.nanos))),
                policy(str(least), least=str(least), most=str(least + step.multiply(steps)), step=str(step)),
            ]
        )
    )
    return capacity(str(draw(QUANTITIES)), rule)


@pytest.mark.req("K5075-082", "K5075-092")
@given(held=capacities(), asked=st.none() | QUANTITIES)
def test_rounding_is_the_smallest_allowed_amount(held, asked):
    """Two implementations agree: integer nanos here, fractions in the verifier; never less than requested."""
    item = device("a", shared=True, capacity={"mem": held})
    found = compute_consumption(item, (("mem", asked.nanos),) if asked is not None else ())
    wanted = derive_consumption(item, {"mem": asked} if asked is not None else {})
    if isinstance(found, Refusal):
        assert wanted is None
    else:
        assert wanted == {"mem": Fraction(found["mem"], 10**9)}
        assert asked is None or found["mem"] >= asked.nanos


# --- what a device could never give ---


@pytest.mark.req("K5075-068")
def test_a_capacity_the_device_does_not_have():
    found = compute_consumption(device("a", shared=True, capacity={"mem": 4}), (("bw", 1), ("mem", 1)))
    assert found == Refusal(RefusalReason.CAPACITY_MISSING, "bw")


@pytest.mark.req("K5075-068", "K5075-070")
def test_a_device_that_cannot_give_it_is_skipped():
    slices = published(
        device("none", shared=True),
        device("little", shared=True, capacity={"mem": 2}),
        device("values", shared=True, capacity={"mem": capacity(9, policy(1, values=(1, 2)))}),
        device("enough", shared=True, capacity={"mem": 3}),
    )
    assert picked(world(slices, claim(request("r", capacity={"mem": 3})))) == ["r=enough"]


@pytest.mark.req("K5075-069")
def test_amounts_filter_whole_devices_and_consume_nothing():
    slices = published(device("little", capacity={"mem": 2}), device("enough", capacity={"mem": 3}))
    problem = world(slices, claim(request("r", capacity={"mem": 3})))
    assert picked(problem) == ["r=enough"]
    assert consumed(problem) == [{}]


@pytest.mark.req("K5075-016", "K5075-066")
def test_every_device_must_give_the_whole_amount():
    slices = published(*[device(name, capacity={"mem": 2}) for name in "ab"])
    assert picked(world(slices, claim(request("r", 2, capacity={"mem": 2})))) == ["r=a", "r=b"]
    assert picked(world(slices, claim(request("r", 1, capacity={"mem": 4})))) is None
    assert picked(world(slices, claim(request("r", 3, capacity={"mem": 2})))) is None


BEYOND = str(2**63)
STEPS = policy(1, least=1, step=2)


@pytest.mark.parametrize("order", [1, -1])
def test_an_amount_beyond_all_arithmetic_ends_the_search_whichever_capacity_comes_first(order):
    held = dict([("a", capacity(2)), ("b", capacity("1000E", STEPS)), ("c", capacity(1))][::order])
    slices = published(device("d", shared=True, capacity=held), device("e", shared=True))
    asked = claim(request("r", capacity={"a": 5, "b": BEYOND, "c": 1}))
    found = ending(world(slices, asked))
    assert isinstance(found, Faulted)
    assert found.refusal.reason is FAULT
    assert found.refusal.detail.name == "b"


def test_a_capacity_below_nothing_ends_the_search():
    broken = device("d", shared=True, capacity={"mem": -3})
    found = ending(world(published(broken, device("e", shared=True)), claim(request("r"))))
    assert isinstance(found, Faulted)
    assert found.refusal.reason is FAULT


def test_a_step_of_nothing_is_no_grid():
    assert compute_consumption(
        device("a", shared=True, capacity={"mem": capacity(9, policy(1, least=1, step=0))}),
        (("mem", quantity("2500m").nanos),),
    ) == {"mem": quantity("2500m").nanos}


# --- what is left ---


def shared(total, rule=None, **more):
    return published(device("a", shared=True, capacity={"mem": capacity(total, rule)}, **more))


@pytest.mark.req("K5075-003", "K5075-031", "K5075-073", "K5075-083", "K5075-088", "K5075-091", "K5075-133")
@pytest.mark.req("K5075-134")
@pytest.mark.parametrize(
    ("held", "asked", "fits"),
    [
        ([], [10], True),
        ([], [4, 6], True),
        ([], [4, 7], False),
        ([4], [6], True),
        ([4], [7], False),
        ([2, 3], [5], True),
        ([2, 3], [3, 3], False),
        ([10], [0], True),
        ([11], [0], False),
    ],
)
def test_shares_of_now_and_before_fit_together(held, asked, fits):
    others = [
        holding(result("a", share=f"id-{i}", consumed={"mem": amount}), name=f"h{i}")
        for i, amount in enumerate(held)
    ]
    requests = [request(f"r{i}", capacity={"mem": amount}) for i, amount in enumerate(asked)]
    found = picked(world(shared(10), claim(*requests), held=others))
    assert found == ([f"r{i}=a" for i in range(len(asked))] if fits else None)


@pytest.mark.req("K5075-091")
def test_claims_of_one_pod_share_what_is_left():
    asked = [claim(request("r", capacity={"mem": 6}), name=name) for name in ("c0", "c1")]
    assert picked(world(shared(12), *asked)) == ["r=a", "r=a"]
    assert picked(world(shared(11), *asked)) is None


@pytest.mark.req("K5075-171")
def test_a_share_too_many_is_refused_with_what_is_missing():
    found = refusals(
        world(shared(10), claim(request("r0", capacity={"mem": 8}), request("r1", capacity={"mem": 3})))
    )
    assert found["a"].reason is SHORT
    assert (found["a"].detail.wanted, found["a"].detail.left) == (3 * 10**9, 2 * 10**9)


@pytest.mark.req("K5075-030", "K5075-128")
def test_without_capacity_a_device_is_shared_without_limit():
    requests = [request(f"r{i}") for i in range(6)]
    slices = published(device("a", shared=True))
    assert picked(world(slices, claim(*requests))) == [f"r{i}=a" for i in range(6)]


@pytest.mark.req("K5075-022", "K5075-036")
def test_a_policy_of_nothing_is_shared_without_limit():
    requests = [request(f"r{i}") for i in range(6)]
    problem = world(shared(1, policy(0, values=(0,))), claim(*requests))
    assert picked(problem) == [f"r{i}=a" for i in range(6)]
    assert consumed(problem) == [{"mem": "0"}] * 6


@pytest.mark.req("K5075-017", "K5075-026", "K5075-034")
def test_a_share_without_a_request_takes_the_whole_capacity():
    """Also behind one who said something: the first does not decide for the others."""
    small, silent = request("small", capacity={"mem": 1}), request("silent")
    assert consumed(world(shared(10), claim(silent))) == [{"mem": "10"}]
    assert picked(world(shared(10), claim(small, silent))) is None
    assert picked(world(shared(10), claim(silent, small))) is None


@pytest.mark.req("K5075-081", "K5075-085")
def test_every_capacity_is_written_down_even_nothing():
    item = device(
        "a", shared=True, capacity={"mem": 8, "bw": capacity(4, policy(0)), "cores": capacity(4, policy(1))}
    )
    problem = world(published(item), claim(request("r", capacity={"mem": 3})))
    assert consumed(problem) == [{"mem": "3", "bw": "0", "cores": "1"}]


@pytest.mark.req("K5075-011", "K5075-012")
def test_one_claim_may_have_two_parts_of_a_device():
    asked = claim(request("r0", capacity={"mem": 1}), request("r1", capacity={"mem": 1}))
    assert picked(world(shared(10), asked)) == ["r0=a", "r1=a"]


def test_one_request_never_has_two_parts_of_a_device():
    assert picked(world(shared(10), claim(request("r", 2, capacity={"mem": 1})))) is None


@pytest.mark.req("K5075-078", "K5075-137", "K5075-138")
def test_distinct_values_keep_requests_off_one_device():
    asked = claim(
        request("r0", capacity={"mem": 1}), request("r1", capacity={"mem": 1}), distinct("gpu.example/port")
    )
    first = device("a", shared=True, capacity={"mem": 4}, port="eth1")
    second = device("b", shared=True, capacity={"mem": 4}, port="eth2")
    assert picked(world(published(first), asked)) is None
    assert picked(world(published(first, second), asked)) == ["r0=a", "r1=b"]


@pytest.mark.req("K5075-010", "K5075-136")
def test_alternatives_may_ask_for_amounts():
    asked = claim(
        first_of("r", ("much", asking(capacity={"mem": 11})), ("less", asking(capacity={"mem": 4})))
    )
    problem = world(shared(10), asked)
    assert picked(problem) == ["r/less=a"]
    assert consumed(problem) == [{"mem": "4"}]


@pytest.mark.req("K5075-067")
@pytest.mark.parametrize(("held", "found"), [(0, ["r=a", "r=b"]), (3, ["r=a", "r=b"]), (4, None)])
def test_all_means_also_those_that_have_not_enough_left(held, found):
    slices = published(
        device("a", shared=True, capacity={"mem": 5}),
        device("b", shared=True, capacity={"mem": 5}),
        device("never", shared=True, capacity={"mem": 1}),
    )
    others = [holding(result("b", share="id", consumed={"mem": held}))]
    assert picked(world(slices, claim(request("r", "All", capacity={"mem": 2})), held=others)) == found


@pytest.mark.req("K5075-098")
def test_a_changed_policy_leaves_old_shares_as_they_are():
    """An old share of 3 is not rounded to the new grid of 4: 5 of 8 are left, enough for one more step."""
    rule = policy(4, least=4, step=4)
    others = [holding(result("a", share="id", consumed={"mem": 3}))]
    assert picked(world(shared(8, rule), claim(request("r", capacity={"mem": 4})), held=others)) == ["r=a"]
    assert picked(world(shared(8, rule), claim(request("r", capacity={"mem": 5})), held=others)) is None


@pytest.mark.req("K5075-037", "K5075-089", "K5075-090", "K5075-093")
def test_selectors_come_before_amounts_and_constraints_after():
    problem = world(shared(4, numa=1), claim(request("r", 1, "never", capacity={"mem": 9})))
    assert picked(problem) is None
    tight = claim(
        request("r0", capacity={"mem": 3}), request("r1", capacity={"mem": 3}), distinct("gpu.example/numa")
    )
    assert refusals(world(shared(4, numa=1), tight))["a"].reason is SHORT
    loose = claim(
        request("r0", capacity={"mem": 1}), request("r1", capacity={"mem": 1}), distinct("gpu.example/numa")
    )
    assert refusals(world(shared(4, numa=1), loose))["a"].reason is RefusalReason.CONSTRAINT


@pytest.mark.req("K5075-134")
def test_what_a_step_back_gives_up_is_there_again():
    """r0 first takes all of `a`; only when it moves on to `b` can r1, which must have `a`, be served."""
    slices = published(
        device("a", shared=True, capacity={"mem": 4}, numa=1),
        device("b", shared=True, capacity={"mem": 4}, numa=0),
    )
    asked = claim(request("r0", capacity={"mem": 4}), request("r1", 1, "attr:numa=1", capacity={"mem": 4}))
    assert picked(world(slices, asked)) == ["r0=b", "r1=a"]


@pytest.mark.req("K5075-032")
def test_the_published_capacity_is_never_changed():
    slices = shared(10)
    problem = world(slices, claim(request("r", capacity={"mem": 4})))
    before = str(slices)
    assert results_of(problem) is not None
    assert str(slices) == before
