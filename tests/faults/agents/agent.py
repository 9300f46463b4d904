"""`dray node` in a process of its own that kills itself at the point that a file names.

    python -m tests.faults.agents.agent ROOT KUBECONFIG BOOT [BROKEN]

It is the agent as people start it, except that the boot of the machine is an argument. With `BROKEN` the
agent omits something that it must do, so that the check of the journal has a fault to find.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from dray.cli import main
from dray.node import agent
from dray.node.claims.outcomes import ClaimsReady
from dray.node.claims.preparer import PodClaimPreparer
from dray.node.claims.preparer_options import ClaimPreparerOptions
from dray.node.containers.runtime.process import ProcessRuntime
from tests.faults.agents.driver import NODE
from tests.unit.node.claims.crash_points import POINTS as PREPARER_POINTS

POINTS = (
    *PREPARER_POINTS,
    "awakened, not kept",
    "awakened, kept",
    "container started",
    "container removed",
)
"""Where the agent can be made to die."""


class Death:
    """Comes at the point that a file names, once."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __call__(self, point: str) -> None:
        if self._file.exists() and self._file.read_text() == point:
            self._file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


def prepared_for_death(root: Path, boot: str) -> None:
    """Let the agent of this process crash at the point that a file names, in the given boot."""
    death = Death(root / "fatal")

    def told(node: Any, checkpoint: Path, lines: Any, _boot: str, *more: Any) -> ClaimPreparerOptions:
        return replace(ClaimPreparerOptions(node, checkpoint, lines, boot, *more), crash_point=death)

    setattr(agent, "ClaimPreparerOptions", told)  # noqa: B010 - another callable in place of a class
    for name, point in (("start", "container started"), ("remove", "container removed")):
        setattr(ProcessRuntime, name, _dying(getattr(ProcessRuntime, name), death, point))


def _dying(method: Callable[..., Any], death: Death, point: str) -> Callable[..., Any]:
    async def call(self: ProcessRuntime, *given: Any) -> Any:
        answer = await method(self, *given)
        death(point)
        return answer

    return call


async def _unasked(_self: PodClaimPreparer, _pod: Any) -> ClaimsReady:
    """Broken: pods run without asking."""
    return ClaimsReady()


async def _kept(_self: PodClaimPreparer, _pod_uid: str, *, abandon: bool = False) -> None:
    """Broken: nothing is released."""


class Breakage(NamedTuple):
    """A method that does something else, and what the judge must say of it."""

    method: str
    instead: Callable[..., Any]
    fault: str


BROKEN = {
    "prepares nothing": Breakage("prepare", _unasked, "ran without Prepare"),
    "gives nothing back": Breakage("release", _kept, "Unprepare missed"),
}


def arguments(root: Path, kubeconfig: str) -> list[str]:
    """The arguments of `dray`."""
    places = ("--root", root / "agent", "--plugins-registry", root / "r", "--cdi-dir", root / "cdi")
    node = ("node", "--name", NODE, "--kubeconfig", kubeconfig, "--port", "0", "--max-pods", "200")
    # Its containers write into a journal of this user.
    user = ("--container-user", "agent")
    return [*node, *user, *map(str, places)]


if __name__ == "__main__":
    folder, file, booted, *broken = sys.argv[1:]
    for way in broken:
        setattr(PodClaimPreparer, BROKEN[way].method, BROKEN[way].instead)
    prepared_for_death(Path(folder), booted)
    sys.argv = ["dray", *arguments(Path(folder), file)]
    main()
