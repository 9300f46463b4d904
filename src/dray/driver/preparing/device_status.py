"""What a driver reports about the devices of a claim, written into the claim's status.

Theory of operation: the report is applied by the server's own merging, in the name of the driver and its
node, so that reports of others in the same claim stay as they are. It is written beside the work: a pod does
not wait for it, and it is tried again until the server takes it or the claim is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.client.errors import ApiError, Conflict, NotFound, ServerFault, TooManyRequests, Unavailable
from dray.client.events import shortened
from dray.client.patches import Apply
from dray.client.rest_client import TROUBLE
from dray.client.timing import Backoff
from dray.driver.base import DeviceStatus
from dray.driver.preparing.claim_conversion import Refused
from dray.driver.preparing.prepared_records import Entry
from dray.telemetry.logs import Complaints, Level, Log

MOST_DATA: Final = 10 * 1024
_MANAGER_BYTES: Final = 128
_LATER: Final = (TooManyRequests, ServerFault, Unavailable)


def status_document(status: DeviceStatus | None, now: str) -> dict[str, Any] | None:
    """A report as it stands in a claim; conditions without a time get this one."""
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
            raise Refused(f"the device status has data that is no JSON: {broken}") from None
        if not written.startswith(b"{"):
            raise Refused(f"the device status has data that is no JSON object: `{status.data!r}`")
        if len(written) > MOST_DATA:
            raise Refused(
                f"the device status has {len(written)} bytes of data, at most {MOST_DATA} are allowed"
            )
        document["data"] = status.data
    if status.network is not None:
        document["networkData"] = msgspec.to_builtins(status.network)
    return document


class Statuses:
    """Writes reports into claims, beside the work."""

    def __init__(self, client: Client, driver: str, node: str, log: Log) -> None:
        self._client = client
        self._driver = driver
        self._manager = shortened(f"{driver}/{node}", _MANAGER_BYTES)
        self._complaints = Complaints(log)
        self._waiting: dict[str, Entry] = {}
        self._wake = asyncio.Event()

    def tell(self, entry: Entry) -> None:
        """Note the reports of a claim; written soon."""
        if any(answer.status for answer in entry.answers):
            self._waiting[entry.uid] = entry
            self._wake.set()

    def forget(self, uid: str) -> None:
        """A claim was given back: what waits for it is not written any more."""
        self._waiting.pop(uid, None)
        self._complaints.over(uid)

    async def run(self) -> None:
        """Write what was noted, until cancelled."""
        backoff = Backoff(self._client.habits.tempo, first=0.2, longest=30.0)
        while True:
            await self._wake.wait()
            self._wake.clear()
            for entry in list(self._waiting.values()):
                if await self._write(entry):
                    backoff.reset()
                    if self._waiting.get(entry.uid) is entry:
                        del self._waiting[entry.uid]
            if self._waiting:
                self._wake.set()
                await backoff.wait()

    async def _write(self, entry: Entry) -> bool:
        """Whether this is settled, one way or the other."""
        change = Apply(self._document(entry), self._manager, force=True)
        try:
            await self._client.patch(ResourceClaim, entry.name, change, entry.namespace, subresource="status")
        except (NotFound, Conflict):
            return True  # the claim is gone, or another one has its name
        except TROUBLE as failed:
            lasting = isinstance(failed, ApiError) and not isinstance(failed, _LATER)
            self._complaints.say(
                entry.uid,
                Level.WARNING,
                "cannot write the status of devices",
                driver=self._driver,
                claim=entry.label,
                again=not lasting,
                error=failed,
            )
            return lasting
        self._complaints.over(entry.uid)
        return True

    def _document(self, entry: Entry) -> Mapping[str, Any]:
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": entry.name, "namespace": entry.namespace, "uid": entry.uid},
            "status": {
                "devices": [
                    {"driver": self._driver, "pool": answer.pool, "device": answer.device}
                    | ({"shareID": answer.share_id} if answer.share_id else {})
                    | answer.status
                    for answer in entry.answers
                    if answer.status
                ]
            },
        }
