"""Builds the OCI runtime configuration (`config.json`) of a container, with the CDI edits of its devices.

Theory of operation: the container gets its own pid, mount, uts and ipc namespaces, and the machine's network.
The edits of its devices are applied here and not by the runtime: variables, mounts, device files with the
device numbers of the machine's files and permission to use them, hooks, groups.

Rules for this file: it inspects the machine only through `Inspect`.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from dray.errors import DrayError
from dray.node.containers.runtime.base import DEFAULT_PATH, ContainerLaunch
from dray.wire.cdi import DeviceNode, Mount

_MAX_HOSTNAME_LENGTH: Final = 63
_CAPABILITIES: Final = tuple(
    f"CAP_{name}"
    for name in (
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    )
)
_OWN_MOUNTS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("/proc", "proc", ("nosuid", "noexec", "nodev")),
    ("/dev", "tmpfs", ("nosuid", "strictatime", "mode=755", "size=65536k")),
    ("/dev/pts", "devpts", ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620")),
    ("/dev/shm", "tmpfs", ("nosuid", "noexec", "nodev", "mode=1777", "size=65536k")),
    ("/dev/mqueue", "mqueue", ("nosuid", "noexec", "nodev")),
    ("/sys", "sysfs", ("nosuid", "noexec", "nodev", "ro")),
)
_SCRATCH_MOUNTS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("/tmp", "tmpfs", ("nosuid", "nodev", "mode=1777")),
    ("/run", "tmpfs", ("nosuid", "nodev", "mode=755")),
)
"""Writable directories of a container whose root is read-only."""
_MASKED: Final = ("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list")
_READ_ONLY: Final = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_DEVICE_TYPES: Final = ((stat.S_ISBLK, "b"), (stat.S_ISCHR, "c"), (stat.S_ISFIFO, "p"))


class DeviceFileError(DrayError):
    """A device file that a container needs does not exist on the machine."""


class HostFile(NamedTuple):
    """A file of the machine: its mode with the file type, and its device numbers."""

    mode: int
    major: int
    minor: int


Inspect = Callable[[str], HostFile | None]
"""Returns the file at a path of the machine; None when there is none."""


class RootFilesystem(NamedTuple):
    """The root filesystem of a container."""

    path: str
    writable: bool


def build_config(launch: ContainerLaunch, root: RootFilesystem, inspect: Inspect) -> dict[str, Any]:
    """Build the configuration; raises `DeviceFileError` when a device file is missing."""
    devices = [_build_device(node, inspect) for node in launch.edits.device_nodes]
    return {
        "ociVersion": "1.0.2",
        "process": _build_process(launch),
        "root": {"path": root.path, "readonly": not root.writable},
        "hostname": launch.pod_name[:_MAX_HOSTNAME_LENGTH],
        "mounts": [*_build_own_mounts(root), *map(_build_mount, _sort_by_depth(launch.edits.mounts))],
        "hooks": _build_hooks(launch),
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")],
            "cgroupsPath": f"/dray/{launch.id}",
            "devices": [device for device, _ in devices],
            "resources": {
                "devices": [{"allow": False, "access": "rwm"}, *(rule for _, rule in devices if rule)]
            },
            "maskedPaths": list(_MASKED),
            "readonlyPaths": list(_READ_ONLY),
        },
    }


def _build_process(launch: ContainerLaunch) -> dict[str, Any]:
    env = {"PATH": DEFAULT_PATH, "HOSTNAME": launch.pod_name, **launch.env}
    env |= dict(variable.split("=", 1) for variable in launch.edits.env)
    return {
        "terminal": False,
        "user": {
            "uid": launch.user or 0,
            "gid": launch.group or 0,
            "additionalGids": list(launch.edits.additional_gids),
        },
        "args": [*launch.command, *launch.args],
        "env": [f"{name}={value}" for name, value in env.items()],
        "cwd": launch.working_dir or "/",
        "capabilities": {kind: list(_CAPABILITIES) for kind in ("bounding", "effective", "permitted")},
    }


def _build_own_mounts(root: RootFilesystem) -> Iterator[dict[str, Any]]:
    for path, kind, options in _OWN_MOUNTS if root.writable else _OWN_MOUNTS + _SCRATCH_MOUNTS:
        yield {"destination": path, "type": kind, "source": kind, "options": list(options)}


def _sort_by_depth(mounts: tuple[Mount, ...]) -> list[Mount]:
    """Sort mounts so that none is hidden by a later one above it."""
    return sorted(mounts, key=lambda mount: mount.container_path.rstrip("/").count("/"))


def _build_mount(mount: Mount) -> dict[str, Any]:
    kind, options = mount.type or "bind", list(mount.options)
    if kind == "bind" and not {"bind", "rbind"} & set(options):
        options.append("rbind")
    return {"destination": mount.container_path, "type": kind, "source": mount.host_path, "options": options}


def _build_device(node: DeviceNode, inspect: Inspect) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Build a device file and the cgroup rule that permits its use."""
    kind, major, minor, mode = node.type, node.major, node.minor, node.file_mode
    if not kind or (kind != "p" and not major and not minor):
        source = node.host_path or node.path
        file = inspect(source)
        found = next((name for is_type, name in _DEVICE_TYPES if file and is_type(file.mode)), "")
        if file is None or not found:
            problem = "does not exist" if file is None else "is no device"
            raise DeviceFileError(f"device file `{source}` {problem}, a CDI device of the container needs it")
        kind, major, minor = kind or found, file.major, file.minor
        mode = stat.S_IMODE(file.mode) if mode is None else mode
    device = {"path": node.path, "type": kind, "major": major, "minor": minor}
    device |= {
        name: value
        for name, value in (("fileMode", mode), ("uid", node.uid), ("gid", node.gid))
        if value is not None
    }
    if kind == "p":
        return {name: value for name, value in device.items() if name not in ("major", "minor")}, None
    rule_kind = "c" if kind == "u" else kind
    access = node.permissions or "rwm"
    return device, {"allow": True, "type": rule_kind, "major": major, "minor": minor, "access": access}


def _build_hooks(launch: ContainerLaunch) -> dict[str, list[dict[str, Any]]]:
    hooks: dict[str, list[dict[str, Any]]] = {}
    for hook in launch.edits.hooks:
        document: dict[str, Any] = {
            "path": hook.path,
            "args": list(hook.args) or [hook.path],
            "env": list(hook.env),
        }
        if hook.timeout:
            document["timeout"] = hook.timeout
        hooks.setdefault(hook.hook_name, []).append(document)
    return hooks
