"""A driver in a process of its own that kills itself at the point that a file names.

    python -m tests.faults.drivers.victim ROOT KUBECONFIG

Its devices are files in `ROOT/hardware`: a file exists while a device is set up, with the uid of its claim.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dray.client.connect import connect
from dray.clock import SystemClock
from dray.driver import Claim, Driver, DriverService, DriverServiceOptions, Ready, device
from dray.telemetry.logs import StructuredLogger, build_descriptor_sink

NAME, NODE, COUNT = "gpu.example.com", "node-a", 4
IN_PREPARE, IN_UNPREPARE = "prepare: in the middle of device set-up", "unprepare: in the middle of take-down"


def build_options(root: Path) -> DriverServiceOptions:
    """Build the options of the driver service, with all directories below `root`."""
    return DriverServiceOptions(
        node=NODE,
        plugins=root / "p",
        registry=root / "r",
        cdi=root / "cdi",
        boot_id="boot-1",
        fail_point=KillSwitch(root / "fatal"),
        log=StructuredLogger(build_descriptor_sink(2), SystemClock()),
    )


class KillSwitch:
    """Kills the process at the point that a file names."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __call__(self, place: str) -> None:
        if self._file.exists() and self._file.read_text() == place:
            os.kill(os.getpid(), signal.SIGKILL)


class Victim(Driver):
    """A driver whose devices are files."""

    name = NAME

    def __init__(self, root: Path) -> None:
        self._hardware = root / "hardware"
        self._hardware.mkdir(exist_ok=True)
        self._kill_switch = KillSwitch(root / "fatal")

    def devices(self) -> Iterable[Any]:
        return [device(f"gpu-{number}") for number in range(COUNT)]

    def prepare(self, claim: Claim) -> Iterable[Ready]:
        for position, got in enumerate(claim.devices):
            if position == len(claim.devices) - 1:
                self._kill_switch(IN_PREPARE)
            (self._hardware / got.device).write_text(claim.uid)
        return [Ready(got, env={"GPU": got.device, "CLAIM": claim.name}) for got in claim.devices]

    def unprepare(self, claim: Claim) -> None:
        for position, got in enumerate(claim.devices):
            if position == len(claim.devices) - 1:
                self._kill_switch(IN_UNPREPARE)
            (self._hardware / got.device).unlink(missing_ok=True)


async def main(root: Path, kubeconfig: str) -> None:
    """Run until killed."""
    async with connect(kubeconfig) as client:
        await DriverService(Victim(root), client, build_options(root)).run()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
