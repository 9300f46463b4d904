"""Taints and what tolerates them."""

from __future__ import annotations

import pytest

from dray.allocator.checks.taints import check
from dray.allocator.refusals import RefusalReason
from dray.api.resource import DeviceTaint, DeviceToleration
from dray.api.tolerations import tolerates_taint
from tests.brute.builders import asking, claim, device, first_of, published, request
from tests.brute.outcome import picked, refusals, world

HOT = DeviceTaint(key="hot", value="yes", effect="NoSchedule")

TOLERATIONS = [
    # key, operator, value, effect, tolerates `hot=yes:NoSchedule`
    ("hot", "Exists", "", "", True),
    ("hot", "Exists", "", "NoSchedule", True),
    ("hot", "Exists", "", "NoExecute", False),
    ("cold", "Exists", "", "", False),
    ("", "Exists", "", "", True),
    ("", "Exists", "", "NoExecute", False),
    ("hot", "Equal", "yes", "", True),
    ("hot", "Equal", "no", "", False),
    ("hot", "", "yes", "", True),
    ("hot", "", "", "", False),
    ("", "Equal", "yes", "", True),
    ("hot", "Matches", "yes", "", False),
]


@pytest.mark.parametrize(("key", "operator", "value", "effect", "expected"), TOLERATIONS)
def test_a_toleration_covers_what_it_leaves_empty(key, operator, value, effect, expected):
    toleration = DeviceToleration(key=key, operator=operator, value=value, effect=effect)
    assert tolerates_taint(toleration, HOT) is expected
    slices = published(device("a", taints=(HOT,)))
    found = picked(world(slices, claim(request("r", tolerations=(toleration,)))))
    assert found == (["r=a"] if expected else None)


@pytest.mark.parametrize(
    ("effect", "keeps_away"), [("NoSchedule", True), ("NoExecute", True), ("None", False), ("Future", False)]
)
def test_only_some_effects_keep_pods_away(effect, keeps_away):
    slices = published(device("a", taints=(DeviceTaint(key="hot", effect=effect),)), device("b"))
    assert picked(world(slices, claim(request("r")))) == (["r=b"] if keeps_away else ["r=a"])


def test_every_taint_needs_a_toleration():
    old = DeviceTaint(key="old", effect="NoExecute")
    one = (DeviceToleration(key="hot", operator="Exists"),)
    refusal = check((HOT, old), one)
    assert refusal is not None
    assert (refusal.reason, refusal.detail) == (RefusalReason.TAINTED, old)
    assert check((HOT, old), (*one, DeviceToleration(key="old", operator="Exists"))) is None


def test_alternatives_tolerate_for_themselves():
    slices = published(device("a", taints=(HOT,)))
    ways = [("strict", asking()), ("lax", asking(tolerations=(DeviceToleration(operator="Exists"),)))]
    assert picked(world(slices, claim(first_of("r", *ways)))) == ["r/lax=a"]


def test_a_tainted_device_is_still_one_of_all():
    problem = world(published(device("a", taints=(HOT,)), device("b")), claim(request("r", "All")))
    assert picked(problem) is None
    assert refusals(problem)["a"].reason is RefusalReason.TAINTED
