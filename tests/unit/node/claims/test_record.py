"""The agent's record: stages, users, and its stored form."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest

from dray.node.claims.record import (
    ClaimsRecord,
    ClaimUser,
    DriverPart,
    NodeClaimStage,
    RecordedClaim,
    RecordedDevice,
)
from dray.node.plugins.driver_interface import PreparedDevice

A, B = (
    ClaimUser(uid="a", namespace="ns", name="pod-a", entries=("gpu",)),
    ClaimUser(uid="b", namespace="ns", name="b"),
)


def held(
    uid: str = "x", *states: NodeClaimStage, users: tuple[ClaimUser, ...] = (A,), **more: object
) -> RecordedClaim:
    parts = tuple(DriverPart(driver=f"d{number}", state=state) for number, state in enumerate(states))
    return RecordedClaim(uid=uid, namespace="ns", name=uid, users=users, parts=parts, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "states",
    list(product((NodeClaimStage.WANTED, NodeClaimStage.PREPARING, NodeClaimStage.PREPARED), repeat=2)),
)
def test_a_claim_is_prepared_when_all_its_drivers_have_prepared_it(states):
    all_prepared = states == (NodeClaimStage.PREPARED, NodeClaimStage.PREPARED)
    assert held("x", *states).state is (NodeClaimStage.PREPARED if all_prepared else NodeClaimStage.PREPARING)


def test_a_claim_without_drivers_is_prepared_when_a_pod_uses_it():
    assert held("x").state is NodeClaimStage.PREPARED


def test_a_claim_without_users_is_on_its_way_out():
    assert held("x", NodeClaimStage.UNPREPARING, users=()).state is NodeClaimStage.UNPREPARING
    assert held("x", users=()).state is NodeClaimStage.LETTING_GO


def test_pods_are_found_by_what_they_use_and_by_what_they_left():
    record = ClaimsRecord(claims=(held("x"), held("y", users=(A, B)), held("z", users=(), leaving=(B,))))
    assert [each.uid for each in record.find_used_by("a")] == ["x", "y"]
    assert [each.uid for each in record.find_released_by("b")] == ["z"]
    assert set(record.collect_users()) == {"a", "b"}
    assert record.collect_users()["a"] == A


def test_claims_keep_their_order():
    record = ClaimsRecord(claims=(held("x"), held("y")))
    changed = record.put_claim(held("x", NodeClaimStage.WANTED)).put_claim(held("z"))
    assert [each.uid for each in changed.claims] == ["x", "y", "z"]
    assert changed.claims[0].state is NodeClaimStage.PREPARING
    assert [each.uid for each in changed.remove_claim("y").claims] == ["x", "z"]
    assert [each.uid for each in record.claims] == ["x", "y"]


def test_claims_are_counted_by_stage_and_by_driver():
    record = ClaimsRecord(
        claims=(
            held("x", NodeClaimStage.PREPARED),
            held("y", NodeClaimStage.PREPARED, NodeClaimStage.WANTED),
            held("z", users=()),
        )
    )
    assert record.count_by_stage() == {
        NodeClaimStage.PREPARED: 1,
        NodeClaimStage.PREPARING: 1,
        NodeClaimStage.LETTING_GO: 1,
    }
    assert record.count_by_driver() == {"d0": 2, "d1": 1}


def test_a_record_is_read_as_it_was_written():
    key = RecordedDevice(pool="p", device="d", request="r/s", share_id="id", admin=True)
    device = PreparedDevice(request_names=("r",), pool="p", device="d", cdi=("v/c=d",))
    part = DriverPart(driver="d", state=NodeClaimStage.PREPARED, wanted=(key,), devices=(device,), error="no")
    whole = RecordedClaim(
        uid="x",
        namespace="ns",
        name="n",
        classic=True,
        users=(A,),
        leaving=(B,),
        parts=(part,),
        announced=True,
    )
    record = ClaimsRecord(boot_id="boot", claims=(whole, held("y")))
    assert msgspec.json.decode(msgspec.json.encode(record), type=ClaimsRecord) == record


def test_an_unknown_field_is_damage():
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"claims":[{"uid":"x","later":1}]}', type=ClaimsRecord)
