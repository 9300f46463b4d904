"""Runs the soak: periods of work and rest on a simulated cluster, with a check after each.

    python -m tests.soak.soak --hours 24 --seed 1
    python -m tests.soak.soak --small

Every check compares the ledger with the claims: the number of differences must be zero. At the end it says
what has grown, and the exit code is 1 when something has. The seed repeats the run.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from dray.client.client import Client
from dray.client.transport import TransportRequest, TransportResponse
from tests.simulated.cluster import SimulatedCluster
from tests.soak.churn import NODES, Churn, ChurnOptions
from tests.soak.measurements import (
    GrowthLimits,
    SoakSample,
    compute_slope,
    count_types,
    find_growth,
    take_sample,
)
from tests.soak.small_bounds import lower_bounds


@dataclass(frozen=True)
class SoakOptions:
    """The size of a soak."""

    seed: int = 1
    hours: float = 24.0
    work_minutes: float = 22.0
    rest_minutes: float = 8.0
    """More than the history of the store lasts."""
    churn: ChurnOptions = field(default_factory=ChurnOptions)
    delete_events: bool = False
    """Whether events are deleted at each check; a soak that is shorter than they last needs it."""
    on_sample: Callable[[SoakSample], None] = lambda _sample: None
    leak: Callable[[TransportRequest], None] | None = None
    """A planted leak, called for each request."""
    limits: GrowthLimits = field(default_factory=GrowthLimits)


@dataclass
class SoakResult:
    """What a soak found."""

    samples: list[SoakSample] = field(default_factory=list)
    drift: int = 0
    """Differences between ledger and claims, over all checks."""
    failures: list[Any] = field(default_factory=list)
    new_types: Counter[str] = field(default_factory=Counter)
    """Objects that there are more of than in the middle."""


class Soak:
    """One simulated cluster under steady work."""

    def __init__(self, options: SoakOptions) -> None:
        self.options = options
        gc.disable()  # the cluster that creates the initial objects is dropped in the middle of its work
        self.cluster = cluster = SimulatedCluster(options.seed)
        cluster.load_initial_objects()
        gc.enable()
        cluster.add_server("server-a")
        cluster.add_server("server-b")
        cluster.add_scheduler("scheduler-a")
        cluster.add_scheduler("scheduler-b")
        cluster.add_controllers("controllers")
        for node in NODES:
            cluster.add_node(node)
        self.operations = 0
        self.result = SoakResult()
        cluster.network.on_response = self._count
        self._client: Client = cluster.build_admin()
        self.churn = Churn(cluster, Random(options.seed), options.churn)

    def _count(self, _client: str, request: TransportRequest, _response: TransportResponse) -> None:
        self.operations += 1
        if self.options.leak is not None:
            self.options.leak(request)

    def run(self) -> SoakResult:
        """Run all periods, with small caches, so that they are soon full."""
        with lower_bounds():
            return self._run_periods()

    def _run_periods(self) -> SoakResult:
        options, cluster = self.options, self.cluster
        cluster.start_all()
        cluster.run(5.0)
        self._complete(self.churn.prepare())
        begun = cluster.loop.time()
        periods = max(4, round(options.hours * 60 / (options.work_minutes + options.rest_minutes)))
        types: Counter[str] = Counter()
        for number in range(periods):
            self.churn.restarts_servers = number < periods // 2
            self._run_period()
            hours = (cluster.loop.time() - begun) / 3600
            sample = take_sample(cluster, hours, self.operations)
            self.result.samples.append(sample)
            options.on_sample(sample)
            if number == periods // 2:
                types = count_types()
        self.result.new_types = count_types() - types
        self.result.failures = list(cluster.loop.failures)
        cluster.close()
        return self.result

    def _run_period(self) -> None:
        options, cluster = self.options, self.cluster
        self.churn.start()
        cluster.run(options.work_minutes * 60)
        self.churn.stop()
        while not self.churn.is_stopped:
            cluster.run(10.0)
        self._complete(self.churn.clean_up())
        cluster.run(options.rest_minutes * 60)
        self._complete(self._check_ledger())
        if options.delete_events:
            self._complete(self.churn.delete_events())

    def _complete(self, work: Any) -> None:
        task = self.cluster.loop.spawn(self.cluster.loop.outside, work)
        for _ in range(1000):
            if task.done():
                task.result()
                return
            self.cluster.run(1.0)
        raise AssertionError("the cluster does not answer")

    async def _check_ledger(self) -> None:
        report = await self._client.get_json("/dray/ledger")
        self.result.drift += len(report["findings"])
        assert report["agrees"] is (not report["findings"])
        assert (report["claims"], report["preparations"], report["rows"]) == (0, 0, 0), report


SMALL: Final = SoakOptions(
    seed=3,
    hours=0.6,
    work_minutes=1.5,
    rest_minutes=5.5,
    churn=ChurnOptions(3, 1, 1, pause=6.0, restart_share=0.0),
    delete_events=True,
    limits=GrowthLimits(20_000.0, 4e6),
)
"""A soak for the test run. Caches are not full after so few operations, so more may be left behind; an
operation is a request, and a transaction leaves as much behind as all of its writes.
"""


def parse_options() -> SoakOptions:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="A simulated day of steady work: nothing may grow.")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--hours", type=float)
    parser.add_argument("--pause", type=float, default=60.0, help="seconds between two steps of a loop")
    parser.add_argument("--small", action="store_true", help="the size of the test run")
    parser.add_argument("--plant-leak", action="store_true", help="keep something of every request")
    chosen = parser.parse_args()
    options = SMALL if chosen.small else SoakOptions(churn=ChurnOptions(pause=chosen.pause))
    given = {name: value for name in ("seed", "hours") if (value := getattr(chosen, name)) is not None}
    if chosen.plant_leak:
        kept: list[object] = []
        given["leak"] = lambda request: kept.append([f"{request.path}{n}{len(kept)}" for n in range(50)])
    return replace(options, **given)


def main() -> int:
    """Run the soak from the command line."""
    options = parse_options()
    print(f"seed {options.seed}, {options.hours:g} simulated hours", flush=True)
    begun = time.monotonic()

    def show(sample: SoakSample) -> None:
        print(f"{sample} wall={time.monotonic() - begun:.0f}", flush=True)

    result = Soak(replace(options, on_sample=show)).run()
    half = result.samples[len(result.samples) // 2 :]
    for name in ("blocks", "resident"):
        print(f"{name}: {compute_slope(half, name):+.1f} per 1,000 operations")
    print(f"ledger and claims differed {result.drift} times; {len(result.failures)} failures of callbacks")
    growth = find_growth(result.samples, options.limits)
    for problem in growth:
        print(f"grown: {problem}")
    if growth:
        print(f"more than in the middle: {result.new_types.most_common(15)}")
    is_good = not (growth or result.drift or result.failures)
    print("nothing has grown" if is_good else f"failed; repeat with --seed {options.seed}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
