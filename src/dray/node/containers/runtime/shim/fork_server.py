"""The cradle: a process that has read everything a keeper needs, and becomes one by forking when it is asked
to.

Theory of operation: keepers that come from one process share its memory until they change it, and need not
start an interpreter: a third of the memory and a tenth of the time. The agent cannot be that process (it has
threads and gRPC channels), so it starts this one and asks through a socket: a message is a task and a
directory, with the open file in which the keeper says that it is ready. When the agent goes, the cradle goes;
keepers stay.

Rules for this file: nothing may be changed in the cradle after it has started, or it is no longer shared.
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
    """Serve the agent at the other end of standard input until it goes."""
    gc.freeze()
    gc.disable()
    program.set_process_name("dray-cradle")
    # Keepers are nobody's to wait for: they say themselves how things ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    line = socket.socket(fileno=0)
    while True:
        message, extra, _, _ = line.recvmsg(8192, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
        if not message or not extra:
            return
        ready = int.from_bytes(extra[0][2][:4], sys.byteorder)
        if os.fork() == 0:
            line.detach()
            _become_shim(message.decode(), ready)
        os.close(ready)


def _become_shim(message: str, ready: int) -> None:
    """Never returns."""
    code = 1
    try:
        task, home = message.split(" ", 1)
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        notes = os.open(
            f"{home}/{files.NOTES}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600
        )
        # Out of the way first: any of them may have a number that another one is to have.
        ready = _move_descriptor(ready)
        for ours, number in (
            (nothing, 0),
            (nothing, 1),
            (_move_descriptor(notes), 2),
            (ready, program.READY_FD),
        ):
            os.dup2(ours, number, inheritable=number != program.READY_FD)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        code = program.main(home, task)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _move_descriptor(descriptor: int) -> int:
    """The same file under a number that nobody asks for."""
    while descriptor <= program.READY_FD:
        descriptor = os.dup(descriptor)
    return descriptor
