"""The runtime for OCI containers: runs runc or crun on a directory with the root filesystem.

Theory of operation: images are not pulled. One directory is the root filesystem of every container, or has a
directory per image. Each container gets a writable overlay of it where the machine supports overlays, and
else the directory itself, read-only. A shim has the OCI runtime create and start the container and becomes
the parent of its first process; the OCI runtime itself does not keep running. When the container has ended,
the OCI runtime deletes its state.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from dray.clock import Clock
from dray.errors import DrayError
from dray.node.containers.runtime.base import ContainerLaunch, ContainerNotStarted, ContainerStarted
from dray.node.containers.runtime.container_shims import ShimRuntime, build_command
from dray.node.containers.runtime.oci_config import DeviceFileError, HostFile, RootFilesystem, build_config

KNOWN_RUNTIMES: Final = ("runc", "crun")
_ROOT_DIRECTORIES: Final = ("bin", "usr", "etc")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_COMMAND_SECONDS: Final = 60.0
_LOG: Final = "runtime.log"


class OciRuntimeError(DrayError):
    """There is no OCI runtime, or no root filesystem for its containers."""


def find_runtime(program: str = "") -> Path:
    """Find the OCI runtime of this machine, or the one named."""
    for name in (program,) if program else KNOWN_RUNTIMES:
        found = shutil.which(name)
        if found:
            return Path(found).resolve()
    looked = f"`{program}`" if program else " or ".join(f"`{name}`" for name in KNOWN_RUNTIMES)
    raise OciRuntimeError(
        f"no OCI runtime: {looked} is not on the PATH; install one, or use the process runtime"
    )


class OciRuntime(ShimRuntime):
    """Runs containers with an OCI runtime; their files are in one directory."""

    name: Final = "oci"

    def __init__(self, directory: Path, rootfs: Path, program: Path, clock: Clock | None = None) -> None:
        if not rootfs.is_dir():
            raise OciRuntimeError(f"`{rootfs}` is no directory; expected the files that containers see")
        super().__init__(directory, clock)
        self._state_directory = directory / ".runtime"
        self._rootfs = rootfs.resolve()
        self._program = program
        self._overlays: bool | None = None

    async def start(self, launch: ContainerLaunch) -> ContainerStarted | ContainerNotStarted:
        """Create and start a container."""
        root = self._find_root(launch.image)
        if not launch.command:
            message = "images are not looked into for their command: give the container a command"
            return ContainerNotStarted("CreateContainerConfigError", message)
        if root is None:
            message = f"no files for image `{launch.image}`: `{self._rootfs}` is no root of a container and "
            return ContainerNotStarted(
                "CreateContainerError", f"{message}has no directory `{sanitize_image_name(launch.image)}`"
            )
        if self._overlays is None:
            self._overlays = await asyncio.to_thread(_can_overlay, self._state_directory.parent)
        directory = self._shims.create_directory(launch)
        if not isinstance(directory, Path):
            return directory
        try:
            config = self._build_config(launch, directory, root)
        except (DeviceFileError, OSError) as error:
            shutil.rmtree(directory, ignore_errors=True)
            return ContainerNotStarted("CreateContainerError", str(error))
        return await self._shims.start(launch, config)

    async def find_problem(self) -> str:
        """Return what keeps any container from being started; empty when nothing does."""
        if not os.access(self._program, os.X_OK):
            return f"the OCI runtime `{self._program}` is gone or cannot be executed"
        if not self._rootfs.is_dir():
            return f"`{self._rootfs}`, with the files that containers see, is gone"
        return await super().find_problem()

    def _find_root(self, image: str) -> Path | None:
        own = self._rootfs / sanitize_image_name(image)
        if image and own.is_dir():
            return own
        return self._rootfs if any((self._rootfs / name).exists() for name in _ROOT_DIRECTORIES) else None

    def _build_config(self, launch: ContainerLaunch, directory: Path, root: Path) -> dict[str, Any]:
        root_path, before, after = root, [], []
        writable = bool(self._overlays) and not set(":,") & set(f"{root}{directory}")
        if writable:
            root_path = directory / "root"
            before, after = (
                [build_command(_build_overlay_mount(directory, root))],
                [build_command(_build_argv("umount", "-l", str(root_path)))],
            )
        document = build_config(launch, RootFilesystem(str(root_path), writable), _inspect_file)
        (directory / "config.json").write_bytes(msgspec.json.encode(document))
        container, pid_file = str(launch.id), str(directory / "pid")
        create = ("create", "--bundle", str(directory), "--pid-file", pid_file, container)
        return {
            "before": before,
            "create": self._build_command(directory, create),
            "start": self._build_command(directory, ("start", container)),
            "after": [self._build_command(directory, ("delete", "--force", container)), *after],
            "pid_file": pid_file,
        }

    def _build_command(self, directory: Path, words: Sequence[str]) -> dict[str, Any]:
        log = str(directory / _LOG)
        argv = (str(self._program), "--root", str(self._state_directory), "--log", log, *words)
        return build_command(argv, timeout=_COMMAND_SECONDS, error_file=log)


def sanitize_image_name(image: str) -> str:
    """Turn the name of an image into a directory name: unsafe characters become `_`."""
    return _UNSAFE.sub("_", image).lstrip(".") or "_"


def _inspect_file(path: str) -> HostFile | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return HostFile(status.st_mode, os.major(status.st_rdev), os.minor(status.st_rdev))


def _build_argv(name: str, *arguments: str) -> tuple[str, ...]:
    return (shutil.which(name) or f"/bin/{name}", *arguments)


def _build_overlay_mount(directory: Path, root: Path) -> tuple[str, ...]:
    """Make the directories of a writable overlay on a root filesystem, and build its mount command."""
    for name in ("root", "upper", "work"):
        (directory / name).mkdir(mode=0o755)
    options = f"lowerdir={root},upperdir={directory / 'upper'},workdir={directory / 'work'}"
    return _build_argv("mount", "-t", "overlay", "overlay", "-o", options, str(directory / "root"))


def _can_overlay(directory: Path) -> bool:
    """Return whether overlays can be mounted in a directory, which depends on filesystem and user."""
    with tempfile.TemporaryDirectory(prefix=".overlay-", dir=directory, ignore_cleanup_errors=True) as name:
        lower = Path(name) / "lower"
        lower.mkdir()
        done = subprocess.run(
            _build_overlay_mount(Path(name), lower),
            capture_output=True,
            check=False,
            timeout=_COMMAND_SECONDS,
        )
        if done.returncode == 0:
            umount = _build_argv("umount", str(Path(name) / "root"))
            subprocess.run(umount, capture_output=True, check=False, timeout=_COMMAND_SECONDS)
        return done.returncode == 0
