"""Credentials from an exec plugin, as `client.authentication.k8s.io` describes.

Theory of operation: the plugin is started when there is no credential, when the last one has expired, and
when the server refused it; it prints an `ExecCredential`. However many requests wait, it runs once. It never
gets a terminal: a server process has no user to ask.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from dray.api.json_text import read_json, write_json
from dray.client.config.client_config import ClientConfigError, ClientCredential
from dray.client.timing import TimeSource
from dray.errors import DecodeError

VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

RUN_TIMEOUT_SECONDS: Final = 60.0
EXPIRY_MARGIN: Final = timedelta(seconds=10)
"""A credential that expires while a request is in flight is of no use."""

MAX_SHOWN_BYTES: Final = 500


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """The program to start. `cluster` is passed to it when it asks for cluster information."""

    command: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    version: str = VERSIONS[0]
    cluster: Mapping[str, Any] | None = None
    install_hint: str = ""


class ExecCredentialProvider:
    """A credential that a program prints."""

    def __init__(self, plugin: ExecPlugin, time_source: TimeSource | None = None) -> None:
        self._plugin = plugin
        self._clock = (time_source or TimeSource()).clock
        self._credential: ClientCredential | None = None
        self._expires: datetime | None = None
        self._lock = asyncio.Lock()

    async def get_credential(self) -> ClientCredential:
        async with self._lock:
            if self._credential is None or self._is_expired():
                await self._refresh()
            assert self._credential is not None
            return self._credential

    async def renew_credential(self, refused: ClientCredential) -> ClientCredential:
        async with self._lock:
            if self._credential is None or self._credential == refused:
                await self._refresh()
            assert self._credential is not None
            return self._credential

    def _is_expired(self) -> bool:
        return self._expires is not None and self._clock.now() + EXPIRY_MARGIN >= self._expires

    async def _refresh(self) -> None:
        printed = await _run_plugin(self._plugin)
        self._credential, self._expires = _parse_output(self._plugin, printed)


async def _run_plugin(plugin: ExecPlugin) -> bytes:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    info = {"apiVersion": plugin.version, "kind": "ExecCredential", "spec": spec}
    environment = {
        **os.environ,
        **plugin.environment,
        "KUBERNETES_EXEC_INFO": write_json(info).decode(),
    }
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.arguments,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as refused:
        hint = f"; {plugin.install_hint}" if plugin.install_hint else ""
        raise ClientConfigError(
            f"cannot start the credentials program `{plugin.command}`: {refused.strerror}{hint}"
        ) from None
    return await _wait_for_output(plugin, process)


async def _wait_for_output(plugin: ExecPlugin, process: asyncio.subprocess.Process) -> bytes:
    try:
        async with asyncio.timeout(RUN_TIMEOUT_SECONDS):
            printed, errors = await process.communicate()
    except TimeoutError:
        raise ClientConfigError(
            f"the credentials program `{plugin.command}` did not end in {RUN_TIMEOUT_SECONDS:g} seconds"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        text = errors[-MAX_SHOWN_BYTES:].decode("utf-8", "replace").strip()
        raise ClientConfigError(
            f"the credentials program `{plugin.command}` failed with code {process.returncode}"
            + (f": {text}" if text else "")
        )
    return printed


def _parse_output(plugin: ExecPlugin, printed: bytes) -> tuple[ClientCredential, datetime | None]:
    try:
        document = read_json(printed)
        status = document["status"]
        version = document["apiVersion"]
    except (DecodeError, KeyError, TypeError):
        raise _build_output_error(plugin, "no ExecCredential with `status`") from None
    if version != plugin.version:
        raise _build_output_error(plugin, f"an ExecCredential of `{version}`, expected `{plugin.version}`")
    credential = ClientCredential(
        _get_text(status, "token"),
        _get_text(status, "clientCertificateData").encode(),
        _get_text(status, "clientKeyData").encode(),
    )
    if bool(credential.certificate) != bool(credential.key):
        raise _build_output_error(plugin, "only one of `clientCertificateData` and `clientKeyData`")
    if not credential.token and not credential.certificate:
        raise _build_output_error(plugin, "neither a token nor a certificate")
    return credential, _parse_expiry(plugin, status)


def _get_text(status: Mapping[str, Any], name: str) -> str:
    value = status.get(name)
    return value if isinstance(value, str) else ""


def _parse_expiry(plugin: ExecPlugin, status: Mapping[str, Any]) -> datetime | None:
    timestamp = _get_text(status, "expirationTimestamp")
    if not timestamp:
        return None
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _build_output_error(
            plugin, f"`expirationTimestamp` `{timestamp}`, expected for example `2026-01-31T12:00:00Z`"
        )
    return moment


def _build_output_error(plugin: ExecPlugin, what: str) -> ClientConfigError:
    return ClientConfigError(f"the credentials program `{plugin.command}` printed {what}")
