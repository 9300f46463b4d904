"""The container runtime interface: launches, exits, found containers, and the `ContainerRuntime` protocol.

Theory of operation: a container is identified by its pod, its name and its attempt, so that an agent without
its state can derive the id. A container runs independently of the agent that started it: it continues when
the agent ends, and `list_containers` finds it again, also when it ended meanwhile. A refusal to start is a
value; a container whose command could not be executed has an exit like any other.

Rules for this file: values and the protocol only; the implementations are beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from dray.wire.cdi import ContainerEdits

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The `PATH` of a container that has none."""

COMPLETED: Final = "Completed"
ERROR: Final = "Error"
START_ERROR: Final = "StartError"
"""The command could not be executed; the exit has code 128 and says why."""
UNKNOWN: Final = "ContainerStatusUnknown"
"""The exit of the container was not observed; it has code 137."""


class ContainerId(NamedTuple):
    """The id of a container: the pod's uid, the container's name, and the attempt (restart count)."""

    pod_uid: str
    name: str
    attempt: int

    def __str__(self) -> str:
        return f"{self.pod_uid}_{self.name}_{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLaunch:
    """A container to be started, with all references resolved."""

    pod_uid: str
    pod_name: str
    namespace: str
    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    """The command, in place of the image's entry point."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """The container's own variables; those of its devices override them."""
    working_dir: str = ""
    edits: ContainerEdits = field(default_factory=ContainerEdits)
    """The CDI edits of its devices."""
    attempt: int = 0
    log: Path
    """The file of its output; rotated parts are beside it."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Those of the pod."""
    user: int | None = None
    group: int | None = None

    @property
    def id(self) -> ContainerId:
        return ContainerId(self.pod_uid, self.name, self.attempt)


@dataclass(frozen=True, slots=True)
class ContainerStarted:
    """A container was started; `notes` says which edits this runtime could not apply."""

    id: ContainerId
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerNotStarted:
    """A container was not started; the reason is that of a waiting container."""

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
    """An existing container, of this agent or an earlier one; `exit` is None while it runs."""

    id: ContainerId
    pod_name: str
    namespace: str
    started_at: datetime
    exit: ContainerExit | None = None


class ContainerRuntime(Protocol):
    """Runs containers."""

    @property
    def name(self) -> str:
        """The prefix before `://` of container ids in a pod's status."""
        ...

    async def start(self, launch: ContainerLaunch) -> ContainerStarted | ContainerNotStarted:
        """Start a container; one of the same id that already exists is not started again."""
        ...

    async def wait(self, container: ContainerId) -> ContainerExit:
        """Wait until a container has ended, and return its exit; at once for an unknown one (`UNKNOWN`)."""
        ...

    async def stop(self, container: ContainerId, grace_seconds: float) -> None:
        """Terminate a container, by force after the grace period; returns when nothing of it runs."""
        ...

    async def list_containers(self) -> tuple[FoundContainer, ...]:
        """List every container that was started and not removed, whichever agent started it."""
        ...

    async def remove(self, container: ContainerId) -> None:
        """Terminate a container if it runs, and delete its files except its log."""
        ...

    async def find_problem(self) -> str:
        """Return what keeps any container from being started; empty when nothing does."""
        ...

    async def close(self) -> None:
        """Release the agent's resources; containers continue."""
        ...
