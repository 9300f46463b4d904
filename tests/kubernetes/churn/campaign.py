"""The churn itself: epochs of random steps and kills, each followed by a pause in which everything settles.

An epoch is a stretch of steps in which programs are killed, a quiet point at which nothing may be stuck, the
deletion of everything, and some scenarios of the differential suite compared with the answers on record.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dray.api.json_text import read_json
from dray.client.errors import ClientError
from dray.client.transport import TransportRequest
from tests.differential.cluster_side import ClusterSide, UnusableClusterError
from tests.differential.comparison import compare
from tests.differential.recording import Recording
from tests.differential.scenario import Scenario
from tests.faults.ledger.api import Api
from tests.kubernetes.churn.invariants import DeviceHolders, Objects, find_stuck
from tests.kubernetes.churn.kubelets import SimulatedKubelets
from tests.kubernetes.churn.objects import build_path
from tests.kubernetes.churn.planes import CONTROLLERS, SCHEDULER, SERVER, ChurnPlane
from tests.kubernetes.churn.workload import Workload

SETTLES_IN = 120.0
"""Seconds after which all has settled, also pods of a node that is gone (40) and new leaders (15)."""
CHECKED = (
    "pods",
    "resourceclaims",
    "namespaces",
    "deployments",
    "statefulsets",
    "daemonsets",
    "jobs",
    "cronjobs",
    "replicasets",
)
RACES = ("waiting: a node that can take no pods",)
"""Scenarios that create a pod and cordon its node at once: what comes of it depends on who is faster."""
ATTEMPTS = 3
"""How often a scenario with another outcome than the recorded one runs: under load some wait too briefly."""
_CLAIMS = build_path("resourceclaims")


@dataclass(frozen=True)
class ChurnOptions:
    """How long, how fast, and how often something is killed."""

    seconds: float = 3600.0
    seed: int = 1
    pause: float = 0.4
    """Seconds between two steps, on average."""
    epoch: float = 150.0
    """Seconds of steps between two quiet points."""
    scenarios: float = 120.0
    """Seconds of scenarios after each quiet point."""
    kill_every: float = 45.0


@dataclass
class ChurnResult:
    """What a run came to."""

    seconds: float = 0.0
    epochs: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    lost_leases: Counter[str] = field(default_factory=Counter)
    """Programs that ended because they could not renew their lease while the server was away."""
    outages: list[float] = field(default_factory=list)
    """Seconds from each kill of the server until it answers again."""
    refusals: Counter[str] = field(default_factory=Counter)
    pods_started: int = 0
    allocations: int = 0
    scenarios: int = 0
    repeated: list[str] = field(default_factory=list)
    """Scenarios that had to run again, with the first difference each time."""
    findings: list[str] = field(default_factory=list)
    """Whatever must not be: stuck objects, devices with two holders, scenarios with another outcome."""


class Campaign:
    """One run on a control plane."""

    def __init__(self, plane: ChurnPlane, options: ChurnOptions, scenarios: Sequence[Scenario]) -> None:
        self._plane, self._options = plane, options
        self._rng = random.Random(options.seed)
        self._api = Api(str(plane.kubeconfig))
        self._kubelets = SimulatedKubelets(self._api)
        self._workload = Workload(self._api, self._kubelets, random.Random(options.seed + 1))
        self._holders = DeviceHolders()
        self._scenarios = list(scenarios)
        self._rng.shuffle(self._scenarios)
        self._recording: Recording | None = None
        self.result = ChurnResult()

    def compare_with(self, recording: Recording) -> None:
        """Run scenarios, too, and compare them with these answers."""
        self._recording = recording
        self._scenarios = [each for each in self._scenarios if recording.has(each) and each.name not in RACES]

    async def run(self) -> ChurnResult:
        begun = time.monotonic()
        await self._wait_for_server()
        tasks = [asyncio.create_task(self._kubelets.run()), asyncio.create_task(self._follow_claims())]
        try:
            while time.monotonic() - begun < self._options.seconds:
                await self._run_epoch()
                self.result.seconds = time.monotonic() - begun
                self._collect()
                print(self._format_progress(), flush=True)
                for task in tasks:
                    if task.done():
                        task.result()
        finally:
            self.result.seconds = time.monotonic() - begun
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._collect()
            await self._api.close()
        return self.result

    def _collect(self) -> None:
        self.result.steps = self._workload.steps
        self.result.refusals = self._workload.refusals
        self.result.pods_started = self._kubelets.started
        self.result.allocations = self._holders.allocations
        for source in (self._kubelets.faults, self._holders.violations):
            self.result.findings += source
            source.clear()

    def _format_progress(self) -> str:
        result = self.result
        return (
            f"{result.seconds:.0f} s: epoch {result.epochs}, {sum(result.steps.values())} steps, "
            f"{sum(result.kills.values())} kills, {result.pods_started} pods, "
            f"{result.allocations} allocations, {result.scenarios} scenarios, {len(result.findings)} findings"
        )

    async def _wait_for_server(self) -> None:
        while (await self._api.send("GET", "/version"))[0] != 200:
            await asyncio.sleep(0.5)

    async def _run_epoch(self) -> None:
        self.result.epochs += 1
        await self._workload.furnish()
        await self._take_steps()
        await self._wait_for_server()
        await self._check_quiet("settled")
        await self._check_ledger()
        await self._workload.drain()
        await self._check_quiet("drained")
        await self._check_ledger()
        await self._workload.remove_nodes()
        if self._recording is not None:
            await self._run_scenarios(self._recording)

    async def _take_steps(self) -> None:
        end = time.monotonic() + self._options.epoch
        kill_at = time.monotonic() + self._options.kill_every
        while time.monotonic() < end:
            await self._workload.step()
            self._restart_ended()
            if time.monotonic() > kill_at:
                kill_at = time.monotonic() + self._options.kill_every
                await self._kill_something()
            await asyncio.sleep(self._rng.uniform(0, 2 * self._options.pause))

    def _restart_ended(self) -> None:
        """Start programs again that ended by themselves, as whoever runs them would.

        A leader that could not renew its lease for ten seconds, because the server was killed, has to end.
        """
        for name, program in self._plane.programs.items():
            if not program.has_ended:
                continue
            if re.search("(?i)leader ?election lost", program.read_log_end()):
                self.result.lost_leases[name] += 1
            else:
                self.result.findings.append(f"{name} ended by itself")
            program.start()

    async def _kill_something(self) -> None:
        name = self._rng.choice((SCHEDULER, CONTROLLERS, SERVER))
        self.result.kills[name] += 1
        begun = time.monotonic()
        await asyncio.to_thread(self._plane.kill, name)
        if name == SERVER:
            await self._wait_for_server()
            self.result.outages.append(round(time.monotonic() - begun, 1))

    async def _check_quiet(self, when: str) -> None:
        """Wait until nothing is stuck, and note what still is in the end."""
        end = time.monotonic() + SETTLES_IN
        while True:
            self._restart_ended()
            objects = await self._read_objects()
            stuck = find_stuck(objects, self._kubelets.nodes) if objects else ["the server does not answer"]
            if when == "drained" and not stuck:
                stuck = [f"{len(objects[plural])} {plural}" for plural in CHECKED if objects[plural]]
            if not stuck:
                return
            if time.monotonic() > end:
                found = [f"epoch {self.result.epochs}, {when}: {each}" for each in stuck]
                self.result.findings += found
                print("\n".join(found), flush=True)
                return
            await asyncio.sleep(1)

    async def _read_objects(self) -> Objects:
        """Everything that is checked, of the namespaces of this run."""
        objects: Objects = {}
        for plural in CHECKED:
            code, answer = await self._api.send("GET", build_path(plural))
            if code != 200:
                return {}
            field_name = "name" if plural == "namespaces" else "namespace"
            objects[plural] = [
                item for item in answer["items"] if item["metadata"][field_name].startswith("churn-")
            ]
        return objects

    async def _check_ledger(self) -> None:
        if not self._plane.has_ledger:
            return
        code, report = await self._api.send("GET", "/dray/ledger")
        if code != 200 or not report["agrees"]:
            self.result.findings.append(f"the ledger does not agree with the claims: {report}")

    async def _run_scenarios(self, recording: Recording) -> None:
        end = time.monotonic() + self._options.scenarios
        side = ClusterSide(str(self._plane.kubeconfig))
        try:
            while time.monotonic() < end and self._scenarios:
                self.result.scenarios += 1
                self.result.findings += await self._compare_scenario(side, recording, self._scenarios.pop())
        except (ClientError, UnusableClusterError) as failed:
            self.result.findings.append(f"scenario {self.result.scenarios}: {failed}")
        finally:
            with suppress(ClientError):
                await side.close()

    async def _compare_scenario(
        self, side: ClusterSide, recording: Recording, scenario: Scenario
    ) -> list[str]:
        """The differences that no rule explains, after some attempts."""
        expected = await recording.run_scenario(scenario)
        wrong: list[str] = []
        for _ in range(ATTEMPTS):
            result = compare(scenario, expected, await side.run_scenario(scenario))
            wrong = [f"{scenario.name}: {each}" for each in result.wrong]
            if not wrong:
                break
            self.result.repeated.append(wrong[0][:300])
        return wrong

    async def _follow_claims(self) -> None:
        """Give every event of claims to the check of holders; start from a list when some are lost."""
        while True:
            code, answer = await self._api.send("GET", _CLAIMS)
            if code != 200:
                await asyncio.sleep(0.5)
                continue
            self._holders.reset(answer["items"])
            version = answer["metadata"]["resourceVersion"]
            while version:
                version = await self._watch_claims(version)

    async def _watch_claims(self, version: str) -> str:
        """The version up to which the events were seen; none when a list has to be read again."""
        query = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true"}
        rest = b""
        try:
            request = TransportRequest("GET", _CLAIMS, query)
            async with self._api.transport.stream(request, idle_timeout=120) as stream:
                if stream.code != 200:
                    return ""
                async for chunk in stream.chunks:
                    *lines, rest = (rest + chunk).split(b"\n")
                    for event in map(read_json, lines):
                        if event["type"] == "ERROR":
                            return ""
                        version = str(event["object"]["metadata"]["resourceVersion"])
                        self._take(event)
        except ClientError:
            await asyncio.sleep(0.5)
        return version

    def _take(self, event: Any) -> None:
        if event["type"] != "BOOKMARK":
            self._holders.apply(event["type"], event["object"])
