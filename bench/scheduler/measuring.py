"""Measures one workload on one cluster, whichever it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from bench.lean import Address
from bench.scheduler.calls import CallCounter, Calls
from bench.scheduler.counts import Counts, read_counts
from bench.scheduler.figures import Figures
from bench.scheduler.load import Load, Refused, loading, tell
from bench.scheduler.workloads import Workload


class ResourceUsage(Protocol):
    """What the processes of a cluster use."""

    def megabytes(self) -> float: ...

    def processor_seconds(self) -> float: ...


async def measure(
    workload: Workload,
    address: Address,
    seconds: float,
    usage: ResourceUsage | None = None,
    *,
    counted: bool = False,
    calls: CallCounter | None = None,
) -> Figures:
    """Put the load of a workload on a cluster; `counted` also reads the counts of its server.

    `calls` also counts function calls, in a cluster with a profiler.
    """
    tell(f"{workload.name}: preparing")
    try:
        async with loading(workload, address) as load:
            await load.prepare()
            tell(f"{workload.name}: measuring")
            before = await _read_counts(load) if counted else None
            called = calls.read() if calls is not None else Calls()
            used = usage.processor_seconds() if usage is not None else 0.0
            found = await load.steady(seconds) if workload.is_steady else await load.burst()
            if usage is not None:
                used = usage.processor_seconds() - used
                found = replace(found, megabytes=usage.megabytes(), processor_seconds=used)
            if calls is not None:
                found = replace(found, calls=calls.read() - called)
            if before is not None:
                found = replace(found, counts=await _read_counts(load) - before)
            return found
    except (Refused, OSError) as broken:
        return Figures(0, 0.0, (), (), trouble=str(broken))


async def _read_counts(load: Load) -> Counts:
    return read_counts((await load.sender.send("GET", "/metrics")).decode())
