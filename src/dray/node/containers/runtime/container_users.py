"""The users of containers of the process runtime: how a pod is kept from the files and processes of others.

Theory of operation: an agent that is root, and may change users, gives each pod a user and a group of its
own. The number is a digest of the pod's uid, in a range that no distribution assigns, so that agents that
share a machine need not agree on it, and a restarted agent finds the same. Any other agent forks containers
into namespaces that hide its files. Where the kernel refuses these, containers are not started: they could
read the keys of the agent.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import dray
from dray.node.containers.runtime.base import ContainerLaunch, ContainerNotStarted
from dray.node.containers.runtime.container_shims import SCRATCH_LINK

FIRST_USER: Final = 0x70000000
USER_COUNT: Final = 0x0FE00000
"""Above the ids that systems assign to containers, and below those that are negative in some programs."""
HINT: Final = (
    "hint: start the agent as root, allow user namespaces, or choose `--container-user agent` "
    "if everybody who may create pods may do what the agent's user may"
)
_TEMPORARY: Final = "/tmp"
_NEEDED_CAPABILITIES: Final = (1 << 0) | (1 << 5) | (1 << 6) | (1 << 7)
"""CAP_CHOWN, CAP_KILL, CAP_SETGID and CAP_SETUID."""
_PROBE: Final = (
    "import sys;sys.path.append(sys.argv[1]);"
    "from dray.node.containers.runtime.shim.isolation import find_problem;print(find_problem())"
)


@dataclass(frozen=True, slots=True)
class PodUser:
    """What the shim of an isolated container needs to know, beside its command."""

    config: dict[str, Any]
    scratch: str
    """The directory for temporary files."""


class PodUsers:
    """Gives each pod a user, or namespaces, of its own."""

    def __init__(self, hidden: Sequence[Path] = ()) -> None:
        self._hidden = tuple(hidden)
        self._problem: str | None = None

    async def find_problem(self) -> str:
        """Return why pods cannot be kept apart from the agent here; empty when they can."""
        if self._problem is None:
            self._problem = "" if can_change_users() else await _probe_namespaces()
        return self._problem

    async def check_launch(self, launch: ContainerLaunch) -> ContainerNotStarted | None:
        """Return why a container is refused."""
        for field, value in (("runAsUser", launch.user), ("runAsGroup", launch.group)):
            if value is not None:
                return ContainerNotStarted(
                    "CreateContainerConfigError",
                    f"securityContext.{field}: Invalid value: `{value}`: this node gives each pod a user of "
                    "its own; leave the field out, or start the agent with `--container-user agent`",
                )
        problem = await self.find_problem()
        if problem:
            return ContainerNotStarted("CreateContainerError", f"{problem}\n{HINT}")
        return None

    def prepare(self, launch: ContainerLaunch, directory: Path) -> PodUser:
        """Prepare the user and the directory for temporary files of a container."""
        if not can_change_users():
            scratch = f"{_TEMPORARY}/{launch.id}"
            hidden = [str(path) for path in (*self._hidden, *_list_home_directories())]
            return PodUser({"isolated": True, "namespaces": {"hide": hidden, "scratch": scratch}}, scratch)
        user = choose_user(launch.pod_uid)
        scratch = tempfile.mkdtemp(prefix="dray-pod-", dir=_TEMPORARY)
        # Removed with the container's directory, by way of this link.
        (directory / SCRATCH_LINK).symlink_to(scratch)
        os.chown(scratch, user, user)
        groups = list(launch.edits.additional_gids)
        return PodUser({"isolated": True, "user": user, "group": user, "groups": groups}, scratch)


def choose_user(pod_uid: str) -> int:
    """Choose the number of a pod's user and group."""
    digest = hashlib.sha256(pod_uid.encode()).digest()
    return FIRST_USER + int.from_bytes(digest[:8], "big") % USER_COUNT


def can_change_users() -> bool:
    """Whether this process can run others as the users of pods."""
    if os.geteuid() != 0:
        return False
    try:
        status = Path("/proc/self/status").read_text("utf-8", "replace")
        id_maps = [Path(f"/proc/self/{name}_map").read_text("ascii") for name in ("uid", "gid")]
    except OSError:
        return False
    effective = next((int(line.split()[1], 16) for line in status.splitlines() if line[:7] == "CapEff:"), 0)
    has_capabilities = effective & _NEEDED_CAPABILITIES == _NEEDED_CAPABILITIES
    return has_capabilities and all(map(_contains_range, id_maps))


def _contains_range(id_map: str) -> bool:
    rows = (tuple(map(int, line.split())) for line in id_map.splitlines())
    return any(first <= FIRST_USER and first + count >= FIRST_USER + USER_COUNT for first, _, count in rows)


def _list_home_directories() -> Iterator[Path]:
    """List the directories of the agent's user where other secrets of theirs are."""
    user = os.geteuid()
    for path in (Path(os.path.expanduser("~")), Path(f"/run/user/{user}")):
        if path.is_absolute() and len(path.parts) > 1 and path.is_dir() and path.stat().st_uid == user:
            yield path.resolve()


async def _probe_namespaces() -> str:
    """Try namespaces in a process of its own: this one has threads."""
    root = str(Path(dray.__file__).parent.parent)
    probe = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-I", "-S", "-c", _PROBE, root),
        env={},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await probe.communicate()
    text = said.decode("utf-8", "replace").strip()
    return text if text or probe.returncode == 0 else f"cannot isolate containers: code {probe.returncode}"
