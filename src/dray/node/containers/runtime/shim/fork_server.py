"""The fork server of shims: a process that has imported all a shim needs, and forks one on request.

Theory of operation: shims forked from one process share its memory until they change it, and need not start
an interpreter: a third of the memory and a tenth of the time. The agent cannot be that process (it has
threads and gRPC channels), so it starts this one and sends requests through a socket: a message is a task and
a directory, with the descriptor that the shim writes to when it is ready. When the agent ends, the fork
server ends; shims continue.

Rules for this file: the fork server changes no memory after it has started, or it is no longer shared.
"""

from __future__ import annotations

import gc
import os
import sys

from dray.node.containers.runtime.shim import files, program

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
else:
    import _signal as signal
    import _socket as socket


def main() -> None:
    """Serve the agent at the other end of standard input until it closes the connection."""
    gc.freeze()
    gc.disable()
    program.set_process_name("dray-forkserver")
    # Shims are not waited for: they write their exit files themselves.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    connection = socket.socket(fileno=0)
    while True:
        message, extra, _, _ = connection.recvmsg(8192, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
        if not message or not extra:
            return
        ready = int.from_bytes(extra[0][2][:4], sys.byteorder)
        if os.fork() == 0:
            connection.detach()
            _become_shim(message.decode(), ready)
        os.close(ready)


def _become_shim(message: str, ready: int) -> None:
    """Run the shim in this forked process; never returns."""
    code = 1
    try:
        task, directory = message.split(" ", 1)
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        notes = os.open(
            f"{directory}/{files.NOTES}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600
        )
        # Moved first: any of them may have a number that another one needs.
        ready = _move_descriptor(ready)
        for ours, number in (
            (null, 0),
            (null, 1),
            (_move_descriptor(notes), 2),
            (ready, program.READY_FD),
        ):
            os.dup2(ours, number, inheritable=number != program.READY_FD)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        code = program.main(directory, task)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _move_descriptor(descriptor: int) -> int:
    """Duplicate a descriptor to a number above those that are assigned."""
    while descriptor <= program.READY_FD:
        descriptor = os.dup(descriptor)
    return descriptor
