"""Settling classic claims one by one, in an order that a crash cannot hurt.

Theory of operation: `classic.due` says what comes next for a claim. A finalizer is written before anything is
allocated, and taken away after everything was given back. Who finds a finalizer on a pending claim and does
not remember why takes back first: somebody may have been killed between allocating and saying so. Every write
insists on the version it was decided on; what was overtaken is looked at again. Our own answers count before
the watch shows them, so no unit is given twice. When something was given or taken, claims that wait are
looked at again; what failed is tried again, later each time.

Rules for this file: one claim at a time. What an author raises is told as an event and waited out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from dray.api.classic import ClassicClaim, ClassicClaimStatus, ResourceClass
from dray.api.classic.resource_claim import PENDING
from dray.client.client import Client
from dray.client.errors import BadRequest, Forbidden, Invalid
from dray.client.events import EventRecorder
from dray.client.informers.informer import Informer
from dray.client.object_refs import Key, key_of
from dray.client.rest_client import TROUBLE
from dray.client.timing import Backoff
from dray.driver.classic.async_controller import Asking, AuthorFailed
from dray.driver.classic.controller import (
    Allocated,
    ClassicController,
    Due,
    Held,
    Need,
    Unavailable,
    allocated,
    answered,
    asked_nodes,
    due,
    freed,
    held_by,
    selected_node,
)
from dray.telemetry.logs import Log
from dray.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds before something that failed is tried again: the first time, and at most."""

    first: float = 0.5
    longest: float = 60.0


@dataclass(slots=True)
class _Later:
    """A claim that is looked at again at a time."""

    backoff: Backoff
    at: float = 0.0


class Desk:
    """One term in office: what is seen, what was written, what is to be done."""

    def __init__(
        self,
        client: Client,
        controller: ClassicController,
        recorder: EventRecorder,
        metrics: Metrics,
        pace: Pace,
        log: Log,
    ) -> None:
        self._client, self._recorder, self._pace, self._log = client, recorder, pace, log
        self._driver, self._finalizer = controller.name, f"{controller.name}/allocated"
        self._tempo = client.habits.tempo
        self._asking = Asking(controller, self._tempo.clock, metrics)
        self._claims = Informer(client, ClassicClaim)
        self._classes = Informer(client, ResourceClass)
        self._written: dict[str, ClassicClaim] = {}
        self._made: dict[str, tuple[str, Allocated]] = {}
        """Allocated and not yet said: for which node, and what."""
        self._released: set[str] = set()
        """Claims that have given everything back and are about to vanish."""
        self._orphans: dict[str, Held] = {}
        """What claims had that vanished without giving it back."""
        self._stuck: dict[str, Held] = {}
        self._dirty: set[Key] = set()
        self._later: dict[Key, _Later] = {}
        self._stirred = False
        self._wake = asyncio.Event()
        self._claims.listen(self._changed, lambda _old, new: self._changed(new), self._vanished)
        changed = self._class_changed
        self._classes.listen(changed, lambda _old, new: changed(new), changed)

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        return (self._claims, self._classes)

    async def begin(self) -> None:
        """Tell the author what there is, and look at everything once."""
        while True:
            try:
                await self._asking.call("begin", self._held())
                break
            except AuthorFailed as failed:
                self._log.error("the controller cannot begin", driver=self._driver, why=str(failed))
                await self._tempo.sleep(self._pace.longest)
        self._dirty.update(key_of(claim) for claim in self._ours())
        self._wake.set()

    async def work(self) -> None:
        """Settle whatever changes, for ever."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._seconds_to_next()):
                    await self._wake.wait()
            self._wake.clear()
            now = self._tempo.clock.monotonic()
            again = [key for key, later in self._later.items() if later.at <= now]
            self._dirty.update(again)
            self._orphans |= {key.name: self._stuck.pop(key.name) for key in again if key.name in self._stuck}
            while self._dirty or self._orphans or self._stirred:
                await self._free_orphans()
                if self._dirty:
                    await self._attend(min(self._dirty, key=self._turn))
                else:
                    self._stirred = False
                    self._dirty.update(key_of(claim) for claim in self._ours() if self._waits(claim))

    def stir(self) -> None:
        """Look again at everything that waits: there may be more than there was."""
        self._stirred = True
        self._wake.set()

    # --- what is seen ---

    def _changed(self, claim: ClassicClaim) -> None:
        written = self._written.get(claim.metadata.uid)
        if written is not None and _version(claim) < _version(written):
            return  # something from before our own write
        self._written.pop(claim.metadata.uid, None)
        if written is not None and _version(claim) == _version(written):
            return  # our own write
        if self._is_ours(claim):
            self._dirty.add(key_of(claim))
            self._wake.set()

    def _vanished(self, claim: ClassicClaim) -> None:
        uid, key = claim.metadata.uid, key_of(claim)
        last = self._written.pop(uid, claim)
        unsaid = self._made.pop(uid, None)
        if uid in self._released:
            self._released.discard(uid)
        elif unsaid is not None or self._may_hold(last):
            # Somebody took our finalizer away: what it stood for is still there.
            held = held_by(last)
            self._orphans[uid] = _with(held, unsaid[1].kept()) if unsaid else held
        self._later.pop(key, None)
        self.stir()

    def _class_changed(self, made_of: ResourceClass) -> None:
        name = made_of.metadata.name
        self._dirty.update(
            key_of(each) for each in self._claims.all() if each.spec.resource_class_name == name
        )
        self._wake.set()

    def _newest(self, claim: ClassicClaim) -> ClassicClaim:
        written = self._written.get(claim.metadata.uid)
        return claim if written is None or _version(written) <= _version(claim) else written

    def _ours(self) -> Iterator[ClassicClaim]:
        return (self._newest(claim) for claim in self._claims.all() if self._is_ours(claim))

    def _is_ours(self, claim: ClassicClaim) -> bool:
        if self._finalizer in claim.metadata.finalizers:
            return True
        made_of = self._classes.get(claim.spec.resource_class_name)
        by_class = "" if made_of is None else made_of.driver_name
        return (claim.status.driver_name or by_class) == self._driver

    def _may_hold(self, claim: ClassicClaim) -> bool:
        phase = claim.status.phase or PENDING
        ours = self._is_ours(claim)
        return ours and (phase != PENDING or self._finalizer in claim.metadata.finalizers)

    def _held(self, without: str = "") -> tuple[Held, ...]:
        """Everything that claims have, or may have, but for one of them."""
        found = []
        for claim in self._ours():
            uid = claim.metadata.uid
            if uid == without or uid in self._released or not self._may_hold(claim):
                continue
            unsaid = self._made.get(uid)
            found.append(_with(held_by(claim), unsaid[1].kept()) if unsaid else held_by(claim))
        return (*found, *self._orphans.values(), *self._stuck.values())

    def _waits(self, claim: ClassicClaim) -> bool:
        """Whether a claim waits for something of this driver."""
        return due(claim, self._finalizer) in (Due.ALLOCATE, Due.ANSWER)

    def _turn(self, key: Key) -> tuple[bool, str, Key]:
        """Unknown outcomes first: what they hold must be known before anything is given out. Then by age."""
        claim = self._claims.get(key.name, key.namespace)
        if claim is None:
            return (False, "", key)
        claim = self._newest(claim)
        begun = self._finalizer in claim.metadata.finalizers and (claim.status.phase or PENDING) == PENDING
        return (not begun, claim.metadata.creation_timestamp or "", key)

    # --- one claim ---

    async def _attend(self, key: Key) -> None:
        self._dirty.discard(key)
        found = self._claims.get(key.name, key.namespace)
        if found is None or not self._is_ours(found):
            self._later.pop(key, None)
            return
        claim = self._newest(found)
        try:
            settled = await self._settle(claim)
        except AuthorFailed as failed:
            self._tell(
                claim,
                "AllocationFailed" if failed.method != "deallocate" else "DeallocationFailed",
                str(failed),
            )
            settled = False
        except (BadRequest, Forbidden, Invalid) as refused:
            self._tell(claim, "AllocationFailed", f"the server refuses it: {refused}")
            settled = False
        except TROUBLE as failed:
            self._log.debug("a claim is looked at again", claim=str(key), why=str(failed))
            settled = False
        if settled:
            self._later.pop(key, None)
        else:
            self._again(key)

    async def _settle(self, claim: ClassicClaim) -> bool:
        """Do what is due; False when it is to be tried again, also when nothing changes."""
        match due(claim, self._finalizer):
            case Due.HOLD:
                await self._hold(claim, True)
            case Due.RELEASE:
                await self._release(claim)
            case Due.ANSWER | Due.ALLOCATE as what:
                return await self._negotiate(claim, allocate=what is Due.ALLOCATE)
            case Due.NOTHING:
                self._made.pop(claim.metadata.uid, None)  # it was said, though we did not hear the answer
        return True

    async def _negotiate(self, claim: ClassicClaim, *, allocate: bool) -> bool:
        need = self._asking.need(claim, self._classes.get(claim.spec.resource_class_name))
        if isinstance(need, str):
            self._tell(claim, "AllocationFailed", need)
            await self._give_up(claim)
            return True  # until the class changes
        node, held = selected_node(claim), self._held(without=claim.metadata.uid)
        nodes, unsuitable = asked_nodes(claim), frozenset[str]()
        if nodes:
            unsuitable = frozenset(await self._asking.call("unsuitable_nodes", need, nodes, held))
        if not allocate or node in unsuitable:
            claim = await self._give_up(claim)
            await self._say(claim, answered(claim, unsuitable))
            return not allocate
        return await self._allocate(claim, need, held, unsuitable)

    async def _allocate(
        self, claim: ClassicClaim, need: Need, held: Sequence[Held], unsuitable: frozenset[str]
    ) -> bool:
        uid, node = claim.metadata.uid, selected_node(claim)
        known = self._made.get(uid)
        if known is None or known[0] != node:
            if self._finalizer in claim.metadata.finalizers:
                await self._take_back(claim)
            claim = await self._hold(claim, True)
            made = await self._asking.call("allocate", need, node or None, held)
            if isinstance(made, Unavailable):
                self._tell(claim, "AllocationFailed", made.why)
                claim = await self._hold(claim, False)
                await self._say(claim, answered(claim, unsuitable | {node}))
                return False
            known = self._made[uid] = (node, made)
        await self._say(claim, allocated(claim, self._driver, known[1]))
        self._made.pop(uid, None)
        self._stirred = True
        return True

    async def _release(self, claim: ClassicClaim) -> None:
        await self._take_back(claim)
        leaving = claim.metadata.deletion_timestamp is not None
        if not leaving and (claim.status.phase or PENDING) != PENDING:
            claim = await self._say(claim, freed(self._driver))
        await self._hold(claim, False)
        if leaving:
            self._released.add(claim.metadata.uid)
        self._stirred = True

    async def _give_up(self, claim: ClassicClaim) -> ClassicClaim:
        """Take back what may have been allocated by somebody who was killed."""
        if self._finalizer not in claim.metadata.finalizers:
            return claim
        await self._take_back(claim)
        return await self._hold(claim, False)

    async def _take_back(self, claim: ClassicClaim) -> None:
        unsaid = self._made.get(claim.metadata.uid)
        held = held_by(claim)
        await self._asking.call("deallocate", _with(held, unsaid[1].kept()) if unsaid else held)
        self._made.pop(claim.metadata.uid, None)

    async def _free_orphans(self) -> None:
        for uid, held in list(self._orphans.items()):
            del self._orphans[uid]
            try:
                await self._asking.call("deallocate", held)
            except AuthorFailed as failed:
                self._log.error("what a vanished claim had is not free", claim=str(held), why=str(failed))
                self._stuck[uid] = held
                self._again(Key("", uid))

    # --- writing, asking, telling ---

    async def _hold(self, claim: ClassicClaim, held: bool) -> ClassicClaim:
        before = claim.metadata.finalizers
        if (self._finalizer in before) == held:
            return claim
        others = tuple(name for name in before if name != self._finalizer)
        after = (*others, self._finalizer) if held else others
        wanted = replace(claim, metadata=replace(claim.metadata, finalizers=after))
        return self._remember(await self._client.amend(claim, wanted))

    async def _say(self, claim: ClassicClaim, status: ClassicClaimStatus) -> ClassicClaim:
        if status == claim.status:
            return claim
        wanted = replace(claim, status=status)
        return self._remember(await self._client.amend(claim, wanted, subresource="status"))

    def _remember(self, claim: ClassicClaim) -> ClassicClaim:
        self._written[claim.metadata.uid] = claim
        return claim

    def _tell(self, claim: ClassicClaim, reason: str, note: str) -> None:
        self._recorder.record(claim, reason, note, warning=True)
        self._log.warning("a claim is not settled", claim=str(key_of(claim)), reason=reason, why=note)

    def _again(self, key: Key) -> None:
        later = self._later.get(key)
        if later is None:
            backoff = Backoff(self._tempo, first=self._pace.first, longest=self._pace.longest)
            later = self._later[key] = _Later(backoff)
        later.at = self._tempo.clock.monotonic() + later.backoff.next()

    def _seconds_to_next(self) -> float | None:
        if not self._later:
            return None
        soonest = min(later.at for later in self._later.values())
        return max(0.0, soonest - self._tempo.clock.monotonic())


def _with(held: Held, attributes: dict[str, str]) -> Held:
    """The same claim with other attributes."""
    return Held(held.namespace, held.name, held.uid, attributes)


def _version(claim: ClassicClaim) -> int:
    return int(claim.metadata.resource_version or 0)
