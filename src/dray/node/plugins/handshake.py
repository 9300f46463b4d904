"""The registration handshake with a plugin: GetInfo, validation, connection, and NotifyRegistrationStatus."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import grpc.aio

from dray.node.plugins.driver_client import DriverCallOptions, PluginRegistration, build_driver_client
from dray.node.plugins.driver_interface import DriverClient
from dray.node.plugins.driver_replies import describe_error
from dray.node.plugins.registration_validation import (
    RegistrationRefusal,
    check_socket,
    validate_registration,
)
from dray.wire import unix_sockets
from dray.wire.grpc_services import REGISTRATION, GrpcStub, UnreadableReplyError


class SocketIdentity(NamedTuple):
    """Distinguishes a socket file from a later one at the same path."""

    device: int
    inode: int
    modified: int


@dataclass(slots=True)
class PluginInstance:
    """A registered instance of a driver, by one of its sockets."""

    registration: PluginRegistration
    channel: Any
    client: DriverClient
    order: int
    """Rises with each registration."""
    unreachable_since: float | None = None


def identify_socket(path: Path) -> SocketIdentity | None:
    """Return the identity of the file at a path; None when there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return SocketIdentity(found.st_dev, found.st_ino, found.st_mtime_ns)


class PluginHandshake:
    """Performs handshakes; `timeout` limits each call of a plugin."""

    def __init__(
        self, timeout: float, endpoint_directories: Sequence[Path], call_options: DriverCallOptions
    ) -> None:
        self._timeout = timeout
        self._endpoint_directories = endpoint_directories
        self._call_options = call_options
        self._order = itertools.count(1)

    async def register(
        self, path: Path, identity: SocketIdentity, channel: Any
    ) -> PluginInstance | RegistrationRefusal | str:
        """Register the plugin that listens at a socket; return why not when it is refused or fails."""
        wrong = check_socket(path)
        if wrong:
            return wrong
        stub = GrpcStub(channel, REGISTRATION)
        info = await self._call(stub, "GetInfo", REGISTRATION.get_message_class("InfoRequest")())
        if isinstance(info, str):
            return info
        if identify_socket(path) != identity:
            # The plugin that replied listens at another socket, which is registered separately.
            return "its socket was replaced"
        registration = validate_registration(info, path, self._endpoint_directories)
        if isinstance(registration, RegistrationRefusal):
            await self._notify_status(stub, registration.text)
            return registration
        instance, accepted = self._connect(registration), False
        try:
            wrong = await self._check_reachable(instance)
            wrong = await self._notify_status(stub, wrong) or wrong
            accepted = not wrong
        finally:
            if not accepted:
                await instance.channel.close()
        return wrong or instance

    def _connect(self, registration: PluginRegistration) -> PluginInstance:
        channel = unix_sockets.open_channel(registration.endpoint)
        client = build_driver_client(registration, channel, self._call_options)
        return PluginInstance(registration, channel, client, next(self._order))

    async def _check_reachable(self, instance: PluginInstance) -> str:
        try:
            async with asyncio.timeout(self._timeout):
                await instance.channel.channel_ready()
        except TimeoutError:
            return (
                f"driver `{instance.registration.name}` does not listen at its endpoint "
                f"`{instance.registration.endpoint}`"
            )
        return ""

    async def _notify_status(self, stub: GrpcStub, error: str) -> str:
        """Notify a plugin of the outcome of its registration; return why that failed, or nothing."""
        status = REGISTRATION.get_message_class("RegistrationStatus")(
            plugin_registered=not error, error=error
        )
        reply = await self._call(stub, "NotifyRegistrationStatus", status)
        return reply if isinstance(reply, str) else ""

    async def _call(self, stub: GrpcStub, method: str, request: Any) -> Any:
        """Return the reply, or a text that says why there is none."""
        try:
            return await stub.call(method, request, timeout=self._timeout)
        except grpc.aio.AioRpcError as error:
            return f"{method}: {describe_error(error.details() or '')} ({error.code().name})"
        except UnreadableReplyError as error:
            return str(error)
