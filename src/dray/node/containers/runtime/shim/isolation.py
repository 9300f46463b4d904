"""Forks the first process of a container into namespaces of its own, for agents that cannot change users.

Theory of operation: a process in a user namespace keeps the user of the agent, so file permissions do not
separate the two. The mount namespace does: directories of the agent are covered by empty ones, everything
else is read-only, and the directories for temporary files are the container's own. The process has lost its
capabilities when it executes its command, and mounts that a namespace of fewer rights inherits cannot be
removed. The process namespace takes the agent and other containers out of reach of signals; `ptrace` and
`/proc/PID/environ` of processes outside of the user namespace are refused by the kernel.

Three processes are needed. One enters the namespaces and forks the other two: the first process of the
process namespace, which does nothing and ends with the container, and the container's own, which must be a
child of the shim (`CLONE_PARENT`) and must not be the first, because the kernel drops signals to that one.

Rules for this file: it imports as little as the other modules of the shim.
"""

from __future__ import annotations

import ctypes
import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, Final
else:
    import _signal as signal

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_NEW_NAMESPACES: Final = 0x10000000 | 0x00020000 | 0x20000000
"""CLONE_NEWUSER, CLONE_NEWNS and CLONE_NEWPID."""
_CLONE_PARENT: Final = 0x00008000
_SYS_CLONE3: Final = 435
_SYS_MOUNT_SETATTR: Final = 442
_NOSUID_NODEV: Final = 2 | 4
_NOEXEC: Final = 8
_BIND: Final = 4096
_PRIVATE_RECURSIVE: Final = 0x4000 | 0x40000
_READ_ONLY: Final = 1
_CURRENT_DIRECTORY: Final = -100
_RECURSIVE: Final = 0x8000
_SET_DUMPABLE: Final = 4
_SET_NAME: Final = 15
_DROP_BOUNDING_CAPABILITY: Final = 24
_SET_SECURE_BITS: Final = 28
_ROOT_HAS_NO_CAPABILITIES: Final = 0b11
"""SECBIT_NOROOT and its lock."""
_MAX_CAPABILITIES: Final = 64
_SET_NO_NEW_PRIVILEGES: Final = 38
_MAX_FILES: Final = 65536
_TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev/shm")


class _CloneArguments(ctypes.Structure):
    """The arguments of `clone3`, in its first version."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls")
    ]


class _MountAttributes(ctypes.Structure):
    """The arguments of `mount_setattr`."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_namespace")]


def drop_privileges() -> None:
    """Let this process lose its capabilities when it executes a program, and never gain any."""
    # Also user 0 of a namespace must have none: it could uncover what was covered.
    if _LIBC.prctl(_SET_SECURE_BITS, _ROOT_HAS_NO_CAPABILITIES, 0, 0, 0) == 0:
        for number in range(_MAX_CAPABILITIES):
            _LIBC.prctl(_DROP_BOUNDING_CAPABILITY, number, 0, 0, 0)
    elif os.geteuid() == 0:
        _check(-1, "capabilities")
    _check(_LIBC.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no new privileges")


def fork_into_namespaces(view: dict[str, Any]) -> int:
    """Fork a child of this process in namespaces of its own: 0 in the child, its pid in the parent.

    `view` has the paths to hide (`hide`) and the directory for temporary files (`scratch`).
    """
    answer, answer_write = os.pipe()
    forker = os.fork()
    if not forker:
        if _run_forker(view, answer_write):
            return 0
        os._exit(0)
    os.close(answer_write)
    message = os.read(answer, 4096).decode("utf-8", "replace")
    os.close(answer)
    os.waitpid(forker, 0)
    if not message.isdecimal():
        raise OSError(f"cannot isolate the container: {message or 'the process ended at once'}")
    return int(message)


def _run_forker(view: dict[str, Any], answer: int) -> bool:
    """Enter the namespaces and fork; True in the container's first process."""
    try:
        signal.set_wakeup_fd(-1)
        _enter_namespaces()
        _cover_paths(view)
        go, go_write = os.pipe()
        if os.fork() == 0:
            os.close(go_write)
            _run_first_process(go)
        arguments = _CloneArguments(flags=_CLONE_PARENT)
        pid = _LIBC.syscall(_SYS_CLONE3, ctypes.byref(arguments), ctypes.sizeof(arguments))
        _check(pid, "clone")
        if pid == 0:
            for descriptor in (answer, go, go_write):
                os.close(descriptor)
            # Where the machine's own is partly covered the kernel refuses a new one.
            _LIBC.mount(b"proc", b"/proc", b"proc", _NOSUID_NODEV | _NOEXEC, None)
            return True
        os.write(go_write, b"go")
        os.write(answer, str(pid).encode())
    except BaseException as error:
        os.write(answer, str(error).encode("utf-8", "replace")[:4096] or b"unknown")
    return False


def _enter_namespaces() -> None:
    user, group = os.geteuid(), os.getegid()
    _check(_LIBC.unshare(_NEW_NAMESPACES), "user namespace")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    _check(_LIBC.mount(None, b"/", None, _PRIVATE_RECURSIVE, None), "mount namespace")


def _cover_paths(view: dict[str, Any]) -> None:
    """Cover what the container must not see, and make everything else read-only."""
    for path in sorted(view["hide"], key=len):
        if os.path.isdir(path):
            _mount_empty(path, "mode=0555")
        elif os.path.exists(path):
            _check(_LIBC.mount(b"/dev/null", os.fsencode(path), None, _BIND, None), f"cover `{path}`")
    attributes = _MountAttributes(set=_READ_ONLY)
    size = ctypes.sizeof(attributes)
    done = _LIBC.syscall(
        _SYS_MOUNT_SETATTR, _CURRENT_DIRECTORY, b"/", _RECURSIVE, ctypes.byref(attributes), size
    )
    _check(done, "read-only files")
    for path in filter(os.path.isdir, _TEMPORARY):
        _mount_empty(path, "mode=1777")
    os.makedirs(view["scratch"], 0o700)


def _mount_empty(path: str, options: str) -> None:
    done = _LIBC.mount(b"tmpfs", os.fsencode(path), b"tmpfs", _NOSUID_NODEV, options.encode())
    _check(done, f"cover `{path}`")


def _run_first_process(go: int) -> None:
    """Be the first process of the process namespace until the container's has ended; never returns."""
    try:
        _LIBC.prctl(_SET_DUMPABLE, 0, 0, 0, 0)
        _LIBC.prctl(_SET_NAME, b"dray-init", 0, 0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        os.dup2(go, 0)
        os.closerange(1, _MAX_FILES)
        if os.read(0, 2):
            # The container's process is the second in this namespace.
            os.dup2(os.pidfd_open(2), 0)
            poll = select.poll()
            poll.register(0, select.POLLIN)
            poll.poll()
    finally:
        os._exit(0)


def _check(result: int, what: str) -> None:
    if result < 0:
        raise OSError(f"{what}: {os.strerror(ctypes.get_errno())}")


def find_problem() -> str:
    """Fork a process into namespaces that ends at once; return what the kernel refused, or nothing."""
    try:
        pid = fork_into_namespaces({"hide": [], "scratch": f"{_TEMPORARY[0]}/probe"})
    except OSError as error:
        return str(error)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return ""
