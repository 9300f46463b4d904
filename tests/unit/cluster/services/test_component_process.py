"""Components in a process of their own: start, metrics, ends of all kinds, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dray.clock import ManualClock
from dray.cluster.services import component_process
from dray.cluster.services.api_server import RunningServer, ServerProcessOptions, open_server
from dray.cluster.services.component_messages import decode_options, encode_options
from dray.cluster.services.component_process import (
    ComponentProcess,
    ComponentProcessError,
    ProcessComponent,
)
from dray.cluster.services.components import ComponentOptions
from dray.gates import GateSet
from dray.placement.profile import parse_placement_options
from dray.tasks import cancel_and_wait
from dray.telemetry.logs import StructuredLogger, build_silent_logger

OPTIONS = ComponentOptions(leader_elect=False)
BOTH = (
    ProcessComponent("scheduler", "dray:scheduler", OPTIONS),
    ProcessComponent("controllers", "dray:controller", replace(OPTIONS, upkeep=True)),
)
PROFILE = {
    "schedulerName": "other",
    "scoring": "most",
    "weights": {"TaintToleration": 5},
    "disabled": ["NodeName"],
}

Work = Callable[[RunningServer, ComponentProcess, "asyncio.Task[None]"], Awaitable[None]]


def played(folder: Path, work: Work, components: tuple[ProcessComponent, ...] = BOTH) -> list[str]:
    """Run a process until it is ready, then do the work; returns the log."""
    lines: list[str] = []

    def take(line: bytes) -> bool:
        lines.append(line.decode())
        return True

    async def main() -> None:
        async with (
            asyncio.timeout(90),
            open_server(ServerProcessOptions(folder, "memory:", port=0)) as server,
        ):
            process = ComponentProcess(server.app, components, StructuredLogger(take, ManualClock()))
            task = asyncio.create_task(process.run())
            ready = asyncio.create_task(process.ready.wait())
            await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
            try:
                await work(server, process, task)
            finally:
                await cancel_and_wait(task, ready)
            if process.pid:
                with pytest.raises(ProcessLookupError):
                    os.kill(process.pid, 0)

    asyncio.run(main())
    return lines


def list_descriptors() -> set[str]:
    return {entry for entry in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{entry}")}


def test_it_works_tells_its_metrics_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async def work(server: RunningServer, process: ComponentProcess, task: asyncio.Task[None]) -> None:
        server.metrics.registry.register(process.metrics)
        server.metrics.add_refresh(process.metrics.refresh)
        await server.metrics.refresh()
        text = server.metrics.render().decode()
        assert "\ndray_scheduler_" in text
        assert "\ndray_controller_" in text
        assert text.count("# TYPE process_resident_memory_bytes ") == 1
        assert not task.done()

    played(tmp_path / "a", work)  # loads what is loaded once
    before = list_descriptors()
    played(tmp_path / "b", work)
    assert list_descriptors() == before


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_its_end_is_an_error_that_says_how(tmp_path: Path, how: signal.Signals) -> None:
    async def work(server: RunningServer, process: ComponentProcess, task: asyncio.Task[None]) -> None:
        os.kill(process.pid, how)
        expected = f"process {process.pid} was ended by signal {how.value}"
        with pytest.raises(ComponentProcessError, match=expected):
            await task

    played(tmp_path, work)


def test_one_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(component_process, "STOP_SECONDS", 0.1)

    async def work(server: RunningServer, process: ComponentProcess, task: asyncio.Task[None]) -> None:
        os.kill(process.pid, signal.SIGSTOP)
        await cancel_and_wait(task)

    played(tmp_path, work)


def test_the_metrics_of_one_that_does_not_answer_are_the_last_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(server: RunningServer, process: ComponentProcess, task: asyncio.Task[None]) -> None:
        await process.metrics.refresh()
        before = [family.name for family in process.metrics.collect()]
        assert before
        os.kill(process.pid, signal.SIGSTOP)
        monkeypatch.setattr(component_process, "METRICS_SECONDS", 0.05)
        await process.metrics.refresh()
        assert [family.name for family in process.metrics.collect()] == before
        os.kill(process.pid, signal.SIGCONT)

    played(tmp_path, work)


def test_its_log_lines_are_those_of_the_cluster(tmp_path: Path) -> None:
    async def work(server: RunningServer, process: ComponentProcess, task: asyncio.Task[None]) -> None:
        assert not task.done()

    off = GateSet.parse("AllAlpha=false,AllBeta=false,DynamicResourceAllocation=false")
    switched_off = ProcessComponent("controllers", "dray:controller", replace(OPTIONS, gates=off))
    lines = played(tmp_path, work, (switched_off,))
    assert [line for line in lines if "switched off by its feature gates service=controller" in line]


def test_options_arrive_as_they_were_given() -> None:
    log = build_silent_logger()
    options = ComponentOptions(
        gates=GateSet.parse("DRAPrioritizedList=false"),
        profile=parse_placement_options(PROFILE),
        lease_name="a-lease",
        search_seconds=1.5,
        upkeep=True,
        node_silence=7,
        stand_back=True,
        log=log,
    )
    assert decode_options(encode_options(options), log) == options
    assert decode_options(encode_options(OPTIONS), log) == replace(OPTIONS, log=log)
