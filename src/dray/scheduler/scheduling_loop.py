"""The scheduler: takes the next pod, asks placement, promises what it got, and has it written.

Theory of operation: one pod at a time is decided, on a photograph that includes everything promised before;
writing goes on in the background, many at once. A placement that fails is taken back and the pod is tried
again. A pod without a node sleeps until something happens that could help, and is told why meanwhile. A pod
whose devices are still searched for steps aside, and is decided when the search has news (see `searching`).

Rules for this file: whatever is promised is let go in a `finally`, however a binding ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from dray.allocator.search.resumable import TimeLimit
from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.client.errors import ApiError
from dray.client.events import EventRecorder
from dray.client.leases import Election, LeadershipLost
from dray.client.rest_client import TROUBLE
from dray.placement.classic_negotiation import ReserveClassic, Wait
from dray.placement.device_searches import Searches
from dray.placement.framework import Phase
from dray.placement.pending_pod import PLUGIN, ClaimsSeen, Subject, subject_of
from dray.placement.plugins.classic_resources import ClassicResources, next_step, post_filter
from dray.placement.plugins.dynamic_resources import Devices, out_of_reach
from dray.placement.profile import profile_of
from dray.placement.rejections import Verdict
from dray.placement.resource_requests import needs_of
from dray.placement.scheduling_cycle import Placement, Stopwatch, Unplaceable, place
from dray.scheduler import classic_claims
from dray.scheduler import metrics as measures
from dray.scheduler.binder import Binder, NotReady, OutOfHand, Overtaken
from dray.scheduler.cache import Overlay
from dray.scheduler.informers import Sights
from dray.scheduler.metrics import Result
from dray.scheduler.options import Choices
from dray.scheduler.queue import GATES, Queue
from dray.scheduler.queued_pod import Entry, Place
from dray.scheduler.queueing_hints import DEVICES, ROOM
from dray.scheduler.search_worker import DECISION_SECONDS, MANY_WAITING, SearchWorker
from dray.scheduler.status_reporter import Refusal, Teller

TIMED = 10
"""One cycle in so many is timed plugin by plugin."""
UNCERTAIN = 500
"""An answer from here on tells that something went wrong, and not that nothing was written."""
TALKATIVE = 20
"""Attempts after which a pod waits out its backoff even for the answers of drivers: they do not agree."""


class Scheduler:
    """Gives pods their nodes."""

    def __init__(self, client: Client, choices: Choices) -> None:
        self._candidacy: Election | None = None
        self._way = client
        if choices.elect:
            client = client.fenced(self._is_in_office)
        self._client, self._choices = client, choices
        self._clock = client.habits.tempo.clock
        self._overlay = Overlay(choices.door, freed=lambda: self._queue.wake(DEVICES))
        self._binder = Binder(client, self._overlay.claims, choices.binding_wait)
        self.metrics = measures.Metrics(choices.placement.scheduler_name)
        self._queue = Queue(
            client.habits.tempo, judge=self._why_not_yet, terms=choices.terms, told=self._moved
        )
        limit = TimeLimit(self._clock.monotonic, choices.search_seconds)
        searches = Searches(limit, DECISION_SECONDS)
        self._devices = Devices(choices.door, choices.new_share_id, searches, choices.placement.device_spread)
        self._searching = SearchWorker(
            searches, self._clock.monotonic, lambda: self._queue.lengths()[Place.ACTIVE] > 0
        )
        self._profile = profile_of(choices.placement, [self._devices, ClassicResources()])
        names = frozenset({choices.placement.scheduler_name})
        self._sights = Sights(client, self._overlay, self._queue, self._binder, names)
        self._recorder = EventRecorder(client, choices.placement.scheduler_name, choices.identity)
        self._teller = Teller(client, self._recorder, choices.door, self._sights.latest)
        self._teller.effort = lambda refused: self._devices.effort(refused.subject, refused.snapshot)
        self._seen = ClaimsSeen(self._overlay.claims.get, self._sights.classic_claim)
        self._room = asyncio.Semaphore(choices.in_flight)
        self._aside: set[str] = set()
        """Pods that wait for their devices to become ready, and keep nobody from being written meanwhile."""
        self._turn = 0
        self.ready = asyncio.Event()
        """Set when everything was seen once; leadership may still be another's."""
        self._sights.left = self._teller.drop
        self._teller.broken = self._unexplained
        self._measure()
        self._sights.trouble = lambda failed: choices.log.warning("waiting for the server", why=str(failed))

    async def run(self) -> None:
        """Schedule, until cancelled; with election, whenever it is this one's turn."""
        choices = self._choices
        async with asyncio.TaskGroup() as tasks:
            await self._sights.begin(tasks, claims=choices.claims)
            tasks.create_task(self._recorder.run())
            tasks.create_task(self._teller.run())
            self.ready.set()
            if not choices.elect:
                await self._lead()
            while True:
                election = self._candidacy = Election(
                    self._way, choices.lease, choices.lease_namespace, choices.identity, choices.timing
                )
                try:
                    await election.run(self._lead)
                except LeadershipLost as lost:
                    choices.log.warning("another scheduler leads now", why=str(lost))

    def _is_in_office(self) -> bool:
        return self._candidacy is not None and self._candidacy.is_leader

    def _measure(self) -> None:
        numbers = self.metrics
        numbers.watch(self._queue)
        searches = self._devices.searches
        numbers.ask(
            measures.SEARCHES, lambda: [((ending,), count) for ending, count in searches.ended.items()]
        )
        numbers.ask(measures.SEARCH_SECONDS, lambda: [((), searches.seconds)])
        numbers.ask(measures.UNFINISHED, lambda: [((), searches.unfinished)])
        numbers.ask(measures.AWAITING, lambda: [((), self._searching.waiting)])
        numbers.ask(measures.SHAPES, lambda: [((), len(self._overlay.last.groups))])
        numbers.ask(measures.REMEMBERED, self._remembered)
        numbers.ask(measures.CONFLICTS, lambda: [((), self._binder.conflicts)])

    def _remembered(self) -> list[tuple[tuple[str, ...], float]]:
        sizes = {**self._overlay.last.stock.sizes(), "claims": self._devices.remembered}
        return [((name,), count) for name, count in sizes.items()]

    async def _lead(self) -> None:
        self._choices.log.info("scheduling", pods=len(self._queue), nodes=len(self._sights.nodes))
        # A task that was cancelled before it began has put nothing back: neither its pod nor its room.
        self._queue.recall()
        self._room, self._aside = asyncio.Semaphore(self._choices.in_flight), set()
        async with asyncio.TaskGroup() as writing:
            writing.create_task(self._searching.run())
            while True:
                async with self._room:  # leadership may end while nobody is there to be tried
                    entry = await self._queue.next()
                await self._room.acquire()  # there is room: nobody else takes it in between
                writing.create_task(self._finished(entry))
                # Whoever brings news gets a turn between two pods.
                await asyncio.sleep(0)

    def _unexplained(self, entry: Entry, broken: Exception) -> None:
        self._choices.log.error("a pod could not be told why it waits", pod=entry.name, why=broken)

    async def _finished(self, entry: Entry) -> None:
        """One pod, from decision to writing; its mistakes are its own, and nobody else's."""
        began, result = self._clock.monotonic(), Result.ERROR
        try:
            if entry.place is not Place.TRYING:
                return  # it was deleted, or bound by somebody, since it was taken
            result = await self._try(entry)
        except Exception as broken:
            self._choices.log.error("a pod could not be tried", pod=entry.name, why=broken)
        finally:
            self._step_aside(entry)
            self._aside.discard(entry.uid)
            self.metrics.attempted(result, self._clock.monotonic() - began)
            if entry.place is Place.TRYING:
                self._queue.park(entry, frozenset(), again=True)

    def _step_aside(self, entry: Entry) -> None:
        """Make room for another pod, once."""
        if entry.uid not in self._aside:
            self._aside.add(entry.uid)
            self._room.release()

    def _why_not_yet(self, pod: Pod) -> Verdict | None:
        """What keeps a pod from being tried at all (PreEnqueue)."""
        found = self._subject(pod) if pod.spec.resource_claims else None
        return found if isinstance(found, Verdict) else None

    def _subject(self, pod: Pod, attempts: int = 0) -> Subject | Verdict:
        """A pod with its claims, or what it waits for."""
        if not self._choices.claims:
            return Subject(pod, needs_of(pod), attempts=attempts)
        return subject_of(pod, self._seen, attempts=attempts)

    def _moved(self, entry: Entry, event: str) -> None:
        """A pod came into a queue; one that may not be tried is told why."""
        self.metrics.moved(entry, event)
        if entry.place is Place.GATED and entry.plugins != {GATES}:
            self._teller.note(entry, Verdict(PLUGIN, entry.verdict))

    async def _try(self, entry: Entry) -> Result:
        """Decide one pod, and do what was decided. Nothing is awaited before the promise is made."""
        found, moment = await self._decide(entry)
        if isinstance(found, Verdict):
            return self._park(entry, found, moment)
        subject = found.subject
        if isinstance(found, Unplaceable):
            if found.unfinished:
                return self._park(entry, found, moment)
            return await self._refused(entry, found, moment)
        reserves: Sequence[ReserveClassic] = ()
        if subject.classic:
            chosen = found.seat.name
            step = next_step(subject, (chosen, *found.others), chosen)
            if isinstance(step, Wait):
                return await self._proposed(entry, step, moment)
            reserves = step.actions
        return await self._bound(entry, found, reserves)

    async def _decide(self, entry: Entry) -> tuple[Placement | Unplaceable | Verdict, int]:
        """What becomes of a pod, and the moment of what it was judged by; awaits searches that take long."""
        worked = 0.0
        while True:
            moment = self._queue.moment
            subject = self._subject(entry.pod, entry.attempts - 1)
            if isinstance(subject, Verdict):
                return subject, moment
            before = self._devices.searches.seconds
            found = self._placed(replace(subject, worked=worked) if worked else subject)
            worked += self._devices.searches.seconds - before
            undecided = isinstance(found, Unplaceable) and found.unfinished
            if not undecided or self._searching.waiting >= MANY_WAITING:
                self._searching.forget_others()
                return found, moment
            assert isinstance(found, Unplaceable)
            worked += await self._search(entry, found, moment)
            if entry.place is not Place.TRYING:
                return found, moment  # it was deleted, or bound by somebody, meanwhile

    async def _search(self, entry: Entry, undecided: Unplaceable, moment: int) -> float:
        """Wait for the searches of a pod, which keeps nobody from being placed; the seconds they worked."""
        question = self._devices.question(undecided.subject, undecided.snapshot)
        before = question.worked
        self._step_aside(entry)
        unfinished = next(each.verdict for each in undecided.refused if each.verdict.unfinished)
        self._teller.note(entry, unfinished, held=True)
        wakes = undecided.wakes
        await self._searching.wait(question, lambda: self._queue.is_stale(entry, moment, wakes))
        return question.worked - before

    def _placed(self, subject: Subject) -> Placement | Unplaceable:
        self._turn += 1
        began = self._clock.monotonic()
        stopwatch = Stopwatch(self._clock.monotonic, self.metrics.spent) if self._turn % TIMED == 0 else None
        snapshot = self._overlay.photograph()
        found = place(snapshot, subject, self._profile, turn=self._turn, stopwatch=stopwatch)
        self.metrics.observe(measures.ALGORITHM_SECONDS, self._clock.monotonic() - began)
        return found

    # --- yes ---

    async def _bound(self, entry: Entry, placement: Placement, reserves: Sequence[ReserveClassic]) -> Result:
        """Make a placement true; take it back when that fails."""
        pod, claims = entry.pod, self._overlay.claims
        for claim, allocation in placement.given:
            claims.promise(claim, allocation, entry.uid)
        for claim in placement.subject.claims:
            claims.build_on(claim, entry.uid)
        self._overlay.assume(pod, placement.seat.name, placement.subject.needs)
        bound = False
        try:
            await self._write(entry, placement, reserves)
            bound = True
            return self._told_bound(entry, placement)
        except TROUBLE as failed:
            if not isinstance(failed, ApiError) or failed.code >= UNCERTAIN:
                await self._binder.read_again(placement)
            return self._failed(entry, failed)
        except Overtaken as failed:
            return self._failed(entry, failed)
        finally:
            self._binder.settle(placement)
            for claim in placement.subject.claims:
                claims.let_go(claim, entry.uid)
            if not bound and self._overlay.forget(pod):
                self._queue.wake(ROOM)

    async def _write(self, entry: Entry, placement: Placement, reserves: Sequence[ReserveClassic]) -> None:
        if reserves and not await classic_claims.reserve(self._client, reserves):
            raise Overtaken("a claim changed before it could be reserved")
        try:
            await self._secured(entry, placement)
            await self._binder.bind(placement)
        except (ApiError, Overtaken) as failed:
            if not isinstance(failed, OutOfHand):
                await classic_claims.unreserve(self._client, reserves)
            raise

    async def _secured(self, entry: Entry, placement: Placement) -> None:
        """The claims have their devices, which are ready, and the node is still there."""
        if not placement.subject.claims:
            return
        began = self._clock.monotonic()
        await self._binder.secure(placement, waiting=lambda why: self._held_up(entry, why))
        self.metrics.spent(PLUGIN, Phase.PRE_BIND, self._clock.monotonic() - began)
        if not self._overlay.has_node(placement.seat.name):
            await self._binder.undo(placement)
            raise Overtaken(f"node {placement.seat.name} is gone")

    def _held_up(self, entry: Entry, why: str) -> None:
        """The devices of a pod are not ready: it waits, says so, and keeps nobody from being written."""
        self._step_aside(entry)
        self._teller.note(entry, Verdict(PLUGIN, why), held=True)

    def _told_bound(self, entry: Entry, placement: Placement) -> Result:
        self.metrics.bound(entry, self._clock.monotonic())
        self._queue.done(entry.uid)
        self._teller.drop(entry.uid)
        node = placement.seat.name
        text = f"Successfully assigned {entry.name} to {node}"
        self._recorder.record(entry.pod, "Scheduled", text, action="Binding")
        self._choices.log.debug("bound", pod=entry.name, node=node)
        return Result.SCHEDULED

    def _failed(self, entry: Entry, failed: Exception) -> Result:
        """A placement could not be written: the pod is tried again, and told why when that does not help."""
        self._choices.log.info("binding failed", pod=entry.name, why=str(failed))
        entry.verdict = str(failed)
        self._queue.park(entry, frozenset(), again=True)
        if entry.attempts > 1 or isinstance(failed, NotReady):
            self._teller.note(entry, Verdict(PLUGIN, str(failed)))
        return Result.ERROR

    # --- no ---

    def _park(self, entry: Entry, refusal: Refusal, since: int) -> Result:
        again = refusal.again
        if isinstance(refusal, Verdict):
            entry.plugins = frozenset({refusal.plugin})
        else:
            entry.plugins = frozenset(refused.verdict.plugin for refused in refusal.refused)
        self._queue.park(entry, refusal.wakes, again=again, since=since)
        self._teller.note(entry, refusal)
        return Result.UNSCHEDULABLE

    async def _refused(self, entry: Entry, unplaceable: Unplaceable, since: int) -> Result:
        """No node: the pod waits; a claim that keeps it from nodes, and is used by nobody else, goes back."""
        freed = self._in_the_way(unplaceable)
        give_back = post_filter(
            unplaceable.subject, [refused.verdict for refused in unplaceable.refused], self._turn
        )
        if freed is None and not give_back:
            return self._park(entry, unplaceable, since)
        if await self._binder.is_out_of_hand(entry.pod):
            return self._failed(entry, OutOfHand("it is gone, or has a node; we have not seen it yet"))
        try:
            for action in give_back:
                await classic_claims.perform(self._client, action)
            if freed is not None and not give_back:
                await self._binder.release(freed, entry.pod)
        except (*TROUBLE, Overtaken) as failed:
            return self._failed(entry, failed)
        self._teller.note(entry, unplaceable)
        again = freed is not None or unplaceable.again
        prompt = bool(give_back) and entry.attempts < TALKATIVE
        self._queue.park(entry, unplaceable.wakes, again=again, prompt=prompt, since=since)
        return Result.UNSCHEDULABLE

    def _in_the_way(self, unplaceable: Unplaceable) -> ResourceClaim | None:
        """A claim with devices elsewhere that only this pod would use: it may get others."""
        subject = unplaceable.subject
        nodes = unplaceable.snapshot.nodes.values()
        for claim in subject.claims:
            alone = all(user.uid == subject.pod.metadata.uid for user in claim.status.reserved_for)
            if claim.status.allocation is None or not alone or self._overlay.claims.is_promised(claim):
                continue
            if any(out_of_reach((claim,), node) is not None for node in nodes) or not nodes:
                return claim
        return None

    async def _proposed(self, entry: Entry, step: Wait, since: int) -> Result:
        """Tell the drivers of classic claims what is wanted; the pod waits for them."""
        try:
            done = [await classic_claims.perform(self._client, action) for action in step.actions]
        except TROUBLE as failed:
            return self._failed(entry, failed)
        entry.plugins = frozenset({step.verdict.plugin})
        prompt = entry.attempts < TALKATIVE
        self._queue.park(entry, step.verdict.wakes, again=not all(done), prompt=prompt, since=since)
        self._teller.note(entry, step.verdict)
        return Result.UNSCHEDULABLE
