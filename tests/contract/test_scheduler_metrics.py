"""The scheduler's metrics while it works."""

from __future__ import annotations

import re

import pytest

from dray.scheduler import pod_placer
from dray.scheduler.scheduling_loop import Scheduler
from tests.contract.controlled import by_name, pod
from tests.contract.scheduled import asks, exactly, impatient, place

__all__ = ["impatient"]

PLUGIN = "scheduler_plugin_execution_duration_seconds_count"


def number(scheduler: Scheduler, name: str, **labels: str) -> float | None:
    """One number; None when it is not there."""
    for line in scheduler.metrics.render().decode().splitlines():
        found = re.fullmatch(r"(\w+)(?:{(.*)})? (\S+)", line)
        if found is None or found[1] != name:
            continue
        said = dict(re.findall(r'(\w+)="([^"]*)"', found[2] or ""))
        if labels.items() <= said.items():
            return float(found[3])
    return None


@pytest.mark.req("K5075-161", "K5075-167", "K4816-103")
async def test_waiting_pods_and_the_time_of_plugins_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(pod_placer, "PLUGIN_TIMING_INTERVAL", 1)
    async with place("inside", tmp_path) as here, here.scheduling() as scheduler:
        await here.cluster(1, devices=1)
        await here.make(asks(exactly(), name="c", made=False), asks(exactly(), name="d", made=False))
        await here.make(pod("p", by_name("c")))
        await here.until_bound("p")
        await here.make(pod("q", by_name("d")), pod("r", by_name("missing")))
        await here.until_refused("q", "d")
        await here.until_refused("r", "missing")
        for phase in ("PreFilter", "Filter", "PreBind"):
            assert number(scheduler, PLUGIN, plugin="DynamicResources", extension_point=phase)
        labels = {"plugin": "DynamicResources", "profile": "default-scheduler"}
        assert number(scheduler, "scheduler_unschedulable_pods", **labels) == 2
        assert number(scheduler, "scheduler_pending_pods", queue="unschedulable") == 1
        assert number(scheduler, "scheduler_pending_pods", queue="gated") == 1
        attempts = "scheduler_schedule_attempts_total"
        assert number(scheduler, attempts, result="scheduled", profile="default-scheduler") == 1
        assert number(scheduler, attempts, result="unschedulable", profile="default-scheduler") == 1
        assert number(scheduler, "dray_scheduler_searches_total", outcome="Solved") == 1
        assert number(scheduler, "dray_scheduler_in_flight_pods") == 0
        for cache in ("device_contents", "shapes", "views", "claims"):
            assert number(scheduler, "dray_scheduler_cache_entries", cache=cache)
        await here.delete("q")
        await here.delete("r")
        await here.until(lambda: length(scheduler), lambda count: count == 0)
        assert not number(scheduler, "scheduler_unschedulable_pods", **labels)


async def length(scheduler: Scheduler) -> int:
    return len(scheduler._queue)
