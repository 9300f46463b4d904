"""The signature: a placement becomes true, write by write, or is taken back.

Theory of operation: a claim gets its devices and its consumer in one write of its status, on the version it
was decided on; a newer version is read and judged again. Pods that share a claim take turns at it, and who
has the turn reserves it for all that wait, so that a claim of a hundred pods is not written a hundred times.
When every claim is the pod's, and its devices are ready, the binding is posted. A failure that is certain
takes the pod off its claims again, and devices that nobody else uses go back; after one that is uncertain
(no answer came) everything stays, and the watch will tell.

Rules for this file: nothing is decided here that the cycle did not decide; what does not fit any more is
`Overtaken`, and the pod is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec

from dray.api.core import Node, Pod
from dray.api.resource import AllocationResult, ConsumerReference, ResourceClaim
from dray.claims import reservation
from dray.claims.binding_conditions import LONGEST_WAIT, Failed, minds_binding, readiness, why_not_ready
from dray.claims.claim_names import FINALIZER
from dray.client.client import Client
from dray.client.errors import ApiError, Conflict, NotFound
from dray.client.rest_client import TROUBLE
from dray.client.timing import Backoff
from dray.clock import timestamp
from dray.errors import DrayError
from dray.placement.plugins.dynamic_resources import out_of_reach
from dray.placement.scheduling_cycle import Placement
from dray.scheduler.assume_cache import ClaimBook

ATTEMPTS: Final = 5
"""How often a claim that others write too is read and judged again."""


class Overtaken(DrayError):  # noqa: N818 - what is the case
    """The cluster is not what the placement was made for; the message says what changed."""


class NotReady(Overtaken):
    """The devices are there and did not become ready; the message says which, and what they wait for."""


class OutOfHand(Overtaken):
    """The pod is gone or has a node: what was written for it stays."""


@dataclass(slots=True)
class _Turns:
    """Who writes a claim now, and for whom else."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    joining: dict[str, ConsumerReference] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Replaced when it is set: several pods may wait for the devices of one claim."""
    users: int = 0
    """How many hold on to this: it is theirs together until the last of them lets go."""


class Binder:
    """Makes placements true."""

    def __init__(self, client: Client, claims: ClaimBook, longest_wait: float = LONGEST_WAIT) -> None:
        self._client = client
        self._claims = claims
        self._tempo = client.habits.tempo
        self._longest_wait = longest_wait
        self._turns: dict[str, _Turns] = {}
        self._ours: set[tuple[str, str]] = set()
        """Claims and pods that were reserved for each other by us, while these pods are on their way. What
        another scheduler wrote for a pod that both of us try is not ours to take back."""
        self.conflicts = 0
        """Writes that met another version, or a ledger that objected; for metrics."""

    def heard(self, claim: ResourceClaim) -> None:
        """A claim changed: whoever waits for its devices looks again."""
        turns = self._turns.get(claim.metadata.uid)
        if turns is not None:
            turns.news.set()
            turns.news = asyncio.Event()

    async def secure(self, placement: Placement, waiting: Callable[[str], None] = lambda _why: None) -> None:
        """Give the claims their devices and wait until these are ready; raises when that fails.

        `waiting` is told what they wait for when they are not ready yet: that may take minutes.
        """
        subject = placement.subject
        try:
            for claim in subject.claims:
                await self._secure(claim, subject.pod, placement.node)
            for claim in subject.claims:
                await self._await_devices(claim, waiting)
        except NotReady:
            # A scheduler that is no more may have reserved them: they are of no use to the pod all the same.
            if not await self.is_out_of_hand(subject.pod):
                self._ours.update((claim.metadata.uid, subject.pod.metadata.uid) for claim in subject.claims)
            await self.undo(placement)
            raise
        except (ApiError, Overtaken):
            await self.undo(placement)
            raise

    async def bind(self, placement: Placement) -> None:
        """Bind a pod whose claims have their devices; raises when that fails."""
        pod, node = placement.subject.pod, placement.node
        try:
            await self._client.bind(
                pod.metadata.name, pod.metadata.namespace, node.metadata.name, uid=pod.metadata.uid
            )
        except ApiError as refused:
            if await self.is_out_of_hand(pod):
                raise OutOfHand(refused.message) from None
            await self.undo(placement)
            raise

    async def is_out_of_hand(self, pod: Pod) -> bool:
        """Whether a pod is gone or has a node, from somebody else or by a write whose answer got lost.

        The server itself is asked: what is taken from a pod that runs is given to another.
        """
        try:
            now = await self._client.get(Pod, pod.metadata.name, pod.metadata.namespace)
        except TROUBLE:
            return True
        return now.metadata.uid != pod.metadata.uid or bool(now.spec.node_name)

    # --- claims ---

    async def _secure(self, claim: ResourceClaim, pod: Pod, node: Node) -> None:
        """A claim has its devices and is reserved for the pod."""
        async with self._turn(claim) as turns:
            turns.joining[pod.metadata.uid] = reservation.consumer_of(pod)
            try:
                async with turns.lock:
                    for _ in range(ATTEMPTS):
                        if await self._written(claim, pod, node, turns):
                            return
            finally:
                turns.joining.pop(pod.metadata.uid, None)
        raise Overtaken(f"claim {_named(claim)} changes faster than it can be written")

    @asynccontextmanager
    async def _turn(self, claim: ResourceClaim) -> AsyncIterator[_Turns]:
        """The turns at a claim, kept while somebody has or waits for one."""
        uid = claim.metadata.uid
        turns = self._turns.setdefault(uid, _Turns())
        turns.users += 1
        try:
            yield turns
        finally:
            turns.users -= 1
            if not turns.users:
                del self._turns[uid]

    async def _written(self, claim: ResourceClaim, pod: Pod, node: Node, turns: _Turns) -> bool:
        """One try to reserve a claim; False when it was another version than we knew."""
        stored = self._judged(claim, pod, node)
        if stored is None:
            return await self._is_still_reserved(claim, pod)
        counted = self._claims.get(stored.metadata.namespace, stored.metadata.name)
        allocation = counted.status.allocation if counted is not None else None
        if allocation is None:
            raise Overtaken(f"claim {_named(claim)} has lost its devices")
        try:
            if FINALIZER not in stored.metadata.finalizers:
                stored = await self._protected(stored)
            new = self._reserved(stored, allocation, turns.joining.values())
            self._claims.saw(await self._put(stored, new))
            self._ours.update((claim.metadata.uid, uid) for uid in _new_users(stored, new))
        except Conflict as refused:
            self.conflicts += 1
            await self._read_again(claim, stored, refused)
            return False
        except NotFound:
            self._claims.lost(claim)
            raise Overtaken(f"claim {_named(claim)} was deleted") from None
        return True

    async def _is_still_reserved(self, claim: ResourceClaim, pod: Pod) -> bool:
        """Whether the server says so, too, when it was not us who reserved a claim for a pod just now.

        A server that was restored from a copy has pods and claims of an earlier time, and of the two we may
        have seen the pod first.
        """
        if (claim.metadata.uid, pod.metadata.uid) in self._ours:
            return True
        now = await self._read(claim)
        return now.status.allocation is not None and reservation.is_reserved(now, pod)

    def _judged(self, claim: ResourceClaim, pod: Pod, node: Node) -> ResourceClaim | None:
        """The claim as it is stored, when something is to be written; None when it is the pod's already."""
        stored = self._claims.stored(claim)
        if stored is None:
            raise Overtaken(f"claim {_named(claim)} was deleted")
        if out_of_reach((stored,), node) is not None:
            raise Overtaken(
                f"claim {_named(claim)} got its devices elsewhere, out of reach of {node.metadata.name}"
            )
        if stored.status.allocation is not None and reservation.is_reserved(stored, pod):
            return None
        why = reservation.why_not(stored, pod)
        if why:
            raise Overtaken(why)
        return stored

    def _reserved(
        self, stored: ResourceClaim, allocation: AllocationResult, consumers: Iterable[ConsumerReference]
    ) -> ResourceClaim:
        """The claim with its devices, reserved for everybody who waits, as far as there is room."""
        old = stored.status
        if old.allocation is None and any(result.binding_conditions for result in allocation.devices.results):
            now = timestamp(self._tempo.clock.now())
            allocation = msgspec.structs.replace(allocation, allocation_timestamp=now)
        there = {consumer.uid for consumer in old.reserved_for}
        new = [consumer for consumer in consumers if consumer.uid not in there]
        room = reservation.MOST_CONSUMERS - len(old.reserved_for)
        status = msgspec.structs.replace(
            old, allocation=old.allocation or allocation, reserved_for=(*old.reserved_for, *new[:room])
        )
        return msgspec.structs.replace(stored, status=status)

    async def _protected(self, stored: ResourceClaim) -> ResourceClaim:
        """The claim with the finalizer that keeps it while it has devices; before it gets any."""
        metadata = msgspec.structs.replace(
            stored.metadata, finalizers=(*stored.metadata.finalizers, FINALIZER)
        )
        kept = await self._client.amend(stored, msgspec.structs.replace(stored, metadata=metadata))
        self._claims.saw(kept)
        return kept

    async def _put(self, old: ResourceClaim, new: ResourceClaim) -> ResourceClaim:
        """Write the status; only what differs when the server knows fields that we do not."""
        if self._client.unknown_fields(ResourceClaim):
            return await self._client.amend(old, new, subresource="status")
        return await self._client.update_status(new)

    async def _read_again(self, claim: ResourceClaim, sent: ResourceClaim, refused: Conflict) -> None:
        """The claim as it is now; a refusal of the very version we sent is a word about its devices."""
        now = await self._read(claim)
        if now.metadata.resource_version == sent.metadata.resource_version:
            raise Overtaken(refused.message) from None

    async def _read(self, claim: ResourceClaim) -> ResourceClaim:
        """The claim as it is now, or another one of its name."""
        try:
            now = await self._client.get(ResourceClaim, claim.metadata.name, claim.metadata.namespace)
        except NotFound:
            self._claims.lost(claim)
            raise Overtaken(f"claim {_named(claim)} was deleted") from None
        if now.metadata.uid != claim.metadata.uid:
            self._claims.lost(claim)
        self._claims.saw(now)
        return now

    async def read_again(self, placement: Placement) -> None:
        """No answer came to a write: learn from the server what became of it, however long that takes."""
        backoff = Backoff(self._tempo)
        for claim in placement.subject.claims:
            while True:
                try:
                    now = await self._client.get(ResourceClaim, claim.metadata.name, claim.metadata.namespace)
                    self._claims.saw(now)
                    break
                except NotFound:
                    self._claims.lost(claim)
                    break
                except TROUBLE:
                    await backoff.wait()

    # --- binding conditions ---

    async def _await_devices(self, claim: ResourceClaim, waiting: Callable[[str], None]) -> None:
        """Wait until the devices of a claim are ready."""
        stored = self._claims.stored(claim)
        if stored is None or not minds_binding(stored):
            return
        began = self._tempo.clock.monotonic()
        async with self._turn(claim) as turns:
            while True:
                stored = self._claims.stored(claim)
                if stored is None or stored.status.allocation is None:
                    raise Overtaken(f"claim {_named(claim)} lost its devices while the pod waited for them")
                state = readiness(stored)
                if state is None:
                    return
                left = began + self._longest_wait - self._tempo.clock.monotonic()
                why = why_not_ready(stored)
                if isinstance(state, Failed):
                    raise NotReady(why)
                if left <= 0:
                    raise NotReady(f"{why} for more than {self._longest_wait:g} seconds")
                waiting(why)
                await self._heard_of(turns.news, left)

    async def _heard_of(self, news: asyncio.Event, seconds: float) -> None:
        """Wait for news, and no longer than so many seconds."""
        waits = {asyncio.ensure_future(news.wait()), asyncio.ensure_future(self._tempo.sleep(seconds))}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    # --- taking back ---

    async def undo(self, placement: Placement) -> None:
        """Take the pod off the claims it was put on; devices that nobody else uses go back."""
        pod = placement.subject.pod
        for claim in placement.subject.claims:
            stored = self._claims.stored(claim)
            ours = (claim.metadata.uid, pod.metadata.uid) in self._ours
            if ours and stored is not None and reservation.is_reserved(stored, pod):
                try:
                    await self.release(claim, pod)
                except (*TROUBLE, Overtaken):
                    continue  # the next attempt finds the claim reserved, and goes on from there

    def settle(self, placement: Placement) -> None:
        """A pod is on its way no longer, however it ended."""
        self._ours -= {
            (claim.metadata.uid, placement.subject.pod.metadata.uid) for claim in placement.subject.claims
        }

    async def release(self, claim: ResourceClaim, pod: Pod) -> None:
        """Take the pod off one claim; when nobody else uses it, the devices go back."""
        async with self._turn(claim) as turns, turns.lock:
            for _ in range(ATTEMPTS):
                stored = self._claims.stored(claim)
                if stored is None:
                    return
                left = tuple(user for user in stored.status.reserved_for if user.uid != pod.metadata.uid)
                status = msgspec.structs.replace(stored.status, reserved_for=left)
                if not left:
                    status = msgspec.structs.replace(status, allocation=None, devices=())
                if status == stored.status:
                    return
                try:
                    self._claims.saw(await self._put(stored, msgspec.structs.replace(stored, status=status)))
                    return
                except Conflict as refused:
                    await self._read_again(claim, stored, refused)
        raise Overtaken(f"claim {_named(claim)} changes faster than it can be written")


def _new_users(old: ResourceClaim, new: ResourceClaim) -> set[str]:
    return {user.uid for user in new.status.reserved_for} - {user.uid for user in old.status.reserved_for}


def _named(claim: ResourceClaim) -> str:
    return f"{claim.metadata.namespace}/{claim.metadata.name}"
