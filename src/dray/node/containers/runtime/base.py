"""What a container is to a node: how it is started, found again, and how it ended.

Theory of operation: a container is named by its pod, its name and which attempt it is, so that an agent that
lost its memory can ask for it by a name it can work out. A runtime starts it, and from then on the container
is its own: it goes on when the agent ends, and `list_containers` finds it again, also when it ended in
between. What a runtime refuses is a value; a container whose command could not be executed has an exit like
any other.

Rules for this file: nothing here does anything; the ways to run containers are beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from dray.wire.cdi import ContainerEdits

COMPLETED: Final = "Completed"
ERROR: Final = "Error"
START_ERROR: Final = "StartError"
"""The command could not be executed; the exit has code 128 and says why."""
UNKNOWN: Final = "ContainerStatusUnknown"
"""Nobody saw how the container ended; the exit has code 137."""


class ContainerId(NamedTuple):
    """Which container: the pod's uid, the container's name in the pod, and the attempt (restart count)."""

    pod_uid: str
    name: str
    attempt: int

    def __str__(self) -> str:
        return f"{self.pod_uid}_{self.name}_{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLaunch:
    """A container to be started, with everything looked up and expanded."""

    pod_uid: str
    pod_name: str
    namespace: str
    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    """What the container runs, in place of the image's entry point."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """The container's own variables; those of its devices come after them and win."""
    working_dir: str = ""
    edits: ContainerEdits = field(default_factory=ContainerEdits)
    """What its devices want changed."""
    attempt: int = 0
    log: Path
    """The file that its output goes to; older parts of it are beside it."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Those of the pod."""
    user: int | None = None
    group: int | None = None

    @property
    def id(self) -> ContainerId:
        return ContainerId(self.pod_uid, self.name, self.attempt)


@dataclass(frozen=True, slots=True)
class ContainerStarted:
    """A container was started; `notes` tell, for people, which edits this runtime could not apply."""

    id: ContainerId
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerNotStarted:
    """A runtime does not start a container; the reason is one that a container waits with."""

    reason: str
    """`CreateContainerError`, or `CreateContainerConfigError` when the pod must be changed."""
    message: str


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """How a container ended."""

    code: int
    """The command's exit code, 128 + the signal when a signal ended it."""
    signal: int
    """The signal that ended it, otherwise 0."""
    reason: str
    """`Completed` when the code is 0, `Error`, `StartError` or `ContainerStatusUnknown`."""
    started_at: datetime
    finished_at: datetime
    message: str = ""


@dataclass(frozen=True, slots=True)
class FoundContainer:
    """A container that is there, of this agent or of one before it; `exit` is None while it runs."""

    id: ContainerId
    pod_name: str
    namespace: str
    started_at: datetime
    exit: ContainerExit | None = None


class ContainerRuntime(Protocol):
    """A way to run containers."""

    @property
    def name(self) -> str:
        """What stands before `://` in the id of a container in a pod's status."""
        ...

    async def start(self, launch: ContainerLaunch) -> ContainerStarted | ContainerNotStarted:
        """Start a container. One of the same id that is already there is not started twice."""
        ...

    async def wait(self, container: ContainerId) -> ContainerExit:
        """How a container ended, as soon as it did; at once for one that nobody knows (`UNKNOWN`)."""
        ...

    async def stop(self, container: ContainerId, grace_seconds: float) -> None:
        """Ask a container to end and end it by force after a time; returns when nothing of it runs."""
        ...

    async def list_containers(self) -> tuple[FoundContainer, ...]:
        """Every container that was started and not removed, whoever started it."""
        ...

    async def remove(self, container: ContainerId) -> None:
        """Forget a container: ends it if it runs, and takes away what is kept of it except its log."""
        ...

    async def find_problem(self) -> str:
        """What keeps any container from being started; nothing when nothing does."""
        ...

    async def close(self) -> None:
        """Let go of what this agent holds; containers go on."""
        ...
