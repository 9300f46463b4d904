"""Forks the first process of a container into namespaces of its own.

Theory of operation: an agent that can change users needs a mount namespace only. Any other one also needs a
user namespace, in which the container keeps the user of the agent, so that file permissions do not separate
the two: the mounts do, see the module `mounts`. The process namespace takes the agent and other containers
out of reach of signals; `ptrace` and `/proc/PID/environ` of processes outside of the user namespace are
refused by the kernel.

Three processes are needed for these. One enters the namespaces and forks the other two: the first process of
the process namespace, which does nothing and ends with the container, and the container's own, which must be
a child of the shim (`CLONE_PARENT`) and must not be the first, because the kernel drops signals to that one.

Rules for this file: it imports as little as the other modules of the shim.
"""

from __future__ import annotations

import ctypes
import os
import select

from dray.node.containers.runtime.shim.mounts import arrange_mounts, check_result, mount_processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, Final
else:
    import _signal as signal

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_NEW_MOUNTS: Final = 0x00020000
_NEW_NAMESPACES: Final = _NEW_MOUNTS | 0x10000000 | 0x20000000
"""CLONE_NEWNS, CLONE_NEWUSER and CLONE_NEWPID."""
_CLONE_PARENT: Final = 0x00008000
_SYS_CLONE3: Final = 435
_SET_DUMPABLE: Final = 4
_SET_NAME: Final = 15
_DROP_BOUNDING_CAPABILITY: Final = 24
_SET_SECURE_BITS: Final = 28
_ROOT_HAS_NO_CAPABILITIES: Final = 0b11
"""SECBIT_NOROOT and its lock."""
_MAX_CAPABILITIES: Final = 64
_SET_NO_NEW_PRIVILEGES: Final = 38
_MAX_FILES: Final = 65536
_ENTERED: Final = "entered"


class _CloneArguments(ctypes.Structure):
    """The arguments of `clone3`, in its first version."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls")
    ]


def drop_privileges() -> None:
    """Let this process lose its capabilities when it executes a program, and never gain any."""
    # Also user 0 of a namespace must have none: it could uncover what was covered.
    if _LIBC.prctl(_SET_SECURE_BITS, _ROOT_HAS_NO_CAPABILITIES, 0, 0, 0) == 0:
        for number in range(_MAX_CAPABILITIES):
            _LIBC.prctl(_DROP_BOUNDING_CAPABILITY, number, 0, 0, 0)
    elif os.geteuid() == 0:
        check_result(-1, "capabilities")
    check_result(_LIBC.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no new privileges")


def fork_into_namespaces(view: dict[str, Any]) -> int:
    """Fork a child of this process in namespaces of its own: 0 in the child, its pid in the parent.

    `view` is what the child sees of the machine, see the module `mounts`.
    """
    answer, answer_write = os.pipe()
    child = os.fork()
    if not child:
        if view["user_namespace"]:
            if _run_forker(view, answer_write):
                return 0
            os._exit(0)
        _enter_mount_namespace(view, answer_write)
        return 0
    os.close(answer_write)
    message = os.read(answer, 4096).decode("utf-8", "replace")
    os.close(answer)
    if view["user_namespace"] or message != _ENTERED:
        os.waitpid(child, 0)
    if message == _ENTERED:
        return child
    if not message.isdecimal():
        raise OSError(f"cannot isolate the container: {message or 'the process ended at once'}")
    return int(message)


def _enter_mount_namespace(view: dict[str, Any], answer: int) -> None:
    """Enter a mount namespace; end this process when that fails."""
    try:
        check_result(_LIBC.unshare(_NEW_MOUNTS), "mount namespace")
        arrange_mounts(view)
        mount_processes(hide_others=True)
        os.write(answer, _ENTERED.encode())
        os.close(answer)
    except BaseException as error:
        _report(answer, error)
        os._exit(0)


def _report(answer: int, error: BaseException) -> None:
    os.write(answer, str(error).encode("utf-8", "replace")[:4096] or b"unknown")


def _run_forker(view: dict[str, Any], answer: int) -> bool:
    """Enter the namespaces and fork; True in the container's first process."""
    try:
        signal.set_wakeup_fd(-1)
        _enter_namespaces()
        arrange_mounts(view)
        go, go_write = os.pipe()
        if os.fork() == 0:
            os.close(go_write)
            _run_first_process(go)
        arguments = _CloneArguments(flags=_CLONE_PARENT)
        pid = _LIBC.syscall(_SYS_CLONE3, ctypes.byref(arguments), ctypes.sizeof(arguments))
        check_result(pid, "clone")
        if pid == 0:
            for descriptor in (answer, go, go_write):
                os.close(descriptor)
            mount_processes(hide_others=False)
            return True
        os.write(go_write, b"go")
        os.write(answer, str(pid).encode())
    except BaseException as error:
        _report(answer, error)
    return False


def _enter_namespaces() -> None:
    user, group = os.geteuid(), os.getegid()
    check_result(_LIBC.unshare(_NEW_NAMESPACES), "user namespace")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


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


def find_problem(*, user_namespace: bool) -> str:
    """Fork a process into namespaces that ends at once; return what the kernel refused, or nothing."""
    view = {"user_namespace": user_namespace, "hide": [], "keep": [], "devices": [], "owner": 0}
    try:
        pid = fork_into_namespaces({**view, "scratch": ""})
    except OSError as error:
        return str(error)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return ""
