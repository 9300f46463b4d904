"""A driver in a process of its own that writes its calls to a journal; with the kit, or in plain grpcio.

python -m tests.faults.agents.driver kit|plain NAME ROOT KUBECONFIG BOOT
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dray.client.connect import connect
from dray.clock import SystemClock
from dray.driver import Claim, Driver, DriverService, DriverServiceOptions, Ready, device
from dray.telemetry.logs import StructuredLogger, build_descriptor_sink
from tests.e2e.plain_driver import PlainDriver, Ways
from tests.faults.agents.journal import tell, variable

NODE = "node-a"
DEVICES = 64


class Told(Driver):
    """Written with the kit."""

    name = "kit.example.com"

    def __init__(self, root: Path, boot: str) -> None:
        self._journal, self._boot = root / "journal", boot

    def devices(self) -> Iterable[Any]:
        return [device(f"dev-{number}") for number in range(DEVICES)]

    def prepare(self, claim: Claim) -> Iterable[Ready]:
        self._tell("prepare", claim)
        self._tell("prepared", claim)
        return [Ready(got, env={variable(self.name, claim.uid): self._boot}) for got in claim.devices]

    def unprepare(self, claim: Claim) -> None:
        self._tell("unprepare", claim)
        self._tell("unprepared", claim)

    def _tell(self, what: str, claim: Claim) -> None:
        tell(self._journal, "driver", self.name, what, claim.uid, self._boot)


class Plain(PlainDriver):
    """Not written with the kit: it writes every call to the journal and has no state but files."""

    boot = ""
    journal = Path()

    async def _ready(self, claim: Any) -> Iterable[tuple[str, str, str, str]]:
        self._note("prepare", claim.uid)
        (name,) = self._write_cdi(claim.uid, ["all"])
        self._note("prepared", claim.uid)
        return [("", NODE, "all", name)]

    def _write_cdi(self, uid: str, devices: list[str]) -> list[str]:
        assert self.ways.cdi is not None
        self.ways.cdi.mkdir(exist_ok=True)
        kind, file = f"{self.ways.name}/plain", self.ways.cdi / f"{self.ways.name}-{uid}.json"
        edits = {"env": [f"{variable(self.ways.name, uid)}={self.boot}"]}
        spec = {"cdiVersion": "0.5.0", "kind": kind, "devices": [{"name": uid, "containerEdits": edits}]}
        fresh = file.with_suffix(".fresh")
        fresh.write_text(json.dumps(spec))
        fresh.rename(file)
        return [f"{kind}={uid}"]

    def _give_back(self, uid: str) -> None:
        self._note("unprepare", uid)
        super()._give_back(uid)
        self._note("unprepared", uid)

    def _note(self, what: str, uid: str) -> None:
        tell(self.journal, "driver", self.ways.name, what, uid, self.boot)


async def plain(name: str, root: Path, boot: str) -> None:
    """Serve until killed."""
    (root / "p").mkdir(exist_ok=True)
    driver = Plain(Ways(name, root / "r", root / "p", root / "cdi"))
    driver.boot, driver.journal = boot, root / "journal"
    await driver.start()
    await asyncio.Event().wait()


async def kit(root: Path, kubeconfig: str, boot: str) -> None:
    """Serve until killed."""
    choices = DriverServiceOptions(
        node=NODE,
        plugins=root / "p",
        registry=root / "r",
        cdi=root / "cdi",
        boot_id=boot,
        log=StructuredLogger(build_descriptor_sink(2), SystemClock()),
    )
    async with connect(kubeconfig) as client:
        await DriverService(Told(root, boot), client, choices).run()


if __name__ == "__main__":
    how, called, where, file, booted = sys.argv[1:]
    work = plain(called, Path(where), booted) if how == "plain" else kit(Path(where), file, booted)
    asyncio.run(work)
