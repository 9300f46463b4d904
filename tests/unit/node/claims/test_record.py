"""What the agent remembers: stages, users, and the form in which it is kept."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest

from dray.node.claims.record import DeviceKey, DriverPart, Held, Record, Stage, User
from dray.node.plugins.driver_interface import PreparedDevice

A, B = User(uid="a", namespace="ns", name="pod-a", entries=("gpu",)), User(uid="b", namespace="ns", name="b")


def held(uid: str = "x", *states: Stage, users: tuple[User, ...] = (A,), **more: object) -> Held:
    parts = tuple(DriverPart(driver=f"d{number}", state=state) for number, state in enumerate(states))
    return Held(uid=uid, namespace="ns", name=uid, users=users, parts=parts, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("states", list(product((Stage.WANTED, Stage.PREPARING, Stage.PREPARED), repeat=2)))
def test_a_claim_is_prepared_when_all_its_drivers_have_prepared_it(states):
    all_prepared = states == (Stage.PREPARED, Stage.PREPARED)
    assert held("x", *states).state is (Stage.PREPARED if all_prepared else Stage.PREPARING)


def test_a_claim_without_drivers_is_prepared_when_somebody_uses_it():
    assert held("x").state is Stage.PREPARED


def test_a_claim_without_users_is_on_its_way_out():
    assert held("x", Stage.UNPREPARING, users=()).state is Stage.UNPREPARING
    assert held("x", users=()).state is Stage.LETTING_GO


def test_pods_are_found_by_what_they_use_and_by_what_they_left():
    record = Record(claims=(held("x"), held("y", users=(A, B)), held("z", users=(), leaving=(B,))))
    assert [each.uid for each in record.used_by("a")] == ["x", "y"]
    assert [each.uid for each in record.left_by("b")] == ["z"]
    assert set(record.users()) == {"a", "b"}
    assert record.users()["a"] == A


def test_claims_keep_their_order():
    record = Record(claims=(held("x"), held("y")))
    changed = record.put(held("x", Stage.WANTED)).put(held("z"))
    assert [each.uid for each in changed.claims] == ["x", "y", "z"]
    assert changed.claims[0].state is Stage.PREPARING
    assert [each.uid for each in changed.without("y").claims] == ["x", "z"]
    assert [each.uid for each in record.claims] == ["x", "y"]


def test_claims_are_counted_by_stage_and_by_driver():
    record = Record(
        claims=(held("x", Stage.PREPARED), held("y", Stage.PREPARED, Stage.WANTED), held("z", users=()))
    )
    assert record.stages() == {Stage.PREPARED: 1, Stage.PREPARING: 1, Stage.LETTING_GO: 1}
    assert record.drivers() == {"d0": 2, "d1": 1}


def test_a_record_is_read_as_it_was_written():
    key = DeviceKey(pool="p", device="d", request="r/s", share_id="id", admin=True)
    device = PreparedDevice(request_names=("r",), pool="p", device="d", cdi=("v/c=d",))
    part = DriverPart(driver="d", state=Stage.PREPARED, wanted=(key,), devices=(device,), error="no")
    whole = Held(
        uid="x",
        namespace="ns",
        name="n",
        classic=True,
        users=(A,),
        leaving=(B,),
        parts=(part,),
        announced=True,
    )
    record = Record(boot_id="boot", claims=(whole, held("y")))
    assert msgspec.json.decode(msgspec.json.encode(record), type=Record) == record


def test_a_field_that_nobody_knows_is_damage():
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"claims":[{"uid":"x","later":1}]}', type=Record)
