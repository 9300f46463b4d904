"""The HTTP listener: serves an ASGI application on a socket, with TLS, through uvicorn.

Theory of operation: uvicorn serves HTTP/1.1 over connections with limits. The socket is bound before anything
else starts, so that a port in use is reported in one line. The caller decides when the listener stops: it
installs no signal handlers.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Generator
from typing import Any, Final

import uvicorn

from dray.errors import InputError
from dray.server.http.connection import LimitedConnection, RefusalCallback, build_connection_class
from dray.server.http.limits import ServerLimits

BACKLOG: Final = 2048
GRACE_SECONDS: Final = 3
IDLE_SECONDS: Final = 120


class ListenError(InputError):
    """The address cannot be listened on; the message says why and what to do."""


def listen(host: str, port: int) -> socket.socket:
    """Bind a socket to the address; port 0 takes any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        sock.close()
        raise ListenError(_explain_listen_error(host, port, error)) from None
    sock.setblocking(False)
    return sock


def _explain_listen_error(host: str, port: int, error: Exception) -> str:
    reason = getattr(error, "strerror", None) or str(error)
    in_use = "in use" in reason.lower()
    hint = "; choose another with --port, or 0 for any that is free" if in_use else "; choose another --host"
    return f"cannot listen on {host}:{port}: {reason.lower()}{hint}"


class HttpListener(uvicorn.Server):
    """Serves an application until `stop` is called."""

    def __init__(
        self,
        app: Callable[..., Any],
        sock: socket.socket,
        tls: ssl.SSLContext | None,
        limits: ServerLimits,
        on_refused: RefusalCallback,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=build_connection_class(LimitedConnection, limits, on_refused),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            log_level="error",
            server_header=False,
            proxy_headers=False,
            date_header=True,
            backlog=BACKLOG,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        config.load()
        config.ssl = tls
        super().__init__(config)
        self._sock = sock

    async def run_until_stopped(self) -> None:
        """Serve; returns after `stop`, when open requests have ended or the grace period is over."""
        await self.serve(sockets=[self._sock])

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self.server_state.connections)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop serving; clients that are still connected after the grace period are disconnected."""
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()  # uvicorn cancels its tasks only, and leaves the socket open
        await asyncio.sleep(0)

    def stop(self) -> None:
        """Accept no new connections and end."""
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture none: signals belong to the owner of the process."""
        yield
