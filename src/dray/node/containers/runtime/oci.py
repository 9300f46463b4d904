"""Containers made by an OCI runtime, runc or crun, from a directory with their files.

Theory of operation: nobody pulls images here. One directory is the root of every container, or has a
directory per image. Each container gets an overlay of it to write to where the machine can do that, and else
the directory itself, read-only. A keeper lets the runtime create and start the container and is then the
parent of its first process; the runtime is not running meanwhile. When all has ended, the runtime deletes
what it keeps.
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
from dray.node.containers.runtime.base import Launch, NotStarted, Started
from dray.node.containers.runtime.container_shims import KeptContainers, errand
from dray.node.containers.runtime.oci_config import Node, NoDevice, Root, configuration

KNOWN: Final = ("runc", "crun")
_LIKE_A_ROOT: Final = ("bin", "usr", "etc")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_SECONDS: Final = 60.0
_LOG: Final = "runtime.log"


class NoRuntime(DrayError):  # noqa: N818 - what is the case
    """There is no OCI runtime, or nothing that its containers could have as files."""


def find_runtime(program: str = "") -> Path:
    """The OCI runtime of this machine, or the one named."""
    for name in (program,) if program else KNOWN:
        found = shutil.which(name)
        if found:
            return Path(found).resolve()
    looked = f"`{program}`" if program else " or ".join(f"`{name}`" for name in KNOWN)
    raise NoRuntime(f"no OCI runtime: {looked} is not on the PATH; install one, or use the process runtime")


class OciRuntime(KeptContainers):
    """Runs containers with an OCI runtime; everything about them is kept in one directory."""

    name: Final = "oci"

    def __init__(self, directory: Path, rootfs: Path, program: Path, clock: Clock | None = None) -> None:
        if not rootfs.is_dir():
            raise NoRuntime(f"`{rootfs}` is no directory; expected the files that containers see")
        super().__init__(directory, clock)
        self._states = directory / ".runtime"
        self._rootfs = rootfs.resolve()
        self._program = program
        self._overlays: bool | None = None

    async def start(self, launch: Launch) -> Started | NotStarted:
        """Have a container made and started."""
        root = self._root_of(launch.image)
        if not launch.command:
            message = "images are not looked into for their command: give the container a command"
            return NotStarted("CreateContainerConfigError", message)
        if root is None:
            message = f"no files for image `{launch.image}`: `{self._rootfs}` is no root of a container and "
            return NotStarted(
                "CreateContainerError", f"{message}has no directory `{safe_name(launch.image)}`"
            )
        if self._overlays is None:
            self._overlays = await asyncio.to_thread(_can_overlay, self._states.parent)
        home = self._keepers.prepare(launch)
        if not isinstance(home, Path):
            return home
        try:
            orders = self._orders(launch, home, root)
        except (NoDevice, OSError) as failed:
            shutil.rmtree(home, ignore_errors=True)
            return NotStarted("CreateContainerError", str(failed))
        return await self._keepers.start(launch, orders)

    async def trouble(self) -> str:
        """What keeps any container from being started."""
        if not os.access(self._program, os.X_OK):
            return f"the OCI runtime `{self._program}` is gone or cannot be executed"
        if not self._rootfs.is_dir():
            return f"`{self._rootfs}`, with the files that containers see, is gone"
        return await super().trouble()

    def _root_of(self, image: str) -> Path | None:
        own = self._rootfs / safe_name(image)
        if image and own.is_dir():
            return own
        return self._rootfs if any((self._rootfs / name).exists() for name in _LIKE_A_ROOT) else None

    def _orders(self, launch: Launch, home: Path, root: Path) -> dict[str, Any]:
        place, before, after = root, [], []
        writable = bool(self._overlays) and not set(":,") & set(f"{root}{home}")
        if writable:
            place = home / "root"
            before, after = [errand(_overlay(home, root))], [errand(_program("umount", "-l", str(place)))]
        document = configuration(launch, Root(str(place), writable), _inspect)
        (home / "config.json").write_bytes(msgspec.json.encode(document))
        container, pid_file = str(launch.id), str(home / "pid")
        create = ("create", "--bundle", str(home), "--pid-file", pid_file, container)
        return {
            "before": before,
            "create": self._call(home, create),
            "start": self._call(home, ("start", container)),
            "after": [self._call(home, ("delete", "--force", container)), *after],
            "pid_file": pid_file,
        }

    def _call(self, home: Path, words: Sequence[str]) -> dict[str, Any]:
        log = str(home / _LOG)
        argv = (str(self._program), "--root", str(self._states), "--log", log, *words)
        return errand(argv, timeout=_SECONDS, told=log)


def safe_name(image: str) -> str:
    """The directory of an image: its name with everything odd made into `_`."""
    return _UNSAFE.sub("_", image).lstrip(".") or "_"


def _inspect(path: str) -> Node | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return Node(status.st_mode, os.major(status.st_rdev), os.minor(status.st_rdev))


def _program(name: str, *arguments: str) -> tuple[str, ...]:
    return (shutil.which(name) or f"/bin/{name}", *arguments)


def _overlay(home: Path, root: Path) -> tuple[str, ...]:
    """What lays a directory to write to over the files of an image."""
    for name in ("root", "upper", "work"):
        (home / name).mkdir(mode=0o755)
    options = f"lowerdir={root},upperdir={home / 'upper'},workdir={home / 'work'}"
    return _program("mount", "-t", "overlay", "overlay", "-o", options, str(home / "root"))


def _can_overlay(directory: Path) -> bool:
    """Whether overlays work in a directory: not everywhere, and not for everybody."""

    with tempfile.TemporaryDirectory(prefix=".overlay-", dir=directory, ignore_cleanup_errors=True) as name:
        lower = Path(name) / "lower"
        lower.mkdir()
        done = subprocess.run(_overlay(Path(name), lower), capture_output=True, check=False, timeout=_SECONDS)
        if done.returncode == 0:
            umount = _program("umount", str(Path(name) / "root"))
            subprocess.run(umount, capture_output=True, check=False, timeout=_SECONDS)
        return done.returncode == 0
