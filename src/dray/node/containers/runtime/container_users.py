"""The users of containers of the process runtime: how a pod is kept from the files and processes of others.

Theory of operation: an agent that is root, and may change users, gives each pod a user and a group of its
own. The number is a digest of the pod's uid, in a range that no distribution assigns, so that agents that
share a machine need not agree on it, and a restarted agent finds the same. Where it may also mount, its
containers do not see its files, nor devices that their claims did not give them. Any other agent forks
containers into a user namespace with such mounts. Where the kernel refuses these, containers are not started:
they could read the keys of the agent.
"""

from __future__ import annotations

import asyncio
import enum
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

import dray
from dray.node.containers.runtime.base import ContainerLaunch, ContainerNotStarted
from dray.node.containers.runtime.container_shims import SCRATCH_LINK
from dray.wire.cdi import DeviceNode

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
    "from dray.node.containers.runtime.shim.isolation import find_problem;"
    "print(find_problem(user_namespace=sys.argv[2] == 'True'))"
)
_SERVICE_DIRECTORY: Final = Path("/run")
_RESOLVER_DIRECTORIES: Final = (Path("/run/systemd/resolve"), Path("/run/resolvconf"))
"""`/etc/resolv.conf` may be a link to a file there."""


class Separation(enum.Enum):
    """How containers are kept from the agent and from each other."""

    USER_AND_MOUNTS = enum.auto()
    """A user of its own for each pod, and a mount namespace for each container."""
    USER = enum.auto()
    """A user of its own for each pod, where the agent cannot mount."""
    USER_NAMESPACE = enum.auto()
    """User, mount and process namespaces for each container, where the agent cannot change users."""


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
        self._separation: Separation | None = None
        self._problem = ""

    async def find_problem(self) -> str:
        """Return why pods cannot be kept apart from the agent here; empty when they can."""
        if self._separation is None and not self._problem:
            self._separation, self._problem = await _choose_separation()
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
        """Prepare the user and the directory for temporary files of a container that was not refused."""
        if self._separation is Separation.USER_NAMESPACE:
            scratch = f"{_TEMPORARY}/{launch.id}"
            view = self._build_view(launch, _list_home_directories())
            view |= {"user_namespace": True, "scratch": scratch}
            return PodUser({"isolated": True, "namespaces": view}, scratch)
        user = choose_user(launch.pod_uid)
        scratch = tempfile.mkdtemp(prefix="dray-pod-", dir=_TEMPORARY)
        # Removed with the container's directory, by way of this link.
        (directory / SCRATCH_LINK).symlink_to(scratch)
        os.chown(scratch, user, user)
        config: dict[str, Any] = {"isolated": True, "user": user, "group": user}
        config["groups"] = list(launch.edits.additional_gids)
        if self._separation is Separation.USER_AND_MOUNTS:
            config["namespaces"] = {**self._build_view(launch), "owner": user}
        return PodUser(config, scratch)

    def list_unsupported_edits(self, launch: ContainerLaunch) -> Iterator[str]:
        """List the edits of devices, other than mounts, that cannot be applied."""
        if self._separation is Separation.USER_NAMESPACE and launch.edits.additional_gids:
            yield f"groups {', '.join(map(str, launch.edits.additional_gids))}"
        for node in launch.edits.device_nodes:
            if self._separation is Separation.USER:
                yield f"device `{node.path}`, which keeps its owner and its permissions"
            elif not is_device_path(node.path):
                yield f"device `{node.path}`, which is not in `/dev`"

    def _build_view(self, launch: ContainerLaunch, more: Iterable[Path] = ()) -> dict[str, Any]:
        hidden = (*self._hidden, *more)
        kept = [
            {"path": mount.host_path, "read_only": "ro" in mount.options}
            for mount in launch.edits.mounts
            if mount.host_path == mount.container_path
        ]
        if _SERVICE_DIRECTORY in hidden:
            kept += [{"path": str(path), "read_only": True} for path in _RESOLVER_DIRECTORIES]
        is_root = self._separation is Separation.USER_AND_MOUNTS
        nodes = (node for node in launch.edits.device_nodes if is_device_path(node.path))
        return {
            "user_namespace": False,
            "hide": [str(path) for path in hidden],
            "keep": kept,
            "devices": [_build_device(node, numbered=is_root) for node in nodes],
            "owner": os.geteuid(),
            "scratch": "",
        }


async def _choose_separation() -> tuple[Separation | None, str]:
    if not can_change_users():
        problem = await _probe_namespaces(user_namespace=True)
        return (None, problem) if problem else (Separation.USER_NAMESPACE, "")
    problem = await _probe_namespaces(user_namespace=False)
    return (Separation.USER if problem else Separation.USER_AND_MOUNTS), ""


def is_device_path(path: str) -> bool:
    """Whether a container can be given a device file of this path."""
    return path.startswith("/dev/") and ".." not in PurePosixPath(path).parts


def _build_device(node: DeviceNode, *, numbered: bool) -> dict[str, Any]:
    """Build a device file for the shim; with numbers it is made anew, for the user of the pod."""
    source = node.host_path or node.path
    try:
        status = os.stat(source)
    except OSError as error:
        raise OSError(f"device file `{source}`, which the container needs: {error.strerror}") from None
    if not numbered or not (stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)):
        return {"path": node.path, "source": source}
    numbers = (os.major(status.st_rdev), os.minor(status.st_rdev))
    permissions = node.permissions or "rwm"
    mode = sum(bits for letter, bits in (("r", 0o400), ("w", 0o200)) if letter in permissions)
    return {
        "path": node.path,
        "source": source,
        "mode": stat.S_IFMT(status.st_mode) | mode,
        "numbers": numbers,
    }


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
    """List the directories where other secrets of the agent's user are, and sockets that serve this user."""
    user = os.geteuid()
    home = Path(os.path.expanduser("~"))
    if home.is_absolute() and len(home.parts) > 1 and home.is_dir() and home.stat().st_uid == user:
        yield home.resolve()
    if _SERVICE_DIRECTORY.is_dir():
        yield _SERVICE_DIRECTORY


async def _probe_namespaces(*, user_namespace: bool) -> str:
    """Try namespaces in a process of its own: this one has threads."""
    root = str(Path(dray.__file__).parent.parent)
    probe = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-I", "-S", "-c", _PROBE, root, str(user_namespace)),
        env={},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await probe.communicate()
    text = said.decode("utf-8", "replace").strip()
    return text if text or probe.returncode == 0 else f"cannot isolate containers: code {probe.returncode}"
