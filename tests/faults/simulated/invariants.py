"""What must hold after every commit and at every call on a node, checked as it happens.

Theory of operation: the model follows the commits of the store and remembers who has which device, which pods
there are and what is prepared where. It decodes the objects by itself and knows nothing of the ledger's
rules: only how much each device has. A check that fails is a violation with its step; the run ends there.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from dray.store import EventBatch, StoreEvent
from tests.faults.simulated import objects, stored_fields
from tests.faults.simulated.stored_fields import ReadClaim, ReadPod
from tests.simulated.machine import SimulatedMachine

CLAIM_PREFIX: Final = b"/registry/resource.k8s.io/resourceclaims/"
POD_PREFIX: Final = b"/registry/core/pods/"
LEDGER_PREFIX: Final = b"/ledger/devices/"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
_MAX_TRACE: Final = 60

Device = tuple[str, str, str]
Holders = dict[tuple[str, str], int | None]
"""Amounts by claim and share; None for the whole device."""


class InvariantViolatedError(AssertionError):
    """Something happened that must never happen."""


class ClusterModel:
    """Who has what, according to the commits of the store."""

    def __init__(self) -> None:
        self.revision = 0
        self.commits = 0
        self.claims: dict[bytes, ReadClaim] = {}
        self.claims_by_uid: dict[str, ReadClaim] = {}
        self.pods: dict[bytes, ReadPod] = {}
        self.pods_by_uid: dict[str, ReadPod] = {}
        self.holders: dict[Device, Holders] = {}
        self.rows: dict[Device, frozenset[str]] = {}
        self.prepared: dict[tuple[str, str, str], tuple[Device, ...]] = {}
        """The devices of a claim when a driver on a machine prepared it, by machine, driver and claim."""
        self.used: dict[tuple[str, str], frozenset[str]] = {}
        """The claims of a pod when it was started on a machine."""
        self.last_activity = 0
        """The commit of the last change that is no heartbeat."""
        self.trace: deque[str] = deque(maxlen=_MAX_TRACE)
        self.violations: list[str] = []

    def fail(self, what: str) -> None:
        """Record a violation."""
        self.violations.append(what)

    def note(self, what: str) -> None:
        """Remember what happened, for the report of a violation."""
        self.trace.append(what)

    # --- commits ---

    def observe_commit(self, batch: EventBatch) -> None:
        """Take over the changes of a commit, and check everything that they touch."""
        if batch.revision <= self.revision:
            self.fail(f"revision {batch.revision} after {self.revision}")
        self.revision = batch.revision
        self.commits += 1
        touched: set[Device] = set()
        for event in batch.events:
            key = event.key
            if key.startswith(CLAIM_PREFIX):
                touched |= self._observe_claim(event)
            elif key.startswith(POD_PREFIX):
                self._observe_pod(event)
            elif key.startswith(LEDGER_PREFIX):
                touched.add(self._observe_row(event))
            elif not key.startswith(
                (b"/registry/coordination.k8s.io/", b"/registry/core/events/", b"/registry/core/nodes/")
            ):
                self.last_activity = self.commits
        for device in touched:
            self._check_device(device)

    def _observe_claim(self, event: StoreEvent) -> set[Device]:
        self.last_activity = self.commits
        before = self.claims.pop(event.key, None)
        after = None if event.entry is None else stored_fields.CLAIMS.decode(event.entry.value)
        if before is not None:
            self.claims_by_uid.pop(before.metadata.uid, None)
        if after is not None:
            self.claims[event.key] = after
            self.claims_by_uid[after.metadata.uid] = after
            self._check_claim(after)
            if before is None and after.metadata.namespace == objects.LIMITED:
                self._check_quota()
        elif before is not None and any(self.is_live(each.uid) for each in before.status.reserved_for):
            self.fail(f"claim {before.metadata.name} was deleted while a pod used it")
        self.note(f"claim {event.key[len(CLAIM_PREFIX) :].decode()} {_describe_claim(after)}")
        if before is not None and after is not None and before.results == after.results:
            return set()
        return self._move_devices(before, after)

    def is_live(self, pod_uid: str) -> bool:
        """Whether a pod exists that has not finished."""
        pod = self.pods_by_uid.get(pod_uid)
        return pod is not None and pod.status.phase not in ("Succeeded", "Failed")

    def _move_devices(self, before: ReadClaim | None, after: ReadClaim | None) -> set[Device]:
        touched: set[Device] = set()
        for claim in (before, after):
            for result in () if claim is None else claim.results:
                if result.admin_access:
                    continue
                device = (result.driver, result.pool, result.device)
                touched.add(device)
                holders = self.holders.setdefault(device, {})
                assert claim is not None
                if claim is before:
                    holders.pop((claim.metadata.uid, result.share_id or ""), None)
                else:
                    amount = int(result.consumed_capacity["bandwidth"]) if result.share_id else None
                    holders[claim.metadata.uid, result.share_id or ""] = amount
        return touched

    def _check_claim(self, claim: ReadClaim) -> None:
        name = claim.metadata.name
        if claim.status.allocation is None:
            if claim.status.reserved_for:
                self.fail(f"claim {name} is reserved and not allocated")
        elif FINALIZER not in claim.metadata.finalizers:
            self.fail(f"claim {name} is allocated without its finalizer")

    def _check_quota(self) -> None:
        limited = [claim for claim in self.claims.values() if claim.metadata.namespace == objects.LIMITED]
        if len(limited) > objects.MAX_CLAIMS:
            self.fail(f"{len(limited)} claims, the quota is {objects.MAX_CLAIMS}")
        gpus = sum(claim.count_gpus() for claim in limited)
        if gpus > objects.MAX_GPUS:
            self.fail(f"claims for {gpus} devices, the quota is {objects.MAX_GPUS}")

    def _check_device(self, device: Device) -> None:
        holders = self.holders.get(device, {})
        if len(holders) > 1 and None in holders.values():
            self.fail(f"device {'/'.join(device)} has {len(holders)} holders: {sorted(holders)}")
        if sum(amount or 0 for amount in holders.values()) > objects.BANDWIDTH:
            self.fail(f"device {'/'.join(device)} is overdrawn: {holders}")
        driver, pool, _ = device
        if driver == objects.PART:
            held = sum(1 for other, found in self.holders.items() if found and other[:2] == (driver, pool))
            if held * objects.DRAW > objects.COUNTER:
                self.fail(f"the counters of {pool} are overdrawn: {held} partitions")
        known = frozenset(uid for uid, _ in holders)
        if self.rows.get(device, frozenset()) != known:
            self.fail(
                f"the ledger has {sorted(self.rows.get(device, ()))} for {'/'.join(device)}, "
                f"claims say {sorted(known)}"
            )

    def _observe_row(self, event: StoreEvent) -> Device:
        self.last_activity = self.commits
        driver, pool, name = event.key[len(LEDGER_PREFIX) :].decode().split("/")
        device = (driver, pool, name)
        if event.entry is None:
            self.rows.pop(device, None)
        else:
            row = stored_fields.ROWS.decode(event.entry.value)
            self.rows[device] = frozenset(each.holder.uid for each in row.holdings if not each.gone)
        return device

    def _observe_pod(self, event: StoreEvent) -> None:
        self.last_activity = self.commits
        before = self.pods.pop(event.key, None)
        after = None if event.entry is None else stored_fields.PODS.decode(event.entry.value)
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            self.pods_by_uid.pop(before.metadata.uid, None)
        if after is not None:
            self.pods[event.key] = after
            self.pods_by_uid[after.metadata.uid] = after
            if after.spec.node_name and (before is None or not before.spec.node_name):
                self._check_binding(after)
            elif before is not None and before.spec.node_name != after.spec.node_name:
                self.fail(f"pod {after.metadata.name} moved to {after.spec.node_name}")
        self.note(f"pod {event.key[len(POD_PREFIX) :].decode()} {_describe_pod(after)}")

    def _check_binding(self, pod: ReadPod) -> None:
        for claim in self.list_claims(pod):
            if pod.metadata.uid not in {consumer.uid for consumer in claim.status.reserved_for}:
                self.fail(
                    f"pod {pod.metadata.name} is bound and claim {claim.metadata.name} not reserved for it"
                )
        if len(pod.spec.resource_claims) != len(list(self.list_claims(pod))):
            self.fail(f"pod {pod.metadata.name} is bound without its claims")

    def list_claims(self, pod: ReadPod) -> list[ReadClaim]:
        """List the claims of a pod that exist."""
        prefix = CLAIM_PREFIX + pod.metadata.namespace.encode() + b"/"
        found = (self.claims.get(prefix + name.encode()) for name in pod.list_claim_names())
        return [claim for claim in found if claim is not None]

    # --- machines ---

    def observe_boot(self, machine: SimulatedMachine) -> None:
        """Take over that nothing is prepared or runs on a machine any more."""
        self.prepared = {key: held for key, held in self.prepared.items() if key[0] != machine.name}
        self.used = {key: claims for key, claims in self.used.items() if key[0] != machine.name}
        self.note(f"machine {machine.name} boots")

    def observe_prepare(self, machine: SimulatedMachine, driver: str, claim_uid: str) -> None:
        """Check that nobody else has a device prepared."""
        claim = self.claims_by_uid.get(claim_uid)
        results = [] if claim is None else [each for each in claim.results if not each.admin_access]
        devices = tuple(
            (each.driver, each.pool, each.device)
            for each in results
            if each.driver == driver and each.share_id is None
        )
        self.note(f"{machine.name} prepares {claim_uid[:8]} for {driver}: {devices}")
        for (where, other_driver, other), held in self.prepared.items():
            if other == claim_uid or other_driver != driver:
                continue
            for device in devices:
                if device in held:
                    self.fail(
                        f"{machine.name} prepares {'/'.join(device)} for claim {claim_uid}, "
                        f"which {where} has prepared for {other}"
                    )
        self.prepared[machine.name, driver, claim_uid] = devices

    def observe_unprepare(self, machine: SimulatedMachine, driver: str, claim_uid: str) -> None:
        """Check that no running pod uses the claim."""
        self.note(f"{machine.name} unprepares {claim_uid[:8]} for {driver}")
        for pod_uid in machine.runtime.list_running_pods():
            if claim_uid in self.used.get((machine.name, pod_uid), ()):
                self.fail(f"{machine.name} unprepares claim {claim_uid} while pod {pod_uid} runs")
        self.prepared.pop((machine.name, driver, claim_uid), None)

    def observe_start(self, machine: SimulatedMachine, pod_uid: str) -> None:
        """Check that everything that the pod uses is prepared."""
        pod = self.pods_by_uid.get(pod_uid)
        self.note(f"{machine.name} starts pod {pod_uid[:8]}")
        if pod is None:
            return  # it was deleted by force, and its node does not know that yet
        if pod.spec.node_name != machine.name:
            self.fail(f"pod {pod.metadata.name} of {pod.spec.node_name} starts on {machine.name}")
        claims = self.list_claims(pod)
        for claim in claims:
            if pod_uid not in {consumer.uid for consumer in claim.status.reserved_for}:
                continue
            for driver in {result.driver for result in claim.results}:
                if (machine.name, driver, claim.metadata.uid) not in self.prepared:
                    self.fail(f"pod {pod.metadata.name} starts, claim {claim.metadata.name} is not prepared")
        self.used[machine.name, pod_uid] = frozenset(claim.metadata.uid for claim in claims)


def _describe_claim(claim: ReadClaim | None) -> str:
    if claim is None:
        return "is gone"
    devices = ", ".join(f"{each.pool}/{each.device}" for each in claim.results)
    users = ", ".join(each.uid[:8] for each in claim.status.reserved_for)
    ending = " ending" if claim.metadata.deletion_timestamp else ""
    return f"{claim.metadata.uid[:8]} has [{devices}] for [{users}]{ending}"


def _describe_pod(pod: ReadPod | None) -> str:
    if pod is None:
        return "is gone"
    ending = " ending" if pod.metadata.deletion_timestamp else ""
    return f"{pod.metadata.uid[:8]} {pod.status.phase} on {pod.spec.node_name or 'no node'}{ending}"
