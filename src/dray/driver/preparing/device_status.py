"""The writer of device status: puts what a driver reports about devices into the claim's status.

Theory of operation: the writer uses server-side apply with a field manager named after the driver and its
node, so that the reports of other drivers in the same claim stay. It writes in the background: a pod does not
wait for it, and the writer retries until the server accepts the report or the claim is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.client.errors import (
    ApiError,
    ConflictError,
    InternalServerError,
    NotFoundError,
    ServiceUnavailableError,
    TooManyRequestsError,
)
from dray.client.events import truncate_text
from dray.client.patches import ApplyPatch
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff
from dray.driver.base import DeviceStatus
from dray.driver.preparing.claim_conversion import PrepareRefusedError
from dray.driver.preparing.prepared_records import PreparedClaimRecord
from dray.telemetry.logs import ChangeLogger, LogLevel, StructuredLogger

MAX_DATA_BYTES: Final = 10 * 1024
_MAX_MANAGER_BYTES: Final = 128
_TRANSIENT_ERRORS: Final = (TooManyRequestsError, InternalServerError, ServiceUnavailableError)


def build_status_document(status: DeviceStatus | None, now: str) -> dict[str, Any] | None:
    """Build a device's entry in the claim's status; conditions without a time get `now`."""
    if status is None:
        return None
    document: dict[str, Any] = {}
    if status.conditions:
        document["conditions"] = [
            msgspec.to_builtins(
                msgspec.structs.replace(each, last_transition_time=each.last_transition_time or now)
            )
            for each in status.conditions
        ]
    if status.data is not None:
        try:
            written = msgspec.json.encode(status.data)
        except (TypeError, msgspec.MsgspecError) as broken:
            raise PrepareRefusedError(f"the device status has data that is no JSON: {broken}") from None
        if not written.startswith(b"{"):
            raise PrepareRefusedError(f"the device status has data that is no JSON object: `{status.data!r}`")
        if len(written) > MAX_DATA_BYTES:
            raise PrepareRefusedError(
                f"the device status has {len(written)} bytes of data, at most {MAX_DATA_BYTES} are allowed"
            )
        document["data"] = status.data
    if status.network is not None:
        document["networkData"] = msgspec.to_builtins(status.network)
    return document


class DeviceStatusWriter:
    """Writes reports into claims, in the background."""

    def __init__(self, client: Client, driver: str, node: str, log: StructuredLogger) -> None:
        self._client = client
        self._driver = driver
        self._manager = truncate_text(f"{driver}/{node}", _MAX_MANAGER_BYTES)
        self._change_log = ChangeLogger(log)
        self._pending: dict[str, PreparedClaimRecord] = {}
        self._wake = asyncio.Event()

    def enqueue(self, record: PreparedClaimRecord) -> None:
        """Enqueue the reports of a claim."""
        if any(device.status for device in record.answers):
            self._pending[record.uid] = record
            self._wake.set()

    def forget(self, uid: str) -> None:
        """Drop the pending reports of a claim that was unprepared."""
        self._pending.pop(uid, None)
        self._change_log.clear(uid)

    async def run(self) -> None:
        """Write enqueued reports until cancelled."""
        backoff = Backoff(self._client.options.time_source, initial=0.2, maximum=30.0)
        while True:
            await self._wake.wait()
            self._wake.clear()
            for record in list(self._pending.values()):
                if await self._write(record):
                    backoff.reset()
                    if self._pending.get(record.uid) is record:
                        del self._pending[record.uid]
            if self._pending:
                self._wake.set()
                await backoff.wait()

    async def _write(self, record: PreparedClaimRecord) -> bool:
        """Write the reports of a claim; False when it should be retried."""
        change = ApplyPatch(self._build_document(record), self._manager, force=True)
        try:
            await self._client.patch(
                ResourceClaim, record.name, change, record.namespace, subresource="status"
            )
        except (NotFoundError, ConflictError):
            return True  # the claim is gone, or another one has its name
        except CALL_ERRORS as failed:
            permanent = isinstance(failed, ApiError) and not isinstance(failed, _TRANSIENT_ERRORS)
            self._change_log.report(
                record.uid,
                LogLevel.WARNING,
                "cannot write the status of devices",
                driver=self._driver,
                claim=record.label,
                again=not permanent,
                error=failed,
            )
            return permanent
        self._change_log.clear(record.uid)
        return True

    def _build_document(self, record: PreparedClaimRecord) -> Mapping[str, Any]:
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": record.name, "namespace": record.namespace, "uid": record.uid},
            "status": {
                "devices": [
                    {"driver": self._driver, "pool": device.pool, "device": device.device}
                    | ({"shareID": device.share_id} if device.share_id else {})
                    | device.status
                    for device in record.answers
                    if device.status
                ]
            },
        }
