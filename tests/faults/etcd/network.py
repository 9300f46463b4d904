"""Lines between etcd members that can be cut, without touching the machine's network.

Theory of operation: each member tells the others the address of a proxy instead of its own. A proxy passes
everything on. Members say in the head of each request to another member who they are, so that the proxy knows
both ends of a line and can cut exactly one: what is open is torn, what is new is refused. Clients use no
proxy, so that a member alone in the dark still hears its clients, which is the interesting case.
"""

from __future__ import annotations

import asyncio
import contextlib

from tests.contract.etcd_server import Member

HEAD_LIMIT = 1 << 16
SENDER = b"x-server-from:"
NOBODY = ""


class Network:
    """The proxies of all members."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._lines: set[Line] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self._cut: set[frozenset[str]] = set()
        self.names: dict[str, str] = {}
        """The identity by which a member signs, in hexadecimal digits, to its name."""

    async def add_proxy(self, member: Member) -> None:
        async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._passing.add(task)
            try:
                await self._pass(member, reader, writer)
            except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                pass  # One end went away, which is what these tests are about.
            finally:
                self._passing.discard(task)
                writer.close()

        server = await asyncio.start_server(passed, "127.0.0.1", 0, limit=HEAD_LIMIT)
        self._servers.append(server)
        member.proxy = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    def isolate(self, member: Member, members: list[Member]) -> None:
        """Cut the member off from all others."""
        self._cut |= {frozenset((member.name, other.name)) for other in members if other is not member}
        for line in list(self._lines):
            if self._is_cut(line.ends):
                line.tear()

    def _is_cut(self, ends: frozenset[str]) -> bool:
        # A connection may begin with a request without a signature and be reused later; it is then cut with
        # any connection of that proxy, and its user reconnects with a signature.
        if NOBODY in ends:
            return any(ends & pair for pair in self._cut)
        return ends in self._cut

    def heal(self) -> None:
        self._cut.clear()

    async def close(self) -> None:
        """Call this when the members are gone: what is passed on then ends by itself."""
        for server in self._servers:
            server.close()
        for line in list(self._lines):
            line.tear()
        if self._passing:
            await asyncio.wait(self._passing, timeout=5)

    async def _pass(self, member: Member, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        sender = next((line for line in head.lower().split(b"\r\n") if line.startswith(SENDER)), b"")
        name = self.names.get(sender.removeprefix(SENDER).strip().decode("ascii", "replace"), NOBODY)
        ends = frozenset((name, member.name))
        if self._is_cut(ends):
            return
        host, _, port = member.peer.partition(":")
        beyond, onward = await asyncio.open_connection(host, int(port))
        onward.write(head)
        line = Line(ends, (writer, onward))
        self._lines.add(line)
        try:
            await asyncio.gather(pump(reader, onward), pump(beyond, writer))
        finally:
            self._lines.discard(line)
            line.tear()


class Line:
    """One connection between two members."""

    def __init__(self, ends: frozenset[str], writers: tuple[asyncio.StreamWriter, ...]) -> None:
        self.ends = ends
        self._writers = writers

    def tear(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass everything on until one side ends."""
    with contextlib.suppress(OSError):
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
    writer.close()
