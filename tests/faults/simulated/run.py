"""One schedule from its beginning to its end: start, work and faults, repair, rest, clean-up, and a last pod.

Theory of operation: the cluster of a block of schedules is started once; each schedule continues from there
with random numbers of its own. After the last step all faults end and the cluster comes to rest: then every
pod runs or has a reason why not. When all pods and claims are deleted, everything that belonged to them goes,
too, and a new pod runs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, Final

from dray.client.leases import LeaseTiming
from dray.client.rest_client import CALL_ERRORS
from tests.faults.simulated import objects
from tests.faults.simulated.conditions import FaultRates
from tests.faults.simulated.fault_injector import FaultInjector
from tests.faults.simulated.invariants import ClusterModel
from tests.faults.simulated.liveness import find_leftovers, find_stuck_objects
from tests.faults.simulated.schedule import FAULT_STEPS, NEEDS_REPAIR, ClusterShape, Schedule, ScheduledStep
from tests.faults.simulated.watch_checks import WatchChecker
from tests.faults.simulated.workload import Workload
from tests.simulated.cluster import SimulatedCluster
from tests.simulated.event_loop import TimeStandsStillError
from tests.simulated.store import complete

START_SECONDS: Final = 6.0
HISTORY_SECONDS: Final = 200.0
LEASE_TIMING: Final = LeaseTiming(retry_period=5.0)
"""Renewals every two seconds would be most of what happens."""
REST_SECONDS: Final = 8.0
"""A cluster is at rest when nothing but heartbeats was written for so long."""
BACKOFF_SECONDS: Final = 32.0
"""The same after faults: as long as the longest time after which anyone tries again."""
RARE_BOOKMARK_SECONDS: Final = 60.0
BOOKMARKS_EVERY: Final = 4
"""One block of so many has bookmarks as often as in production."""
SHUFFLED_EVERY: Final = 5
"""In one block of so many, processes run their callbacks in any order."""
PROBE_EVERY: Final = 4
"""One schedule of so many ends with a last pod."""
MAX_REST_SECONDS: Final = 600.0


@dataclass
class Outcome:
    """What became of a schedule."""

    seed: int
    violations: list[str]
    trace: list[str]
    steps: int
    commits: int
    seconds: float
    digest: str
    happened: Counter[str] = field(default_factory=Counter)


class ScheduleRun:
    """A started cluster, ready for a schedule. Its files are in the current directory."""

    def __init__(self, shape: ClusterShape, block: int) -> None:
        self.cluster = cluster = SimulatedCluster(block, Path())
        cluster.store.commits_sequences = shape.transactions
        self.model = ClusterModel()
        self.watches = WatchChecker(self.model.fail)
        self.rates = FaultRates(cluster.random)
        if block % BOOKMARKS_EVERY:
            cluster.bookmark_seconds = RARE_BOOKMARK_SECONDS
        cluster.loop.job_delay = self.rates.draw_delay
        cluster.loop.shuffles = block % SHUFFLED_EVERY == 0
        self._nodes = [f"node-{number}" for number in range(shape.nodes)]
        cluster.load_initial_objects(build_setup_contents(shape.nodes))
        election = {"leader_elect": shape.leader_election, "lease_timing": LEASE_TIMING}
        for number in range(shape.servers):
            cluster.add_server(f"server-{number}")
        for number in range(shape.schedulers):
            cluster.add_scheduler(f"scheduler-{number}", **election)
        cluster.add_controllers("controllers", **election)
        for name in self._nodes:
            cluster.add_node(name, objects.DRIVERS)
        self._digest = hashlib.blake2b(digest_size=8)
        self._observe()
        cluster.start_all()
        cluster.run(START_SECONDS)

    def _observe(self) -> None:
        cluster = self.cluster
        cluster.network.conditions = cluster.store.conditions = self.rates
        cluster.network.on_chunk = self.watches.observe_chunk
        cluster.store.listeners += (self.watches.observe_commit, self._on_commit)
        for machine in cluster.machines.values():
            machine.observer, machine.conditions = self.model, self.rates

    def _on_commit(self, batch: Any) -> None:
        self._digest.update(b"%d %d" % (self.cluster.loop.steps, batch.revision))
        for event in batch.events:
            self._digest.update(event.key)
        self.model.observe_commit(batch)
        if self.model.violations:
            self.cluster.loop.stop()

    def run(self, schedule: Schedule) -> Outcome:
        """Run a schedule to its end, or to the first violation."""
        cluster, random = self.cluster, Random(f"run {schedule.seed}")
        cluster.random.setstate(random.getstate())
        cluster.loop.reseed(random.getrandbits(64))
        begun = cluster.loop.time()
        # Long schedules outlive the history that servers keep.
        self.watches.may_skip = schedule.seconds > HISTORY_SECONDS or any(
            step.name == "compact store" for step in schedule.steps
        )
        self.workload = Workload(cluster)
        self.injector = FaultInjector(cluster, self.rates)
        for step in schedule.steps:
            cluster.loop.call_at(begun + step.time, self._begin, step)
        phases = [lambda: cluster.run(schedule.seconds), lambda: self._repair(schedule), self._clean_up]
        for phase in [*phases, self._probe] if schedule.seed % PROBE_EVERY == 0 else phases:
            try:
                phase()
            except TimeStandsStillError as stuck:
                self.model.fail(str(stuck))
            self._collect_failures()
            if self.model.violations:
                break
        return Outcome(
            schedule.seed,
            self.model.violations,
            list(self.model.trace),
            cluster.loop.steps,
            self.model.commits,
            cluster.loop.time() - begun,
            self._digest.hexdigest(),
            self.rates.happened,
        )

    def _begin(self, step: ScheduledStep) -> None:
        self.model.note(f"-- {step}")
        (self.injector if step.name in FAULT_STEPS else self.workload).begin(step)

    def _collect_failures(self) -> None:
        for failure in self.cluster.loop.failures:
            self.model.fail(f"unhandled: {failure.get('message')}: {failure.get('exception')!r}")
        for service in self.cluster.services.values():
            if service.task is not None and service.is_alive and service.task.done():
                self.model.fail(f"{service.name} has ended: {service.task.exception()!r}")

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        """Let an administrator do something, and wait for it."""
        failures: list[Exception] = []

        async def attempt() -> None:
            try:
                await work
            except CALL_ERRORS as failed:
                failures.append(failed)

        task = self.cluster.loop.spawn(self.cluster.loop.outside, attempt())
        for _ in range(12):
            self.cluster.run(5.0)
            if task.done() or self.model.violations:
                break
        else:
            self.model.fail("a request of the administrator is not answered")
        if task.done():
            task.result()
        if failures:
            self.model.fail(f"a request of the administrator failed: {failures[0]}")

    def _rest(self, seconds: float, why: str) -> None:
        """Wait until nothing but heartbeats is written for some seconds."""
        model, end = self.model, self.cluster.loop.time() + MAX_REST_SECONDS
        while not model.violations:
            before = model.last_activity
            self.cluster.run(seconds)
            if model.last_activity == before:
                return
            if self.cluster.loop.time() > end:
                model.fail(f"the cluster does not come to rest {why}")

    def _repair(self, schedule: Schedule) -> None:
        self.model.note("-- all faults end")
        self.injector.end_all()
        self.cluster.run(3.0)
        names = {step.name for step in schedule.steps}
        if names & NEEDS_REPAIR:
            self._do(self.workload.repair_cluster())
        self._rest(BACKOFF_SECONDS if names & FAULT_STEPS.keys() else REST_SECONDS, "after the faults")
        if not self.model.violations:
            self.model.violations += find_stuck_objects(self.model, self.cluster)

    def _clean_up(self) -> None:
        self.model.note("-- everything is deleted")
        self._do(self.workload.delete_everything())
        self._rest(REST_SECONDS, "after everything was deleted")
        if not self.model.violations:
            self.model.violations += find_leftovers(self.model, self.cluster)

    def _probe(self) -> None:
        self.model.note("-- a last pod")
        self._do(self.workload.create_probe())
        self.cluster.run(10.0)
        for pod in self.model.pods.values():
            if pod.status.phase != "Running" and not self.model.violations:
                why = [condition.message for condition in pod.status.conditions]
                self.model.fail(f"the last pod does not run: {why}")


@lru_cache(maxsize=4)
def build_setup_contents(nodes: int) -> tuple[tuple[bytes, bytes], ...]:
    """Let a server create the objects of the set-up, and return what it stored."""
    cluster = SimulatedCluster(nodes)
    try:
        cluster.load_initial_objects()
        cluster.add_server("server")
        cluster.start_all()
        cluster.run(1.0)
        known = {entry.key for entry in complete(cluster.store.contents.range(b"")).entries}

        async def create() -> None:
            client = cluster.build_admin()
            for document in objects.build_setup([f"node-{number}" for number in range(nodes)]):
                await client.create(document)

        task = cluster.loop.spawn(cluster.loop.outside, create())
        cluster.run(5.0)
        task.result()
        page = complete(cluster.store.contents.range(b""))
        return tuple((entry.key, entry.value) for entry in page.entries if entry.key not in known)
    finally:
        cluster.close()


def run_schedule(schedule: Schedule, *, keep_all: bool = False) -> Outcome:
    """Run a schedule on a new cluster; `keep_all` keeps the whole trace."""
    with open_directory():
        run = ScheduleRun(schedule.shape, schedule.block)
        if keep_all:
            run.model.trace = deque(run.model.trace)
        return run.run(schedule)


@contextmanager
def open_directory(contents: Path | None = None) -> Iterator[None]:
    """Work in a new directory in memory, with a copy of the contents of another."""
    memory = Path("/dev/shm")
    directory = tempfile.mkdtemp(prefix="dray-simulated-", dir=memory if memory.is_dir() else None)
    before = Path.cwd()
    if contents is not None:
        shutil.copytree(contents, directory, dirs_exist_ok=True)
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)
        shutil.rmtree(directory, ignore_errors=True)
