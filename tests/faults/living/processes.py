"""Processes of this machine that have a device: found by an environment variable that their container got."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

VARIABLE = "DRAY_LIVING"


def format_variable(journal: Path, uid: str, device: str) -> str:
    """What a prepared device puts into a container: the run that it is part of, the claim and the device."""
    return f"{journal.parent.name}/{uid}/{device}"


class LivingProcess(NamedTuple):
    """A process of a container, and what it has; it is the same one as long as pid and start are."""

    pid: int
    started: str
    run: str
    uid: str
    device: str

    def is_alive(self) -> bool:
        return self in list(_read_process(self.pid))


def list_living(journal: Path) -> Iterator[LivingProcess]:
    """Yield all processes of a run's containers that have a device now. The memory of a dead one is gone."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield from (each for each in _read_process(int(name)) if each.run == journal.parent.name)


def _read_process(pid: int) -> Iterator[LivingProcess]:
    folder = Path("/proc", str(pid))
    try:
        variables = (folder / "environ").read_bytes().split(b"\0")
        # The name of the program, in brackets, may contain anything.
        started = (folder / "stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return
    for each in variables:
        name, _, value = each.decode("utf-8", "replace").partition("=")
        if name == VARIABLE:
            yield LivingProcess(pid, started, *value.split("/"))
