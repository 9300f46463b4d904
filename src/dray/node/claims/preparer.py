"""The claim office of a node: has the claims of pods prepared before they run, and given back after.

Theory of operation: an attempt to prepare reads the claims fresh, asks the rules (`admission`), waits until
nobody else works on those claims, asks what stands in the way (`plan.obstacle`), and writes into the record
that the pod uses them and what is asked of which driver. When that is durable it is announced to the API, and
then the drivers are called, all at once, each once for all claims of the pod. What failed is asked again by
the next attempt, what succeeded is not. Giving back begins when the last pod that uses a claim has left: from
then on the claim takes no new users, and the pod is not over before all drivers have let go. What no pod
waits for (announcements to take back, claims that nobody remembers) is done beside.

A pod whose claims are all prepared is ready without asking anybody: containers start again also while the
server is away. An office that is told to leave claims alone says the same of every pod; what an earlier agent
had prepared stays with its pods and is given back.

Rules for this file: sequence only. What may be done is decided in `admission` and `plan`, on values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Set
from functools import partial
from typing import Final

from dray.api.core import Container, Pod
from dray.client.client import Client
from dray.client.events import EventRecorder
from dray.client.rest_client import TROUBLE
from dray.client.timing import Backoff
from dray.node import agent_metrics
from dray.node.claims import container_devices, plan
from dray.node.claims.admission import admit, is_static
from dray.node.claims.checkpoint import Checkpoint, Lost
from dray.node.claims.claim_events import Telling
from dray.node.claims.claim_lookup import claim_name, find_claims
from dray.node.claims.container_devices import InHand
from dray.node.claims.driver_calls import Calling
from dray.node.claims.outcomes import Ready, Reason, Refusal, Waiting
from dray.node.claims.plan import Call, Wanted
from dray.node.claims.preparations import Preparations
from dray.node.claims.preparer_context import Desk, OfficeChoices
from dray.node.claims.published_devices import Published
from dray.node.claims.readiness import ABANDON, readiness, remainder
from dray.node.claims.record import Record, Stage, User
from dray.node.claims.recovery import Sight, completed, joined, lives, said_before, uncovered
from dray.node.claims.releaser import Returning
from dray.node.claims.restore_accounting import Accounting
from dray.node.keyed_locks import first_of

__all__ = ["ABANDON", "Claims", "OfficeChoices", "Ready", "Reason", "Refusal", "Waiting"]

_UNTIL_RETURNED = (Reason.GIVEN_BACK_FIRST, Reason.DEVICE_HELD)
"""What ends when a claim was given back."""
_NOT_WRITTEN: Final = "the record of prepared claims cannot be written: {}"


class Claims:
    """The claims of the pods of one node.

    First `awaken` with the pods bound to the node; then `run` beside everything else, once no container of a
    pod that is gone runs any more. For a pod: `prepare` until it is `Ready`, with `pause` in between;
    `release` until it returns None, with `pause` in between, after its containers have ended and before it is
    reported to be over. Pods in `users` that the API does not know any more are released as well.
    """

    def __init__(self, client: Client, recorder: EventRecorder, choices: OfficeChoices) -> None:
        self._client = client
        self._choices = choices
        node = choices.node().metadata.name
        self._checkpoint = Checkpoint(choices.checkpoint)
        self._calling = Calling(self._checkpoint, choices.lines, Published(client, node), choices.crash)
        self._desk = Desk(choices, self._calling, Preparations(client, choices.node), Telling(recorder))
        self._returning = Returning(self._desk)
        self.accounting = Accounting(client, self._desk)
        self._pauses: dict[str, Backoff] = {}
        self._waits_for: dict[str, Reason] = {}
        self._leaving: set[str] = set()
        metrics = choices.metrics
        metrics.ask(agent_metrics.HELD, lambda: [((str(s),), n) for s, n in self.record.stages().items()])
        metrics.ask(agent_metrics.IN_USE, lambda: [((d,), n) for d, n in self.record.drivers().items()])

    @property
    def record(self) -> Record:
        """What is held on this node."""
        return self._calling.record

    def users(self) -> Mapping[str, User]:
        """The pods that use claims here, or wait for one to be given back, by uid."""
        return self.record.users()

    def is_held(self, pod_uid: str) -> bool:
        """Whether a pod uses claims here or waits for one to be given back."""
        return pod_uid in self.record.users()

    def cdi(self, pod_uid: str, container: Container) -> tuple[str, ...]:
        """The qualified names of the CDI devices a container gets; the pod must be `Ready`."""
        return container_devices.cdi_for(self.record, pod_uid, container.resources.claims)

    def devices(self, pod_uid: str, container: Container) -> tuple[InHand, ...]:
        """The devices a container has, for health in its status."""
        return container_devices.in_hand(self.record, pod_uid, container.resources.claims)

    async def trouble(self) -> str:
        """What keeps the record from being written, when it could not be the last time and cannot now."""
        problem = await self._calling.keep("written again") if self._calling.unkept else ""
        return _NOT_WRITTEN.format(problem) if problem else ""

    # Beginning.

    async def awaken(self, pods: Iterable[Pod], running: Set[str] = frozenset()) -> None:
        """Take up what an earlier agent left; `pods` are all pods bound to this node.

        `running` are the uids of those that have containers: whatever the record says, they use their claims.

        `dray.durable.Newer` when the checkpoint is of a later version: then the agent must not start.
        """
        loaded = await asyncio.to_thread(self._checkpoint.load)
        lost = isinstance(loaded, Lost)
        record = known = Record() if isinstance(loaded, Lost) else loaded
        if isinstance(loaded, Lost) and loaded.why:
            self._choices.log("record is made anew", cause=loaded.why)
        pods = tuple(pod for pod in pods if lives(pod))
        strangers = {pod.metadata.uid for pod in pods if uncovered(record, pod)} & running
        sight = await self._sight(pods, record, must=lost, strangers=strangers)
        if sight is not None:
            record = completed(record, sight, lost=lost)
            record = joined(record, (each for each in sight.pods if each[0].metadata.uid in strangers))
        self._desk.preparations.said |= said_before(known, record, running)
        self._calling.record = plan.awakened(record, self._choices.boot_id)
        problem = await self._calling.keep("awakened")
        if problem:
            raise OSError(_NOT_WRITTEN.format(problem))
        self._returning.nudge()

    async def _sight(
        self, pods: tuple[Pod, ...], record: Record, *, must: bool, strangers: Set[str]
    ) -> Sight | None:
        """What the API says this node has. A lost record must wait for it, a whole one can do without.

        One that does not know what runs here is not whole.
        """
        backoff, must = Backoff(self._choices.tempo), must or bool(strangers)
        while True:
            try:
                standing = await self._desk.preparations.standing()
                unknown = {each.spec.claim.uid for each in standing or ()} - {c.uid for c in record.claims}
                if not must and not unknown:
                    return Sight((), standing)
                if unknown and await self._desk.preparations.unheard():
                    # Of a past that the server went back to: only who runs is known to use anything of it.
                    pods = tuple(pod for pod in pods if pod.metadata.uid in strangers)
                found = [(pod, await find_claims(self._client, pod, record)) for pod in pods]
                return Sight(tuple(found), standing)
            except TROUBLE as trouble:
                self._choices.log("cannot see what this node has", cause=str(trouble), waits=must)
                if not must:
                    return None
            await backoff.wait()

    # Preparing.

    async def prepare(self, pod: Pod) -> Ready | Refusal | Waiting:
        """Have the claims of a pod prepared: one attempt; anything but `Ready` is told in an event."""
        user = User(uid=pod.metadata.uid, namespace=pod.metadata.namespace, name=pod.metadata.name)
        if self._is_ready(pod):
            self._settled(user.uid)
            return Ready()
        if not self._choices.claims:
            self._desk.telling.ignored(user)
            return Ready()
        began = self._choices.tempo.clock.monotonic()
        answer = await self._attempt(pod, user)
        seconds = self._choices.tempo.clock.monotonic() - began
        self._choices.metrics.operated(agent_metrics.PREPARING, seconds, failed=not isinstance(answer, Ready))
        if isinstance(answer, Ready):
            self._settled(user.uid)
            return answer
        if user.uid not in self._leaving:
            self._desk.telling.failed(user, answer)
        self._waits_for[user.uid] = answer.reason
        if isinstance(answer, Refusal):
            self._choices.metrics.count(agent_metrics.REFUSALS, answer.reason.value)
        return answer

    def _is_ready(self, pod: Pod) -> bool:
        """Whether the record alone says that everything a pod needs is prepared."""
        needed = [
            entry.name
            for entry in pod.spec.resource_claims
            if claim_name(pod, entry, self.record) is not None
        ]
        if is_static(pod) and needed:
            return False
        return not container_devices.missing(self.record, pod.metadata.uid, needed)

    async def _attempt(self, pod: Pod, user: User) -> Ready | Refusal | Waiting:
        while True:
            try:
                found = {} if is_static(pod) else await find_claims(self._client, pod, self.record)
                announcing = await self._desk.preparations.served()
            except TROUBLE as trouble:
                return Waiting(Reason.CLAIM_UNREAD, f"claims cannot be read: {trouble}")
            wanted = admit(pod, found, self._choices.node())
            if isinstance(wanted, Refusal):
                return wanted
            # Who had to wait looks again: much may have happened to the claims meanwhile.
            if not await self._desk.busy.waited(partial(self._unprepared, wanted)):
                break
        return await self._desk.turns.after(user.uid, partial(self._prepare, user, wanted, announcing))

    async def _prepare(
        self, user: User, wanted: tuple[Wanted, ...], announcing: bool
    ) -> Ready | Refusal | Waiting:
        needed = partial(self._unprepared, wanted)
        async with self._desk.busy.taking(needed, unless=lambda: user.uid in self._leaving) as taken:
            if not taken:
                return Waiting(Reason.GIVEN_BACK_FIRST, "the pod is ending")
            in_the_way = plan.obstacle(self.record, wanted)
            if in_the_way is not None:
                return in_the_way
            present = self._calling.present(plan.drivers_of(wanted))
            self._calling.record, calls = plan.begin(self.record, user, wanted, present, announcing)
            failed = await self._cleared(calls, announcing)
            if failed is not None:
                self._calling.record = plan.withdrawn(self.record, calls)
                return failed
            await self._calling.prepare(calls)
        return readiness(self.record, wanted)

    def _unprepared(self, wanted: tuple[Wanted, ...]) -> frozenset[str]:
        """Claims on which something has to be done; the others may be used while others work on them."""
        return frozenset(each.uid for each in wanted if not self._is_prepared(each.uid))

    def _is_prepared(self, uid: str) -> bool:
        held = self.record.claim(uid)
        return held is not None and held.state is Stage.PREPARED

    async def _cleared(self, calls: tuple[Call, ...], announcing: bool) -> Waiting | None:
        """What has to be true before drivers are called: it is durable, and the API knows."""
        problem = await self._calling.keep("preparing recorded")
        if problem:
            return Waiting(Reason.NOT_RECORDED, _NOT_WRITTEN.format(problem))
        if announcing:
            uids = {uid for call in calls for uid in call.uids}
            claims = [held for held in self.record.claims if held.uid in uids and not held.classic]
            problem = await self._desk.preparations.announce(claims)
            if problem:
                why = f"the server does not take the node's word that it prepares {problem}"
                return Waiting(Reason.NOT_ANNOUNCED, why)
            self._choices.crash("preparing announced")
        return None

    # Giving back.

    async def release(self, pod_uid: str, *, abandon: bool = False) -> Waiting | None:
        """Give back what a pod was the last to use: one attempt; None when nothing of it is left.

        The pod's containers must have ended. With `abandon`, what no driver takes back is forgotten.
        """
        began = self._choices.tempo.clock.monotonic()
        self._leaving.add(pod_uid)
        self._desk.busy.look_again()
        try:
            user = self.users().get(pod_uid, User(uid=pod_uid))
            answer = await self._desk.turns.after(pod_uid, partial(self._release, pod_uid, abandon))
        finally:
            self._leaving.discard(pod_uid)
        seconds = self._choices.tempo.clock.monotonic() - began
        self._choices.metrics.operated(agent_metrics.UNPREPARING, seconds, failed=answer is not None)
        if answer is None:
            self._settled(pod_uid)
        else:
            self._desk.telling.blocked(user, answer)
        return answer

    async def _release(self, pod_uid: str, abandon: bool) -> Waiting | None:
        def needed() -> frozenset[str]:
            alone = (held for held in self.record.used_by(pod_uid) if held.pods == (pod_uid,))
            return frozenset(held.uid for held in (*alone, *self.record.left_by(pod_uid)))

        if not self.is_held(pod_uid):
            return None
        async with self._desk.busy.taking(needed):
            self._calling.record = plan.finish(self.record, pod_uid)
            problem = await self._calling.keep("unpreparing recorded")
            if problem:
                return Waiting(Reason.NOT_RECORDED, _NOT_WRITTEN.format(problem))
            await self._returning.give_back(self.record.left_by(pod_uid), abandon=abandon)
            if any(held.state is Stage.LETTING_GO for held in self.record.claims):
                # Also what no driver was asked for may have been announced.
                self._returning.nudge()
        present = self._calling.present(plan.drivers_of(self.record.left_by(pod_uid)))
        return remainder(self.record, pod_uid, present)

    # Waiting.

    async def pause(self, pod_uid: str) -> None:
        """Wait until another attempt for a pod makes sense.

        The waits grow, and end early when a driver came, or a claim was given back that the pod waits for.
        """
        backoff = self._pauses.get(pod_uid)
        if backoff is None:
            backoff = self._pauses[pod_uid] = Backoff(self._choices.tempo, first=0.5, longest=20.0)
        bells = [self._desk.news.heard()]
        if self._waits_for.get(pod_uid) in _UNTIL_RETURNED:
            bells.append(self._desk.returned.heard())
        await first_of(backoff.wait(), *bells)

    def nudge(self) -> None:
        """Something changed (a driver registered, a pod or node was changed): end all pauses."""
        self._desk.news.ring()
        self._returning.nudge()

    def _settled(self, pod_uid: str) -> None:
        self._pauses.pop(pod_uid, None)
        self._waits_for.pop(pod_uid, None)
        self._desk.telling.forget(pod_uid)

    async def run(self) -> None:
        """Do what no pod waits for, until cancelled; then stop the calls that are under way."""
        try:
            await self._returning.run()
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop the calls that are under way; the next agent finds in the record what they were."""
        await self._desk.turns.close()
        await self._checkpoint.close()
