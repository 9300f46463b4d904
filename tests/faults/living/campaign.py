"""Pods whose node, driver, server and claim go away in every order, and a judge of who has the devices.

Theory of operation: five things happen to a pod that runs with a device: its agent is killed, its driver is
killed or stopped, the API server is away, the pod is deleted by force, and its claim is deleted, finalizers
included. There are 120 orders. The first three happen to the node, so one sweep with 20 pods covers the 20
orders that have those three in common: each pod goes through the other two at its own times. What was killed
is started again at once, or after what happens to the pods next, or it is killed while it starts.

A part that ends by itself is started again, as by a supervisor: `dray node` does not start without a server.

Devices are few: the scheduler gives those of deleted claims to pods of the next sweep, while the agent has
not given them back. In the end everything is deleted, and the node must have given everything back.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any

from dray.api.core import Pod
from dray.client.client import Client, DeleteOptions
from dray.client.connect import connect
from dray.client.errors import AlreadyExistsError, NotFoundError
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch
from dray.client.rest_client import CALL_ERRORS
from tests.contract.documents import claim, device_class, pod
from tests.faults.living.journal import EVERYTHING, Judge, read_journal, write_line
from tests.faults.living.processes import LivingProcess, list_living
from tests.faults.living.sites import SITES, Site

SPACE = "default"
CLAIM, POD = get_kind("ResourceClaim.resource.k8s.io"), get_kind("Pod")
NODE_EVENTS = ("agent", "driver", "server")
POD_EVENTS = ("pod", "claim")
WATCH_SECONDS = 0.1
Order = tuple[str, ...]


def list_sweeps() -> list[tuple[Order, list[Order]]]:
    """All orders of events, by what happens to the node."""
    sweeps: dict[Order, list[Order]] = defaultdict(list)
    for order in permutations(NODE_EVENTS + POD_EVENTS):
        sweeps[_select_node_events(order)].append(order)
    return list(sweeps.items())


def _select_node_events(order: Order) -> Order:
    return tuple(each for each in order if each in NODE_EVENTS)


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    rounds: int
    pods: int = 20
    """Pods of a sweep, at most."""
    orders: tuple[Order, ...] = ()
    """Only these, in one sweep; what happens to the node must have one order in all of them."""
    patience: float = 300.0
    """Seconds in which whatever is waited for has happened."""


OUTLIVING = Size(1, orders=(("claim", "driver", "agent", "server", "pod"),))
"""A container that outlives its claim, and then a start of its driver: what a broken driver fails at."""


@dataclass
class Tally:
    """What a run came to; a round is a pod that went through all events."""

    rounds: int = 0
    orders: set[Order] = field(default_factory=set)
    events: Counter[str] = field(default_factory=Counter)
    looks: int = 0
    """How often a living process was found to have its device."""
    outlived: int = 0
    """Claims that were gone while a process still had their device."""
    seconds: float = 0.0
    judge: Judge = field(default_factory=Judge)
    breaches: list[str] = field(default_factory=list)

    def is_sound(self) -> bool:
        return not self.breaches and not self.judge.breaches

    def __str__(self) -> str:
        wrong = (*self.breaches, *self.judge.breaches)
        events = ", ".join(f"{count} {what}" for what, count in sorted(self.events.items()))
        counts = self.judge.counts
        calls = ", ".join(f"{counts[what]} {what}" for what in ("prepare", "unprepare"))
        return (
            f"{self.rounds} rounds in {len(self.orders)} orders in {self.seconds:.0f} s: {events}; {calls}; "
            f"{self.outlived} claims gone before their containers, {self.looks} looks at living processes; "
            f"breaches: {len(wrong)}" + "".join(f"\n  BREACH {each}" for each in wrong[:20])
        )


@dataclass
class PodRound:
    """A pod and its claim."""

    name: str
    order: Order
    uid: str = ""


class Campaign:
    """One run at a site."""

    def __init__(self, site: Site, journal: Path, size: Size, seed: int) -> None:
        self._site, self._journal, self._size = site, journal, size
        self._chance = random.Random(seed)
        self._down: list[str] = []
        self._robbed: set[LivingProcess] = set()
        self._parts = {"agent": site.agent, "driver": site.driver, "server": site.server}
        self.tally = Tally()

    async def run(self) -> Tally:
        began = time.monotonic()
        async with connect(str(self._site.kubeconfig)) as client:
            self._client: Client = client
            background = [asyncio.create_task(each) for each in (self._watch(), self._supervise())]
            try:
                await self._create(device_class())
                for number, (order, pods) in enumerate(self._plan_sweeps()):
                    await self._sweep(number, order, pods)
                    print(f"  {self._site.what}: {self.tally.rounds} rounds, {self.tally.events}", flush=True)
                await self._wait_for_rest()
            finally:
                for task in background:
                    task.cancel()
        self.tally.judge = read_journal(self._journal).finish()
        self.tally.seconds = time.monotonic() - began
        return self.tally

    def _plan_sweeps(self) -> list[tuple[Order, list[Order]]]:
        """So many rounds: all orders once, before any comes twice."""
        planned, left = [], self._size.rounds
        if self._size.orders:
            return [(_select_node_events(self._size.orders[0]), list(self._size.orders))]
        while left > 0:
            sweeps = list_sweeps()
            self._chance.shuffle(sweeps)
            for node_order, orders in sweeps:
                chosen = self._chance.sample(orders, min(left, self._size.pods, len(orders)))
                left -= len(chosen)
                if chosen:
                    planned.append((node_order, chosen))
        return planned

    # --- one sweep ---

    async def _sweep(self, number: int, node_order: Order, orders: Sequence[Order]) -> None:
        pods = [PodRound(f"p{number}-{place}", order) for place, order in enumerate(orders)]
        async with asyncio.TaskGroup() as tasks:
            for one in pods:
                tasks.create_task(self._begin(one))
        if not await self._wait_until_running(pods):
            return
        for event in (*node_order, ""):
            for one in pods:
                await self._hit_pod(one, event)
            await self._start_parts()
            if event:
                await self._hit_node(event)
        await self._start_parts()
        self.tally.rounds += len(pods)
        self.tally.orders |= {one.order for one in pods}

    async def _begin(self, one: PodRound) -> None:
        made = await self._create(claim(one.name))
        one.uid = str(made["metadata"]["uid"] if isinstance(made, dict) else made.metadata.uid)
        document = pod(one.name, claim_name=one.name)
        # Some containers end late: those keep their device for a while after they were told to end.
        ignore = "trap '' TERM; " if self._chance.random() < 0.5 else ""
        command = ["sh", "-c", f"{ignore}sleep 100000 & wait; sleep 100000"]
        document["spec"]["containers"][0] |= {"image": self._site.image, "command": command}
        document["spec"] |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2}
        await self._create(document)

    async def _hit_pod(self, one: PodRound, event: str) -> None:
        """What happens to a pod between the event of its node before this one, and this one."""
        last = one.order.index(event) if event else len(one.order)
        begin = max((place + 1 for place in range(last) if one.order[place] in NODE_EVENTS), default=0)
        for each in one.order[begin:last]:
            self.tally.events[each] += 1
            write_line(self._journal, "event", one.uid, each)
            await (self._delete_pod(one) if each == "pod" else self._delete_claim(one))

    async def _delete_pod(self, one: PodRound) -> None:
        await self._ask(lambda: self._client.delete(POD, one.name, SPACE, DeleteOptions(grace_seconds=0)))

    async def _delete_claim(self, one: PodRound) -> None:
        """As somebody does who wants it to be gone: finalizers are removed by hand."""
        await self._ask(lambda: self._client.delete(CLAIM, one.name, SPACE))
        patch = MergePatch({"metadata": {"finalizers": None}})
        await self._ask(lambda: self._client.patch(CLAIM, one.name, patch, SPACE))
        self.tally.outlived += any(each.uid == one.uid for each in list_living(self._journal))

    async def _hit_node(self, event: str) -> None:
        part = self._parts[event]
        how = self._chance.choice((signal.SIGKILL, signal.SIGTERM)) if event == "driver" else signal.SIGKILL
        self.tally.events[f"{event} {how.name}"] += 1
        self._down.append(event)
        write_line(self._journal, "event", EVERYTHING, event)
        await asyncio.to_thread(part.stop, how)
        # Deletions need the server; the other two may stay away while pods and claims go.
        if event == "server" or self._chance.random() < 0.5:
            await asyncio.sleep(self._chance.uniform(0.0, 3.0))
            await self._start_parts()
            await asyncio.sleep(self._chance.choice((0.0, 0.5, 3.0)))

    async def _start_parts(self) -> None:
        while self._down:
            event = self._down.pop()
            self._parts[event].start()
            if event == "server":
                await asyncio.to_thread(self._site.wait_for_server)
                await self._ask(lambda: self._client.list(Pod, SPACE))

    async def _supervise(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            for event, part in self._parts.items():
                if event not in self._down and not part.running:
                    self.tally.events[f"{event} ended by itself"] += 1
                    part.start()

    # --- waiting ---

    async def _wait_until_running(self, pods: Sequence[PodRound]) -> bool:
        wanted, running = {one.uid for one in pods}, set[str]()
        deadline = time.monotonic() + self._size.patience
        while not wanted <= running and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
            running = {each.uid for each in list_living(self._journal)}
        for one in pods:
            if one.uid not in running:
                self.tally.breaches.append(f"pod {one.name} never ran: {await self._explain(one)}")
        return wanted <= running

    async def _explain(self, one: PodRound) -> str:
        found = await self._ask(lambda: self._client.get(POD, one.name, SPACE))
        return f"{found and found.get('status')}\n{self._site.read_logs()}"

    async def _wait_for_rest(self) -> None:
        """Everything is deleted; wait until the node has given everything back."""
        deadline, left = time.monotonic() + self._size.patience, "?"
        while left and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
            processes = sorted({each.device for each in list_living(self._journal)})
            files = sorted(each.name for each in self._site.cdi.iterdir())
            held = sorted(read_journal(self._journal).holders)
            left = f"processes {processes}, files {files}, devices {held}" if processes + files + held else ""
        if left:
            self.tally.breaches.append(f"left at the end: {left}\n{self._site.read_logs()}")

    # --- watching ---

    async def _watch(self) -> None:
        """Look at all living processes, again and again: the file of each one's device must be there."""
        while True:
            await asyncio.to_thread(self._look)
            await asyncio.sleep(WATCH_SECONDS)

    def _look(self) -> None:
        for process in list(list_living(self._journal)):
            self.tally.looks += 1
            if process not in self._robbed and not self._has_file(process) and process.is_alive():
                self._robbed.add(process)
                self.tally.breaches.append(f"the CDI file is gone, the process is alive: {process}")

    def _has_file(self, process: LivingProcess) -> bool:
        return any(process.uid in each.name for each in self._site.cdi.iterdir())

    # --- asking ---

    async def _create(self, document: dict[str, Any]) -> Any:
        kind, name = document["kind"], document["metadata"]["name"]
        try:
            return await self._ask(lambda: self._client.create(document))
        except AlreadyExistsError:
            return await self._client.get(CLAIM if kind == "ResourceClaim" else POD, name, SPACE)

    async def _ask(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Ask until it is answered, for the server may be away; None when the object does not exist."""
        deadline = time.monotonic() + self._size.patience
        while True:
            try:
                with suppress(NotFoundError):
                    return await ask()
                return None
            except AlreadyExistsError:
                raise
            except CALL_ERRORS as trouble:
                if time.monotonic() > deadline:
                    raise AssertionError(f"never answered: {trouble}") from None
            await asyncio.sleep(0.2)


def run_campaign(site: str, folder: Path, size: Size, seed: int, broken: str = "") -> Tally:
    """Run one campaign at a new site, whose files are in a folder."""
    with SITES[site](folder, broken) as opened:
        return asyncio.run(Campaign(opened, folder / "journal", size, seed).run())
