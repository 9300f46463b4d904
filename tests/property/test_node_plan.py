"""Properties of the plan of a node agent, with drivers that fail, agents that crash and machines that reboot.

The state machine keeps a record, makes the calls that the plan asks for, and crashes anywhere. What drivers
really have prepared is kept beside it. The properties:

- a pod is ready only when every driver of all its claims succeeded in this boot;
- no driver is asked to unprepare a claim that a pod uses;
- a device is never prepared for two claims, shares and admin access aside;
- what a driver may have prepared is always in the record, and is unprepared when all pods have ended;
- a pod becomes ready in one attempt when nothing blocks it and all drivers succeed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dray.node.claims import plan
from dray.node.claims.outcomes import ClaimsReady
from dray.node.claims.plan import AdmittedClaim, DriverCall, DriverKey
from dray.node.claims.readiness import check_prepared
from dray.node.claims.record import ClaimsRecord, ClaimUser, DriverPart, NodeClaimStage, RecordedDevice
from dray.node.plugins.driver_interface import (
    DriverCallFailure,
    DriverCallFault,
    PreparedDevice,
    PrepareOutcome,
)
from tests.effort import effort

DRIVERS = (DriverKey("a", False), DriverKey("b", False), DriverKey("c", True))
PODS = ("p1", "p2")

SELDOM = st.sampled_from((False, False, False, True))
ANSWER = st.sampled_from(("yes", "yes", "yes", "no", "nobody knows"))


def _key(device: str, share: str | None = None, *, admin: bool = False) -> RecordedDevice:
    return RecordedDevice(pool="pool", device=device, request="r", share_id=share, admin=admin)


def _claim(uid: str, *parts: tuple[str, tuple[RecordedDevice, ...]], classic: bool = False) -> AdmittedClaim:
    made = tuple(DriverPart(driver=driver, wanted=wanted) for driver, wanted in parts)
    return AdmittedClaim(uid, "ns", uid, classic, (uid,), made)


CLAIMS = (
    _claim("x", ("a", (_key("0"),)), ("b", (_key("0"),))),
    _claim("y", ("a", (_key("1"), _key("2", "s1")))),
    _claim("z", ("a", (_key("2", "s2"),)), ("b", (_key("1"),))),
    # Wants what x has: somebody made a mistake, and the node must not make it worse.
    _claim("thief", ("a", (_key("0"),))),
    _claim("admin", ("a", (_key("0", admin=True), _key("1", admin=True)))),
    _claim("classic", ("c", ()), classic=True),
    _claim("empty"),
)
BY_UID = {claim.uid: claim for claim in CLAIMS}


@dataclass
class Truth:
    """What a driver really has in its hands, which the agent only knows from answers."""

    held: set[str] = field(default_factory=set)
    """Uids of claims that were set up and not taken down, in any boot."""
    this_boot: set[str] = field(default_factory=set)
    present: bool = True


class Shell(RuleBasedStateMachine):
    """An agent that keeps a record, calls drivers, and may die between any two steps."""

    def __init__(self) -> None:
        super().__init__()
        self.boot = 1
        self.record = ClaimsRecord(boot_id="1")
        self.disk = self.record
        self.truth = {driver: Truth() for driver in DRIVERS}
        self.running: dict[str, tuple[AdmittedClaim, ...]] = {}
        """Pods that were told to be ready and whose containers run."""
        self.said_no = self.absent = False
        self.bound: dict[str, tuple[AdmittedClaim, ...]] = {}
        """Pods that asked for claims and were not released yet."""

    def _present(self) -> frozenset[DriverKey]:
        return frozenset(driver for driver, truth in self.truth.items() if truth.present)

    # Pods.

    @rule(
        pod=st.sampled_from(PODS),
        uids=st.lists(st.sampled_from(sorted(BY_UID)), min_size=1, max_size=2, unique=True),
        draws=st.data(),
        dies=SELDOM,
    )
    def attempt(self, pod: str, uids: list[str], draws: st.DataObject, dies: bool) -> None:
        """Prepare a pod's claims, with drivers that succeed or fail, and perhaps die on the way."""
        wanted = self.bound.setdefault(pod, tuple(BY_UID[uid] for uid in uids))
        if plan.find_obstacle(self.record, wanted) is not None:
            return
        user = ClaimUser(uid=pod, namespace="ns", name=pod)
        self.record, calls = plan.begin_preparing(self.record, user, wanted, self._present(), True)
        if draws.draw(SELDOM, label="the server is away"):
            self.record = plan.withdraw_calls(self.record, calls)
            return
        self.disk = self.record
        self.said_no = False
        for call in calls:
            outcomes = {ref.uid: self._set_up(call, ref.uid, draws) for ref in call.claims}
            if dies and draws.draw(st.booleans(), label="dies here"):
                self.restart()
                return
            self.record = plan.record_prepared(self.record, call.driver.name, outcomes)
            self.disk = self.record
        self.absent = not plan.collect_drivers(wanted) <= self._present()
        if isinstance(check_prepared(self.record, wanted), ClaimsReady):
            self.running[pod] = wanted
        else:
            assert self.absent or self.said_no, f"{pod} is not ready, and everybody said yes"

    def _set_up(self, call: DriverCall, uid: str, draws: st.DataObject) -> PrepareOutcome:
        truth = self.truth[call.driver]
        outcome = draws.draw(ANSWER, label=f"{call.driver} {uid}")
        if outcome != "no":
            for other in truth.held - {uid}:
                assert not _clash(call.driver, uid, other), f"{uid} and {other} both have a device"
            truth.held.add(uid)
            truth.this_boot.add(uid)
        self.said_no = self.said_no or outcome != "yes"
        if outcome == "yes":
            return (PreparedDevice(pool="pool", device=uid, cdi=(f"v/c={uid}-{call.driver.name}",)),)
        return DriverCallFailure(
            DriverCallFault.NO_ANSWER if outcome == "nobody knows" else DriverCallFault.REFUSED, outcome
        )

    @rule(pod=st.sampled_from(PODS), draws=st.data(), dies=SELDOM)
    def release(self, pod: str, draws: st.DataObject, dies: bool) -> None:
        """Containers end, then claims are given back, with drivers that succeed or fail."""
        self.running.pop(pod, None)
        self.bound.pop(pod, None)
        self.record = plan.release_pod(self.record, pod)
        self.disk = self.record
        for call in plan.plan_unprepare_calls(self.record.find_released_by(pod), self._present()):
            self._let_go(call, draws, dies)

    def _let_go(self, call: DriverCall, draws: st.DataObject | None, dies: bool) -> None:
        outcomes: dict[str, DriverCallFailure | None] = {}
        for ref in call.claims:
            users = [pod for pod, claims in self.running.items() if ref.uid in {c.uid for c in claims}]
            assert not users, f"{call.driver} is asked to let go of {ref.uid}, which {users} use"
            held = self.record.find_claim(ref.uid)
            assert held is not None
            assert not held.users
            answer = draws.draw(ANSWER) if draws else "yes"
            if answer != "no":
                self.truth[call.driver].held.discard(ref.uid)
                self.truth[call.driver].this_boot.discard(ref.uid)
            outcomes[ref.uid] = (
                None if answer == "yes" else DriverCallFailure(DriverCallFault.NO_ANSWER, answer)
            )
        if dies:
            self.restart()
            return
        self.record = plan.record_unprepared(self.record, call.driver.name, outcomes)
        self.disk = self.record

    @rule(uid=st.sampled_from(sorted(BY_UID)))
    def told_the_server(self, uid: str) -> None:
        self.record = plan.confirm_withdrawn(self.record, uid)

    # The world.

    @rule()
    def restart(self) -> None:
        """The agent dies and starts again; containers go on."""
        content = msgspec.json.encode(self.disk)
        self.record = plan.apply_boot_id(msgspec.json.decode(content, type=ClaimsRecord), str(self.boot))
        self.disk = self.record

    @rule()
    def reboot(self) -> None:
        """The machine starts again: containers and what drivers set up are gone, their duty is not."""
        self.boot += 1
        self.running.clear()
        for truth in self.truth.values():
            truth.this_boot.clear()
        self.restart()

    @rule(driver=st.sampled_from(DRIVERS), present=st.booleans())
    def come_or_go(self, driver: DriverKey, present: bool) -> None:
        self.truth[driver].present = present

    @precondition(lambda self: not self.bound)
    @rule()
    def in_the_end(self) -> None:
        """When all pods have ended and all drivers answer, nothing is left anywhere."""
        for truth in self.truth.values():
            truth.present = True
        for pod in PODS:
            self.record = plan.release_pod(self.record, pod)
        for call in plan.plan_unprepare_calls(self.record.claims, self._present()):
            self._let_go(call, None, False)
        for uid in BY_UID:
            self.record = plan.confirm_withdrawn(self.record, uid)
        self.disk = self.record
        assert {driver: truth.held for driver, truth in self.truth.items()} == {d: set() for d in DRIVERS}
        assert self.record.claims == ()

    # Laws.

    @invariant()
    def who_runs_has_everything(self) -> None:
        for pod, claims in self.running.items():
            for claim in claims:
                for part in claim.parts:
                    driver = DriverKey(part.driver, claim.classic)
                    assert claim.uid in self.truth[driver].this_boot, f"{pod} runs without {claim.uid}"

    @invariant()
    def the_record_knows_what_drivers_may_have(self) -> None:
        for driver, truth in self.truth.items():
            for uid in truth.held:
                for record in (self.record, self.disk):
                    held = record.find_claim(uid)
                    part = held.find_part(driver.name) if held is not None else None
                    assert part is not None, f"{driver} has {uid}, and the record does not know"
                    assert part.state is not NodeClaimStage.WANTED

    @invariant()
    def lists_do_not_grow(self) -> None:
        for held in self.record.claims:
            assert len(held.parts) <= len(BY_UID[held.uid].parts)
            assert len(set(held.pod_uids)) == len(held.pod_uids)
            assert all(len(part.devices) <= 1 for part in held.parts)


def _clash(driver: DriverKey, one: str, other: str) -> bool:
    """Whether two claims cannot both be set up, told apart from how the plan tells it."""

    def whole(uid: str) -> set[tuple[str, str | None]]:
        parts = (part for part in BY_UID[uid].parts if part.driver == driver.name)
        return {(key.device, key.share_id) for part in parts for key in part.wanted if not key.admin}

    mine, theirs = whole(one), whole(other)
    return any(
        device == another and (share is None or theirs_share is None or share == theirs_share)
        for device, share in mine
        for another, theirs_share in theirs
    )


TestPlan = Shell.TestCase
TestPlan.settings = effort(3, stateful_step_count=30)
