"""What the first process of a container sees of the machine: its mounts, in a mount namespace of its own.

Theory of operation: directories of the agent are covered by empty ones. `/dev` has the usual device files and
those of the container's claims; others of the machine are out of reach, whoever may open them. With a user
namespace, in which the container still has the user of the agent, everything else is read-only and the
directories for temporary files are the container's own. Mounts can only be removed by a process with
capabilities here, and the container has lost them when it executes its command; a namespace that it makes
itself inherits these mounts in a form that cannot be removed.

A view is a dictionary: `user_namespace`, whether there is one; `hide`, the paths to cover; `keep`, those that
the container may use nevertheless, each with `path` and `read_only`; `devices`, the device files, each with
`path` and `source`, and with `mode` and `numbers` where the file is made for the container's user, which is
`owner`; `scratch`, a directory to make for temporary files, or nothing.

Rules for this file: it imports as little as the other modules of the shim.
"""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_SYS_MOUNT_SETATTR: Final = 442
_NOSUID: Final = 2
_NODEV: Final = 4
_NOEXEC: Final = 8
_BIND: Final = 4096
_RECURSIVE_BIND: Final = 4096 | 0x4000
_PRIVATE_RECURSIVE: Final = 0x4000 | 0x40000
_READ_ONLY: Final = 1
_CURRENT_DIRECTORY: Final = -100
_RECURSIVE: Final = 0x8000
_PROC: Final = b"/proc"
_DEVICES: Final = "/dev"
_COMMON_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS: Final = (
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
)
_SHARED_MEMORY: Final = "/dev/shm"
TEMPORARY: Final = ("/tmp", "/var/tmp")


class _MountAttributes(ctypes.Structure):
    """The arguments of `mount_setattr`."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_namespace")]


def arrange_mounts(view: dict[str, Any]) -> None:
    """Arrange the mounts of a container in the mount namespace of this process, which is new."""
    os.umask(0o022)
    _mount(None, "/", None, _PRIVATE_RECURSIVE)
    # Opened first: the covers hide them.
    kept = [(each, _open_path(each["path"])) for each in view["keep"]]
    devices = [(each, _open_path(each["source"])) for each in _list_devices(view)]
    for path in sorted(view["hide"], key=len):
        _cover(path)
    _make_devices(devices, view["owner"])
    if view["user_namespace"]:
        check_result(_set_read_only("/", True), "make all files read-only")
        for path in filter(os.path.isdir, TEMPORARY):
            _mount_empty(path, "mode=1777")
    _mount_empty(_SHARED_MEMORY, "mode=1777")
    for each, source in kept:
        _bind(source, each["path"])
        done = _set_read_only(each["path"], each["read_only"]) if source is not None else 0
        # What the machine itself mounts read-only stays so.
        check_result(done if each["read_only"] else 0, f"make `{each['path']}` read-only")
    if view["scratch"]:
        os.makedirs(view["scratch"], 0o700)


def mount_processes(*, hide_others: bool) -> None:
    """Mount a `/proc` of the process namespace of this process, without processes of other users."""
    # Where the machine's own is partly covered the kernel refuses a new one.
    options = b"hidepid=2" if hide_others else None
    _LIBC.mount(b"proc", _PROC, b"proc", _NOSUID | _NODEV | _NOEXEC, options)


def check_result(result: int, what: str) -> None:
    """Raise the error of a system call that failed."""
    if result < 0:
        raise OSError(f"{what}: {os.strerror(ctypes.get_errno())}")


def _list_devices(view: dict[str, Any]) -> list[dict[str, Any]]:
    given = view["devices"]
    paths = {each["path"] for each in given}
    common = [f"{_DEVICES}/{name}" for name in _COMMON_DEVICES]
    return [*given, *({"path": path, "source": path} for path in common if path not in paths)]


def _make_devices(devices: list[tuple[dict[str, Any], int | None]], owner: int) -> None:
    _mount("tmpfs", _DEVICES, "tmpfs", _NOSUID | _NOEXEC, "mode=755,size=1m")
    for device, source in devices:
        if "numbers" in device:
            os.makedirs(os.path.dirname(device["path"]), 0o755, exist_ok=True)
            os.mknod(device["path"], device["mode"], os.makedev(*device["numbers"]))
            os.chmod(device["path"], device["mode"] & 0o777)
            os.chown(device["path"], owner, owner)
        elif source is not None:
            _bind(source, device["path"])
    for name, target in _DEVICE_LINKS:
        os.symlink(target, f"{_DEVICES}/{name}")
    terminals = f"{_DEVICES}/pts"
    os.mkdir(terminals, 0o755)
    # A container without terminals is still of use.
    options = b"newinstance,ptmxmode=0666,mode=0620"
    _LIBC.mount(b"devpts", terminals.encode(), b"devpts", _NOSUID | _NOEXEC, options)
    os.mkdir(_SHARED_MEMORY)


def _open_path(path: str) -> int | None:
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None


def _bind(source: int | None, path: str) -> None:
    """Bind an opened file or directory to a path, and make what is to be covered there."""
    if source is None:
        return
    name = f"/proc/self/fd/{source}"
    if not os.path.lexists(path):
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        if os.path.isdir(name):
            os.mkdir(path, 0o755)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    _mount(name, path, None, _RECURSIVE_BIND)
    os.close(source)


def _cover(path: str) -> None:
    if os.path.isdir(path):
        _mount_empty(path, "mode=0555")
    elif os.path.exists(path):
        _mount(os.devnull, path, None, _BIND)


def _set_read_only(path: str, wanted: bool) -> int:
    attributes = _MountAttributes(**{"set" if wanted else "clear": _READ_ONLY})
    place = (_CURRENT_DIRECTORY, os.fsencode(path), _RECURSIVE)
    arguments = (ctypes.byref(attributes), ctypes.sizeof(attributes))
    result: int = _LIBC.syscall(_SYS_MOUNT_SETATTR, *place, *arguments)
    return result


def _mount_empty(path: str, options: str) -> None:
    _mount("tmpfs", path, "tmpfs", _NOSUID | _NODEV, options)


def _mount(source: str | None, path: str, kind: str | None, flags: int, options: str | None = None) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, path, kind, options)]
    done = _LIBC.mount(words[0], words[1], words[2], flags, words[3])
    check_result(done, f"mount `{path}`")
