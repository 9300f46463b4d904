"""The agent's side of the fork server: requests shims, and restarts the fork server when it has ended."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from pathlib import Path
from typing import Final

import dray

_PROGRAM: Final = (
    "import sys;sys.path.append(sys.argv[1]);"
    "from dray.node.containers.runtime.shim.fork_server import main;sys.exit(main())"
)
_ENDED_SERVERS: Final[set[int]] = set()
"""Pids of fork servers that were closed; they end by themselves and have to be reaped."""


class ShimSpawner:
    """Spawns shims through a fork server, which starts with the first of them."""

    def __init__(self) -> None:
        self._socket = -1
        self._pid = 0

    def spawn(self, task: str, directory: Path) -> int:
        """Start a shim for a directory; return a pipe for its ready message, closed at its end."""
        ready, ready_write = os.pipe()
        try:
            for last in (False, True):
                if self._socket < 0:
                    self._start_fork_server()
                try:
                    self._send(f"{task} {directory}".encode(), ready_write)
                    break
                except OSError:
                    # The fork server was killed; start another.
                    self.close()
                    if last:
                        raise
        except OSError:
            os.close(ready)
            raise
        finally:
            os.close(ready_write)
        return ready

    def _send(self, message: bytes, ready_fd: int) -> None:
        connection = socket.socket(fileno=self._socket)
        try:
            socket.send_fds(connection, [message], [ready_fd], socket.MSG_NOSIGNAL)
        finally:
            # Kept as a descriptor: a socket object would warn when an agent ends without closing it.
            connection.detach()

    def _start_fork_server(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        root = str(Path(dray.__file__).parent.parent)
        argv = (sys.executable, "-I", "-S", "-X", "no_debug_ranges", "-c", _PROGRAM, root)
        try:
            self._pid = os.posix_spawn(
                sys.executable,
                argv,
                {},
                file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)],
                setsid=True,
                setsigmask=(),
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._socket = ours.detach()

    def close(self) -> None:
        """Close the connection, which ends the fork server; its shims continue."""
        if self._socket >= 0:
            os.close(self._socket)
            self._socket = -1
            _ENDED_SERVERS.add(self._pid)
        for pid in tuple(_ENDED_SERVERS):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            _ENDED_SERVERS.discard(pid)

    def __del__(self) -> None:
        if self._socket >= 0:
            os.close(self._socket)
            _ENDED_SERVERS.add(self._pid)
