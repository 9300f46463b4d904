"""Checkpoint, CDI files and devices agree, however prepare, unprepare, crashes and reboots are mixed.

After a prepare that succeeded there is one CDI file and the device is set up; a second prepare gives the same
reply. After an unprepare that succeeded there is neither. A device is never set up for two claims, and when
everything was unprepared nothing is left.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.meta import ObjectMeta
from dray.api.resource import (
    AllocationResult,
    ConsumerReference,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from dray.client.client import Client
from dray.client.rest_client import ClientOptions
from dray.client.timing import TimeSource
from dray.clock import ManualClock
from dray.driver import Claim, Driver, Ready
from dray.driver import metrics as m
from dray.driver.async_driver import AsyncDriver
from dray.driver.preparing.cdi_files import ClaimCdiFiles
from dray.driver.preparing.device_status import DeviceStatusWriter
from dray.driver.preparing.prepared_claims import FAIL_POINTS, PreparedClaimStore
from dray.driver.preparing.prepared_records import PreparedClaimRecord
from dray.driver.preparing.preparer import ClaimPreparer, PrepareResult, RequestedClaim
from dray.telemetry.logs import build_silent_logger
from dray.telemetry.metrics import MetricsRegistry
from tests.effort import effort
from tests.support.in_process_transport import InProcessTransport

NAME = "gpu.example.com"
DEVICES = {"a": "gpu-0", "b": "gpu-1", "c": "gpu-0"}
"""The device of each claim: two of them got the same one, as after a forced deletion."""
INSIDE = ("inside prepare", "inside unprepare")


class Crash(BaseException):
    """The process is gone."""


class Hardware(Driver):
    """Devices that know for whom they are set up, and forget it at a reboot."""

    name = NAME

    def __init__(self, world: World) -> None:
        self._world = world

    def prepare(self, claim: Claim) -> Iterable[Ready]:
        for got in claim.devices:
            owner = self._world.set_up.setdefault(got.device, claim.name)
            if owner != claim.name:
                self._world.clashes.append((got.device, owner, claim.name))
        self._world.passing(INSIDE[0])
        return [Ready(got, env={"GPU": got.device}) for got in claim.devices]

    def unprepare(self, claim: Claim) -> None:
        for got in claim.devices:
            if self._world.set_up.get(got.device) == claim.name:
                del self._world.set_up[got.device]
        self._world.passing(INSIDE[1])


class Api:
    """Claims as the API would show them; all of them allocated."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def get_claim(self, namespace: str, name: str) -> ResourceClaim:
        result = DeviceRequestAllocationResult(request="r", driver=NAME, pool="p", device=DEVICES[name])
        return ResourceClaim(
            metadata=ObjectMeta(name=name, namespace=namespace, uid=name),
            status=ResourceClaimStatus(
                allocation=AllocationResult(devices=DeviceAllocationResult(results=(result,))),
                reserved_for=(
                    ConsumerReference(resource="pods", name="p", uid=f"pod-{self._world.pods[name]}"),
                ),
            ),
        )

    async def list_consumers(self, record: PreparedClaimRecord) -> tuple[str, ...]:
        return ()


class World:
    """A node with a driver that may fall over at any place."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.set_up: dict[str, str] = {}
        self.pods = dict.fromkeys(DEVICES, 0)
        self.clashes: list[tuple[str, str, str]] = []
        """Devices that were set up for a claim while they were set up for another."""
        self.boots = 1
        self.fatal = ""
        self.replies: dict[str, Any] = {}
        """The reply of every claim that is prepared, in this boot."""
        self.given_back: dict[str, int] = {}
        """Claims that were given back in this boot, and the pod they were reserved for."""
        self.begun: set[str] = set()
        """Claims that something was done for, however far it got."""
        self.work = self._started()

    def passing(self, place: str) -> None:
        if place == self.fatal:
            raise Crash

    def _started(self) -> ClaimPreparer:
        hardware, log = Hardware(self), build_silent_logger()
        hardware.node = "n"
        self.author = AsyncDriver(hardware)
        options = ClientOptions(time_source=TimeSource(clock=ManualClock()))
        client = Client(InProcessTransport(None, "nobody", ()), options=options)  # type: ignore[arg-type]
        store = PreparedClaimStore(
            self.root / "state", ClaimCdiFiles(self.root / "cdi", NAME), f"boot-{self.boots}", self.passing
        )
        store.recover(0.0)
        status_writer = DeviceStatusWriter(client, NAME, "n", log)
        metrics = MetricsRegistry(m.MEASURES)
        preparer = ClaimPreparer(self.author, client, store, status_writer, log, metrics)
        preparer.lookup = Api(self)  # type: ignore[assignment]
        return preparer

    def restart(self) -> None:
        self.fatal = ""
        self.author.close()
        self.work = self._started()

    def reboot(self) -> None:
        self.boots += 1
        self.set_up.clear()
        self.replies.clear()
        self.given_back.clear()
        self.restart()
        assert self.files() == set()

    def files(self) -> set[str]:
        folder = self.root / "cdi"
        return {each.name for each in folder.iterdir()} if folder.is_dir() else set()

    async def do(self, what: str, name: str, fatal: str) -> None:
        if what == "reboot":
            self.reboot()
        elif what == "another pod":
            self.pods[name] += 1
        else:
            self.fatal = fatal
            try:
                outcome = (await getattr(self.work, what)([RequestedClaim(name, "default", name)]))[name]
            except Crash:
                self._fell_over(what, name)
            else:
                getattr(self, f"_after_{what}")(name, outcome)
        self.fatal = ""
        assert {f"{NAME}_{each}.json" for each in self.replies} <= self.files()
        assert self.clashes == []

    def _fell_over(self, what: str, name: str) -> None:
        # How far it got is not known; only that somebody who was prepared and not touched still is.
        if what == "unprepare":
            self.replies.pop(name, None)
        self.given_back.pop(name, None)
        self.begun.add(name)
        self.restart()

    def _after_prepare(self, name: str, outcome: PrepareResult) -> None:
        holder = self.set_up.get(DEVICES[name])
        if outcome.error:
            late = self.given_back.get(name) == self.pods[name]
            held = any(DEVICES[each] == DEVICES[name] for each in self.begun - {name})
            # A claim that fell over while it was given back may turn out to be late.
            assert late or held or name in self.begun, outcome.error
            assert name not in self.replies
            if "too late" in outcome.error:
                self._gone(name)
            return
        assert self.given_back.get(name) != self.pods[name], "this was late"
        assert holder == name
        assert self.replies.setdefault(name, outcome.devices) == outcome.devices
        self.begun.add(name)

    def _after_unprepare(self, name: str, outcome: PrepareResult) -> None:
        assert outcome.error == ""
        assert self.set_up.get(DEVICES[name]) != name
        assert f"{NAME}_{name}.json" not in self.files()
        if name in self.begun:
            self.given_back[name] = self.pods[name]
        self._gone(name)

    def _gone(self, name: str) -> None:
        self.replies.pop(name, None)
        self.begun.discard(name)


steps = st.lists(
    st.tuples(
        st.sampled_from(("prepare", "prepare", "unprepare", "unprepare", "reboot", "another pod")),
        st.sampled_from(tuple(DEVICES)),
        st.sampled_from(("", "", *FAIL_POINTS, *INSIDE)),
    ),
    min_size=1,
    max_size=14,
)


@given(steps)
@effort(0.8)
@pytest.mark.req("K3063-134", "K3063-146")
def test_checkpoint_files_and_devices_agree_whatever_happens(steps: list[tuple[str, str, str]]) -> None:
    async def run(root: Path) -> None:
        world = World(root)
        for what, name, fatal in steps:
            await world.do(what, name, fatal)
        for name in DEVICES:
            await world.do("unprepare", name, "")
        assert world.files() == set()
        assert world.set_up == {}
        assert list((root / "state" / "prepared").iterdir()) == []
        world.author.close()

    root = Path(tempfile.mkdtemp(prefix="dray-"))
    try:
        asyncio.run(run(root))
    finally:
        shutil.rmtree(root)


@pytest.mark.parametrize("then", ["prepare", "unprepare"])
@pytest.mark.parametrize("place", [*FAIL_POINTS, *INSIDE])
def test_after_a_crash_anywhere_either_call_restores_consistency(place: str, then: str) -> None:
    async def run(root: Path) -> None:
        world = World(root)
        what = "unprepare" if "unprepare" in place else "prepare"
        if what == "unprepare":
            await world.do("prepare", "a", "")
        await world.do(what, "a", place)
        await world.do("another pod", "a", "")
        await world.do(then, "a", "")
        there = then == "prepare"
        assert world.files() == ({f"{NAME}_a.json"} if there else set())
        assert world.set_up == ({DEVICES["a"]: "a"} if there else {})
        world.author.close()

    root = Path(tempfile.mkdtemp(prefix="dray-"))
    try:
        asyncio.run(run(root))
    finally:
        shutil.rmtree(root)
