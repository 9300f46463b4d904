"""Decisions on the record of an agent, case by case; the laws are in tests/property/test_node_plan.py."""

from __future__ import annotations

import pytest

from dray.node.claims import plan
from dray.node.claims.outcomes import ClaimsPending, ClaimsRefused, NotReadyReason
from dray.node.claims.plan import AdmittedClaim, DriverCall, DriverKey
from dray.node.claims.record import (
    ClaimsRecord,
    ClaimUser,
    DriverPart,
    NodeClaimStage,
    RecordedClaim,
    RecordedDevice,
)
from dray.node.plugins.driver_interface import ClaimRef, DriverCallFailure, DriverCallFault, PreparedDevice

D, E = DriverKey("d", False), DriverKey("e", False)
A = ClaimUser(uid="a", namespace="ns", name="pod-a")
B = ClaimUser(uid="b", namespace="ns", name="pod-b")
NO = DriverCallFailure(DriverCallFault.REFUSED, "no")


def key(device: str = "0", **more: object) -> RecordedDevice:
    return RecordedDevice(pool="p", device=device, request="r", **more)  # type: ignore[arg-type]


def wants(
    uid: str, *drivers: str, keys: tuple[RecordedDevice, ...] = (), classic: bool = False
) -> AdmittedClaim:
    parts = tuple(DriverPart(driver=driver, wanted=keys) for driver in drivers)
    return AdmittedClaim(uid, "ns", uid, classic, (f"entry-{uid}",), parts)


def ref(uid: str, *cdi: str) -> ClaimRef:
    return ClaimRef("ns", uid, uid, cdi)


def made(device: str) -> tuple[PreparedDevice, ...]:
    return (PreparedDevice(pool="p", device=device, cdi=(f"v/c={device}",)),)


def begun(*wanted: AdmittedClaim, user: ClaimUser = A, record: ClaimsRecord | None = None) -> ClaimsRecord:
    """A record in which drivers have prepared everything."""
    record, calls = plan.begin_preparing(
        record or ClaimsRecord(), user, wanted, plan.collect_drivers(wanted), True
    )
    for call in calls:
        outcomes = {each.uid: made(each.uid) for each in call.claims}
        record = plan.record_prepared(record, call.driver.name, outcomes)
    return record


def test_drivers_are_asked_together_and_only_those_that_are_there():
    wanted = (wants("x", "d", "e"), wants("y", "d"))
    record, calls = plan.begin_preparing(ClaimsRecord(), A, wanted, {D}, True)
    assert calls == (DriverCall(D, (ref("x"), ref("y")), frozenset({"x", "y"})),)
    x, y = record.claims
    assert [part.state for part in x.parts] == [NodeClaimStage.PREPARING, NodeClaimStage.WANTED]
    assert x.announced
    assert y.announced
    assert x.users == (ClaimUser(uid="a", namespace="ns", name="pod-a", entries=("entry-x",)),)


def test_only_claims_with_driver_calls_are_announced():
    record, calls = plan.begin_preparing(ClaimsRecord(), A, (wants("x", "d"),), set(), True)
    assert calls == ()
    assert not record.claims[0].announced
    assert plan.release_pod(record, "a").claims == ()


def test_classic_claims_are_not_announced_and_go_to_the_driver_of_their_protocol():
    wanted = (wants("x", "d", classic=True), wants("y", "d"))
    record, calls = plan.begin_preparing(ClaimsRecord(), A, wanted, {DriverKey("d", True), D}, True)
    assert [(call.driver.classic, call.claims) for call in calls] == [
        (True, (ref("x"),)),
        (False, (ref("y"),)),
    ]
    assert [held.announced for held in record.claims] == [False, True]


def test_a_driver_that_has_prepared_a_claim_is_not_called_again():
    wanted = (wants("x", "d", "e"),)
    record, _ = plan.begin_preparing(ClaimsRecord(), A, wanted, {D, E}, True)
    record = plan.record_prepared(record, "d", {"x": made("1")})
    record = plan.record_prepared(record, "e", {"x": NO})
    again, calls = plan.begin_preparing(record, A, wanted, {D, E}, True)
    assert calls == (DriverCall(E, (ref("x"),)),)
    assert again.claims[0].parts[0] == record.claims[0].parts[0]
    done = plan.record_prepared(again, "e", {"x": made("2")})
    assert done.claims[0].state is NodeClaimStage.PREPARED
    assert done.claims[0].parts[1].error == ""


def test_withdrawing_calls_keeps_parts_that_were_called_before():
    wanted = (wants("x", "d"),)
    first, calls = plan.begin_preparing(ClaimsRecord(), A, wanted, {D}, True)
    assert plan.withdraw_calls(first, calls).claims[0].parts[0].state is NodeClaimStage.WANTED
    second, again = plan.begin_preparing(plan.record_prepared(first, "d", {"x": NO}), A, wanted, {D}, True)
    assert plan.withdraw_calls(second, again).claims[0].parts[0].state is NodeClaimStage.PREPARING


def test_a_late_outcome_changes_nothing():
    record = plan.release_pod(begun(wants("x", "d")), "a")
    assert plan.record_prepared(record, "d", {"x": made("1"), "unknown": made("2")}) == record
    used = begun(wants("x", "d"))
    assert plan.record_unprepared(used, "d", {"x": None, "unknown": None}) == used


def test_the_error_of_a_driver_that_is_not_registered_any_more_is_cleared():
    wanted = (wants("x", "d"),)
    record, _ = plan.begin_preparing(ClaimsRecord(), A, wanted, {D}, True)
    record, calls = plan.begin_preparing(plan.record_prepared(record, "d", {"x": NO}), A, wanted, set(), True)
    assert calls == ()
    assert record.claims[0].parts[0].error == ""


def test_the_last_pod_takes_the_claim_with_it():
    record = begun(wants("x", "d"), user=B, record=begun(wants("x", "d")))
    one_left = plan.release_pod(record, "a")
    assert one_left.claims[0].pod_uids == ("b",)
    assert plan.plan_unprepare_calls(one_left.claims, {D}) == ()
    none_left = plan.release_pod(one_left, "b")
    assert none_left.claims[0].state is NodeClaimStage.UNPREPARING
    assert [user.uid for user in none_left.claims[0].leaving] == ["b"]
    assert plan.plan_unprepare_calls(none_left.claims, {D}) == (DriverCall(D, (ref("x"),)),)
    still = plan.record_unprepared(none_left, "d", {"x": NO})
    assert still.claims[0].parts[0].error == "no"
    gone = plan.record_unprepared(still, "d", {"x": None})
    assert gone.claims[0].state is NodeClaimStage.LETTING_GO
    assert gone.claims[0].leaving == ()
    assert plan.confirm_withdrawn(gone, "x").claims == ()
    assert plan.confirm_withdrawn(still, "x") == still


def test_a_classic_driver_gets_back_what_it_returned():
    record = plan.release_pod(begun(wants("x", "d", classic=True)), "a")
    [call] = plan.plan_unprepare_calls(record.claims, {DriverKey("d", True)})
    assert call.claims == (ref("x", "v/c=x"),)
    rebooted = plan.release_pod(plan.apply_boot_id(begun(wants("x", "d", classic=True)), "boot-2"), "a")
    assert plan.plan_unprepare_calls(rebooted.claims, {DriverKey("d", True)}) == (call,)


def test_a_new_pod_waits_while_its_claim_is_released():
    record = plan.release_pod(begun(wants("x", "d")), "a")
    answer = plan.find_obstacle(record, (wants("x", "d"),))
    assert isinstance(answer, ClaimsPending)
    assert answer.reason is NotReadyReason.GIVEN_BACK_FIRST
    gone = plan.record_unprepared(record, "d", {"x": None})
    assert plan.find_obstacle(gone, (wants("x", "d"),)) is None
    anew, calls = plan.begin_preparing(gone, B, (wants("x", "d"),), {D}, True)
    assert calls == (DriverCall(D, (ref("x"),), frozenset({"x"})),)
    assert anew.claims[0].announced


@pytest.mark.parametrize(
    ("mine", "theirs", "excluded"),
    [
        (key(), key(), True),
        (key(), key("1"), False),
        (key(share_id="s"), key(share_id="t"), False),
        (key(share_id="s"), key(share_id="s"), True),
        (key(share_id="s"), key(), True),
        (key(), key(share_id="s"), True),
        (key(admin=True), key(), False),
        (key(), key(admin=True), False),
    ],
)
@pytest.mark.parametrize("together", [False, True])
def test_a_device_belongs_to_one_claim_shares_and_admin_access_aside(mine, theirs, excluded, together):
    first, second = wants("x", "d", keys=(theirs,)), wants("y", "d", keys=(mine,))
    record, wanted = (ClaimsRecord(), (first, second)) if together else (begun(first), (second,))
    answer = plan.find_obstacle(record, wanted)
    assert (answer is not None) is excluded
    if excluded:
        assert isinstance(answer, ClaimsRefused)
        assert answer.reason is NotReadyReason.DEVICE_HELD
        assert "claim ns/x" in answer.message


def test_the_same_device_name_of_another_driver_is_another_device():
    held = begun(wants("x", "d", keys=(key(),)))
    assert plan.find_obstacle(held, (wants("y", "e", keys=(key(),)),)) is None


def test_a_pod_waits_for_a_device_in_release():
    record = plan.release_pod(begun(wants("x", "d", keys=(key(),))), "a")
    answer = plan.find_obstacle(record, (wants("y", "d", keys=(key(),)),))
    assert isinstance(answer, ClaimsPending)
    assert answer.reason is NotReadyReason.GIVEN_BACK_FIRST


def test_a_claim_that_asks_for_other_devices_now_is_refused_once_drivers_were_asked():
    old, new = wants("x", "d", keys=(key("0"),)), wants("x", "d", keys=(key("1"),))
    answer = plan.find_obstacle(begun(old), (new,))
    assert isinstance(answer, ClaimsRefused)
    assert answer.reason is NotReadyReason.ALLOCATED_ANEW
    unasked, _ = plan.begin_preparing(ClaimsRecord(), A, (old,), set(), True)
    assert plan.find_obstacle(unasked, (new,)) is None
    changed, _ = plan.begin_preparing(unasked, A, (new,), {D}, True)
    assert changed.claims[0].parts[0].wanted == (key("1"),)


def test_what_is_not_known_of_a_claim_is_learned():
    """A record that was made anew knows drivers, not devices."""
    part = DriverPart(driver="d", state=NodeClaimStage.PREPARING)
    record = ClaimsRecord(
        claims=(RecordedClaim(uid="x", namespace="ns", name="x", users=(A,), parts=(part,)),)
    )
    wanted = (wants("x", "d", keys=(key(),)),)
    assert plan.find_obstacle(record, wanted) is None
    learned, calls = plan.begin_preparing(record, A, wanted, {D}, True)
    assert calls == (DriverCall(D, (ref("x"),)),)
    assert learned.claims[0].parts[0].wanted == (key(),)


def test_an_entry_that_stands_for_another_claim_now_is_taken_from_the_old_one():
    record = begun(wants("x", "d"))
    replaced = AdmittedClaim("y", "ns", "x", False, ("entry-x",), wants("y", "d").parts)
    record = begun(replaced, record=record)
    assert {held.uid: held.users[0].entries for held in record.claims} == {"x": (), "y": ("entry-x",)}
    assert all(held.parts == () for held in _all_given_back(plan.release_pod(record, "a")).claims)


def _all_given_back(record: ClaimsRecord) -> ClaimsRecord:
    for call in plan.plan_unprepare_calls(record.claims, {D, E}):
        record = plan.record_unprepared(record, call.driver.name, dict.fromkeys(call.uids))
    return record


def test_what_a_person_gave_up_is_forgotten_but_not_what_pods_use():
    record = begun(wants("y", "e"), user=B, record=begun(wants("x", "d")))
    record = plan.abandon_claims(plan.release_pod(record, "a"), ("x", "y", "unknown"))
    assert {held.uid: held.state for held in record.claims} == {
        "x": NodeClaimStage.LETTING_GO,
        "y": NodeClaimStage.PREPARED,
    }


@pytest.mark.parametrize(("boot", "again"), [("boot-1", False), ("boot-2", True), ("", True)])
def test_a_reboot_asks_for_everything_that_pods_use(boot, again):
    record = plan.apply_boot_id(begun(wants("x", "d")), "boot-1")
    record = begun(wants("y", "e"), user=B, record=begun(wants("x", "d"), record=record))
    record = plan.release_pod(record, "b")
    awake = plan.apply_boot_id(record, boot)
    assert awake.boot_id == boot
    assert {held.uid: held.state for held in awake.claims} == {
        "x": NodeClaimStage.PREPARING if again else NodeClaimStage.PREPARED,
        "y": NodeClaimStage.UNPREPARING,
    }
