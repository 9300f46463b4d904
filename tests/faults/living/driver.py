"""A kit driver that writes a journal, as its author would write it; it can be broken on purpose.

    python -m tests.faults.living.driver JOURNAL BROKEN OPTIONS...

`BROKEN` is a key of `BROKEN` below, or `-`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from dray.driver import Claim, Driver, Ready, device, run
from dray.driver.preparing.call_waits import CallWaits
from dray.driver.preparing.claim_lookup import DriverClaimLookup
from dray.driver.preparing.preparer import ClaimPreparer, RequestedClaim
from tests.faults.living.journal import write_line
from tests.faults.living.processes import VARIABLE, format_variable, list_living

NAME = "gpu.example.com"
DEVICES_VARIABLE = "DRAY_LIVING_DEVICES"
DEVICES = 24
"""How many devices a node has, unless that variable says another number."""


class Watched(Driver):
    """Writes down who has a device when it is called for it."""

    name = NAME

    def __init__(self, journal: Path) -> None:
        self._journal = journal

    def devices(self) -> Iterable[Any]:
        count = int(os.environ.get(DEVICES_VARIABLE, DEVICES))
        return [device(f"dev-{number}") for number in range(count)]

    def prepare(self, claim: Claim) -> Iterable[Ready]:
        for got in claim.devices:
            users = [one for one in list_living(self._journal) if one.device == got.device]
            others = sorted({one.pid for one in users if one.uid != claim.uid})
            write_line(self._journal, "prepare", claim.uid, got.device, others)
        for got in claim.devices:
            write_line(self._journal, "prepared", claim.uid, got.device)
        return [
            Ready(got, env={VARIABLE: format_variable(self._journal, claim.uid, got.device)})
            for got in claim.devices
        ]

    def unprepare(self, claim: Claim) -> None:
        users = sorted({one.pid for one in list_living(self._journal) if one.uid == claim.uid})
        for got in claim.devices:
            write_line(self._journal, "unprepare", claim.uid, got.device, users)
            write_line(self._journal, "unprepared", claim.uid, got.device)


def record_calls(journal: Path) -> None:
    """Write down the calls of agents, too: those that the kit answers by itself never come to the author."""
    for name in ("prepare", "unprepare"):
        setattr(ClaimPreparer, name, _record(journal, name, getattr(ClaimPreparer, name)))


def _record(journal: Path, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    async def call(self: ClaimPreparer, refs: Iterable[RequestedClaim], *more: Any) -> Any:
        results = await method(self, tuple(refs), *more)
        for uid, result in results.items():
            write_line(journal, f"{name}-call", uid, "error" if result.error else "ok")
        return results

    return call


async def _find_no_hold(_self: DriverClaimLookup, _uid: str) -> str:
    """Broken: a claim that is gone counts as unused, as if no container could outlive its claim."""
    return ""


async def _refuse_to_wait(_self: CallWaits, *_given: Any) -> bool:
    """Broken: calls fail at once where waiting would help."""
    return False


class Breakage(NamedTuple):
    """A function that does something else."""

    owner: Any
    function: str
    instead: Callable[..., Any]
    fault: str
    """What the judge must say of it; empty when it is slow, not wrong."""


BROKEN = {
    "gives back at start": Breakage(DriverClaimLookup, "explain_hold", _find_no_hold, "taken from living"),
    "does not wait": Breakage(CallWaits, "wait", _refuse_to_wait, ""),
}


if __name__ == "__main__":
    file, broken, *options = sys.argv[1:]
    if broken != "-":
        way = BROKEN[broken]
        setattr(way.owner, way.function, way.instead)
    record_calls(Path(file))
    run(lambda: Watched(Path(file)), options)
