"""R-12: pods with claims on a node whose agent is killed and whose checkpoint is damaged.

Theory of operation: each worker acts as user, scheduler and controller for claims of its own: it creates a
claim with devices of one driver or of both, binds one or several overlapping pods that use it, and ends them
by completion, by deletion or by force. Meanwhile faults are injected into the agent one after the other. When
all pods have ended, the journal is checked.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dray.api.core import Pod
from dray.api.preparation import Preparation
from dray.api.resource import ResourceClaim
from dray.client.client import Client, DeleteOptions
from dray.client.config.kubeconfig import load_client_config
from dray.client.errors import AlreadyExistsError, NotFoundError
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch
from dray.client.rest_client import CALL_ERRORS
from dray.client.transports.http import HttpTransport
from tests.contract.documents import allocation, claim, consumer, device_class
from tests.faults.agents.agent import POINTS
from tests.faults.agents.driver import DEVICES, NODE
from tests.faults.agents.journal import Judge, judged, variable
from tests.faults.agents.machine import DRIVERS, SPOILS, Machine

SPACE = "default"
CLAIM, POD = get_kind("ResourceClaim.resource.k8s.io"), get_kind("Pod")
AWAY = "is the server that"
"""An agent does not start without its server and ends with an error; the campaign starts it again."""
Document = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    cycles: int = 12
    workers: int = 4
    troubles: tuple[str, ...] = ()
    """In this order; after the last, none come any more."""
    broken: str = ""
    patience: float = 240.0
    """Seconds in which whatever is waited for has happened."""


@dataclass
class Tally:
    """What a run came to."""

    cycles: int = 0
    pods: int = 0
    seconds: float = 0.0
    deaths: Counter[str] = field(default_factory=Counter)
    spoiled: Counter[str] = field(default_factory=Counter)
    judge: Judge = field(default_factory=Judge)
    breaches: list[str] = field(default_factory=list)

    def sound(self) -> bool:
        return not self.breaches and not self.judge.breaches

    def __str__(self) -> str:
        counts = self.judge.counts
        deaths = "".join(f"\n  {count:4} {place}" for place, count in sorted(self.deaths.items()))
        spoiled = "".join(f"\n  {count:4} checkpoint: {how}" for how, count in sorted(self.spoiled.items()))
        wrong = (*self.breaches, *self.judge.breaches)
        return (
            f"{self.cycles} cycles, {self.pods} pods in {self.seconds:.0f} s: {counts['prepare']} prepared, "
            f"{counts['unprepare']} given back, {counts['run']} containers, {counts['reboot'] - 1} reboots, "
            f"{self.deaths.total()} deaths; breaches: {len(wrong)}{deaths}{spoiled}"
            + "".join(f"\n  BREACH {each}" for each in wrong[:20])
        )


class Campaign:
    """One run."""

    def __init__(self, root: Path, size: Size, seed: int) -> None:
        self._root, self._size = root, size
        self._chance = random.Random(seed)
        self._machine = Machine(root, random.Random(seed + 1), size.broken)
        self._numbers = itertools.count(1)
        self._devices: dict[str, list[str]] = {
            name: [f"dev-{number}" for number in range(DEVICES)] for name in DRIVERS
        }
        self.tally = Tally(deaths=self._machine.deaths, spoiled=self._machine.spoiled)

    async def run(self) -> Tally:
        began = time.monotonic()
        await self._machine.furnish()
        self._client = Client(HttpTransport(load_client_config(self._machine.kubeconfig)))
        try:
            await self._client.create(device_class())
            await self._machine.power_on()
            await self._machine.works()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._trouble())
                for number in range(self._size.workers):
                    tasks.create_task(self._work(random.Random(self._chance.random() + number)))
            await self._rest()
        finally:
            await self._client.close()
            await self._machine.clear()
        self.tally.judge = judged(self._machine.journal)
        self.tally.breaches += self._machine.breaches
        self.tally.seconds = time.monotonic() - began
        return self.tally

    # --- pods and claims ---

    async def _work(self, chance: random.Random) -> None:
        while self._troubled or self.tally.cycles < self._size.cycles:
            self.tally.cycles += 1
            await self._cycle(chance)

    async def _cycle(self, chance: random.Random) -> None:
        """The life of a claim or two, with one pod or several."""
        claims = [await self._claim(chance) for _ in range(chance.choice((1, 1, 1, 2)))]
        several = chance.random() < 0.4
        async with asyncio.TaskGroup() as tasks:
            for number in range(chance.randrange(2, 5) if several else 1):
                await asyncio.sleep(chance.uniform(0, 0.6) if number else 0)
                tasks.create_task(self._pod(claims, chance))
        for each in claims:
            await self._over(each)

    async def _claim(self, chance: random.Random) -> Document:
        """A claim that has devices of one driver or of both."""
        drivers = chance.choice((*((name,) for name in DRIVERS), tuple(DRIVERS)))
        name = f"c{next(self._numbers)}"
        made = await self._sure(lambda: self._client.create(claim(name)), lambda: self._get(CLAIM, name))
        got = allocation(node=NODE)
        got["devices"]["results"] = [
            {"request": "gpu", "driver": driver, "pool": NODE, "device": self._devices[driver].pop(0)}
            for driver in drivers
        ]
        found = {"name": name, "uid": _uid(made), "results": got["devices"]["results"], "users": []}
        await self._status(found, {"allocation": got})
        return found

    async def _pod(self, claims: Sequence[Document], chance: random.Random) -> None:
        """A pod that uses claims, from its making to its end."""
        name, ends = f"p{next(self._numbers)}", chance.random() < 0.3
        document = self._document(name, claims, chance.uniform(0.05, 0.8) if ends else 1000.0)
        made = await self._sure(lambda: self._client.create(document), lambda: self._get(POD, name))
        self.tally.pods += 1
        for each in claims:
            each["users"].append(consumer(made))
            await self._status(each, {"reservedFor": each["users"]})
        await self._bind(name)
        until = ("Succeeded", "Failed") if ends else ("Running", "Succeeded", "Failed")
        hasty = chance.random() < 0.25
        await self._until(name, until, chance.uniform(0, 1.0) if hasty else self._size.patience)
        await asyncio.sleep(chance.uniform(0, 0.6))
        forced = chance.random() < 0.15
        await self._sure(lambda: self._delete(POD, name, grace=0 if forced else 20))
        await self._until(name, (), self._size.patience)
        for each in claims:
            each["users"] = [user for user in each["users"] if user["name"] != name]
            await self._status(each, {"reservedFor": each["users"] or None})

    def _document(self, name: str, claims: Sequence[Document], seconds: float) -> Document:
        uses = [
            f"{each['uid']}/{result['driver']}=${variable(result['driver'], each['uid'])}"
            for each in claims
            for result in each["results"]
        ]
        journal = self._machine.journal
        script = (
            f"trap 'echo 0 container {name} end >> {journal}; exit 0' TERM\n"
            f'echo "0 container {name} run {" ".join(uses)}" >> {journal}\n'
            f"sleep {seconds:.2f} & wait $!\n"
            f"echo 0 container {name} end >> {journal}"
        )
        entries = [{"name": each["name"], "resourceClaimName": each["name"]} for each in claims]
        container = {
            "name": "c",
            "image": "x",
            "command": ["sh", "-c", script],
            "resources": {"claims": [{"name": each["name"]} for each in claims]},
        }
        spec = {"containers": [container], "resourceClaims": entries, "restartPolicy": "Never"}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": SPACE},
            "spec": spec,
        }

    async def _bind(self, name: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}

        async def is_bound() -> bool:
            found = await self._get(POD, name)
            return found is not None and bool(found["spec"].get("nodeName"))

        async def bind() -> None:
            if not await is_bound():
                await self._client.post_json(f"/api/v1/namespaces/{SPACE}/pods/{name}/binding", body)

        await self._sure(bind)

    async def _over(self, gone: Document) -> None:
        """A claim is deleted; its devices go to others."""
        await self._status(gone, {"reservedFor": None})
        await self._status(gone, {"allocation": None})
        await self._sure(lambda: self._delete(CLAIM, gone["name"]))
        for result in gone["results"]:
            self._devices[result["driver"]].append(result["device"])

    async def _status(self, each: Document, status: Document) -> None:
        change = MergePatch({"status": status})

        async def write() -> None:
            with suppress(NotFoundError):
                await self._client.patch(CLAIM, each["name"], change, SPACE, subresource="status")

        await self._sure(write)

    async def _delete(self, kind: Any, name: str, grace: int | None = None) -> None:
        with suppress(NotFoundError):
            await self._client.delete(kind, name, SPACE, DeleteOptions(grace_seconds=grace))

    async def _get(self, kind: Any, name: str) -> Document | None:
        with suppress(NotFoundError):
            found: Document = await self._client.get(kind, name, SPACE)
            return found
        return None

    async def _sure(
        self, ask: Callable[[], Awaitable[Any]], found: Callable[[], Awaitable[Any]] | None = None
    ) -> Any:
        """Ask until it is answered: the server may be away."""
        deadline = time.monotonic() + self._size.patience
        while True:
            try:
                return await ask()
            except AlreadyExistsError:
                if found is None:
                    raise
                with suppress(*CALL_ERRORS):
                    return await found()
            except CALL_ERRORS as trouble:
                if time.monotonic() > deadline:
                    raise AssertionError(f"never answered: {trouble}") from None
            await asyncio.sleep(0.2)

    async def _until(self, name: str, phases: Sequence[str], seconds: float) -> None:
        """Wait until a pod has one of these phases, or is gone."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with suppress(*CALL_ERRORS):
                found = await self._get(POD, name)
                if found is None or (found.get("status") or {}).get("phase") in phases:
                    return
            await asyncio.sleep(0.25)
        if seconds == self._size.patience:
            self.tally.breaches.append(f"pod {name} never came to {phases or 'its end'}")

    async def _rest(self) -> None:
        """Everything has gone; wait until the node has given everything back."""
        deadline = time.monotonic() + self._size.patience
        left = 1
        while left and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
            if not self._machine.agent.is_running:
                await self._machine.start_agent()
            with suppress(*CALL_ERRORS):
                left = len((await self._client.list(Preparation)).items)
                left += len((await self._client.list(Pod, SPACE)).items)
                left += len((await self._client.list(ResourceClaim, SPACE)).items)
                left += judged(self._machine.journal).owed != set()
        cdi = self._root / "cdi"
        files = sorted(each.name for each in cdi.iterdir()) if cdi.is_dir() else []
        if left or files:
            self.tally.breaches.append(f"left at the end: {left} objects, files {files}")

    # --- troubles ---

    _troubled = True

    async def _trouble(self) -> None:
        try:
            for number, each in enumerate(self._size.troubles):
                await self._until_due(number)
                if self._chance.random() < 0.8:  # otherwise it is hit while it begins
                    await self._machine.works()
                await asyncio.sleep(self._chance.uniform(0.1, 1.0))
                self._machine.copy()
                await self._strike(each)
        finally:
            self._troubled = False

    async def _until_due(self, number: int) -> None:
        """Troubles come all the time, while the first pods come and while the last ones do."""
        due = self._size.cycles * number / len(self._size.troubles)
        deadline = time.monotonic() + 30.0
        while self.tally.cycles < due and time.monotonic() < deadline:
            await asyncio.sleep(0.1)

    async def _strike(self, what: str) -> None:
        machine = self._machine
        if what == "reboot":
            await machine.power_off()
            await machine.power_on()
        elif what == "server":
            await machine.stop_server(self._chance.choice((signal.SIGKILL, signal.SIGTERM)))
            await asyncio.sleep(self._chance.uniform(0.2, 4.0))
            await machine.start_server()
        else:
            await self._die(what if what in POINTS else "")
            if what in SPOILS:
                await machine.spoil(what)
            await machine.start_agent()
            return
        machine.deaths[what] += 1

    async def _die(self, point: str) -> None:
        """The agent is killed: at a point when it gets there soon, or now."""
        machine, fatal = self._machine, self._root / "fatal"
        if point:
            fatal.write_text(point)
            if point.startswith("awakened"):
                await machine.agent.kill()
                await machine.start_agent()
            with suppress(TimeoutError):
                async with asyncio.timeout(15):
                    assert machine.agent.process is not None
                    await machine.agent.process.wait()
            reached = not fatal.exists()
            fatal.unlink(missing_ok=True)
        else:
            reached = False
        if machine.agent.is_running:
            await machine.agent.kill()
        elif not reached and AWAY not in machine.agent.said().splitlines()[-1]:
            machine.breaches.append(f"the agent ended by itself: {machine.agent.said()[-600:]}")
        machine.deaths[point if reached else "at any time"] += 1


def _uid(made: Any) -> str:
    meta = made["metadata"] if isinstance(made, dict) else made.metadata
    return str(meta["uid"] if isinstance(meta, dict) else meta.uid)
