"""Asks the plugins at the sockets of a node who they are, as a kubelet does, without registering them.

Theory of operation: `GetInfo` changes nothing in a plugin, and a kubelet gives it one second. A plugin that
takes longer has been registered only by luck. Whether a process listens at the endpoint that a plugin names
is seen by connecting to it; no call is made there.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc.aio

from dray.node.plugins.driver_replies import describe_error, sanitize_text
from dray.wire import unix_sockets
from dray.wire.grpc_services import REGISTRATION, GrpcStub, UnreadableReplyError

GET_INFO_SECONDS: Final = 1.0
"""How long a kubelet waits for `GetInfo`."""
_MAX_SOCKETS: Final = 1_000
_MAX_CONCURRENT: Final = 16


@dataclass(frozen=True, slots=True)
class PluginAnswer:
    """What the plugin at a socket answered, or why it did not."""

    socket: Path
    type: str = ""
    name: str = ""
    endpoint: str = ""
    error: str = ""
    is_listening: bool = True
    """Whether a process listens at the socket."""


def list_sockets(directory: Path, depth: int = 0) -> Iterator[Path]:
    """Yield the sockets in a directory, and so many levels below it; raises `OSError` for the first level."""
    found = 0
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if entry.is_dir(follow_symlinks=False) and depth:
                try:
                    yield from list_sockets(Path(entry.path), depth - 1)
                except OSError:
                    continue  # removed meanwhile
            elif stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
                found += 1
                if found > _MAX_SOCKETS:
                    return
                yield Path(entry.path)


def is_listening(path: Path) -> bool:
    """Whether a process listens at a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        try:
            client.connect(str(path))
        except BlockingIOError:
            return True  # it listens, and its queue is full
        except OSError:
            return False
    return True


async def ask_plugins(sockets: list[Path], timeout: float = GET_INFO_SECONDS) -> list[PluginAnswer]:
    """Ask the plugins at these sockets, some at a time."""
    limit = asyncio.Semaphore(_MAX_CONCURRENT)

    async def ask(path: Path) -> PluginAnswer:
        async with limit:
            return await ask_plugin(path, timeout)

    return list(await asyncio.gather(*map(ask, sockets)))


async def ask_plugin(path: Path, timeout: float = GET_INFO_SECONDS) -> PluginAnswer:
    """Ask one plugin."""
    if not is_listening(path):
        return PluginAnswer(path, error="no process listens there", is_listening=False)
    async with unix_sockets.open_channel(path) as channel:
        request = REGISTRATION.get_message_class("InfoRequest")()
        try:
            reply: Any = await GrpcStub(channel, REGISTRATION).call("GetInfo", request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                return PluginAnswer(path, error=f"GetInfo took more than {timeout:g} s")
            text = describe_error(error.details() or "")
            return PluginAnswer(path, error=f"GetInfo: {text} ({error.code().name})")
        except UnreadableReplyError as error:
            return PluginAnswer(path, error=str(error))
    endpoint = sanitize_text(reply.endpoint) or str(path)
    return PluginAnswer(path, sanitize_text(reply.type), sanitize_text(reply.name), endpoint)
