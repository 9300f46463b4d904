"""Writes the status of a pod to the server with retries; only the newest status counts.

Theory of operation: the node's status is merged into the pod's, so that other clients may write there, too.
While the server is unreachable the write is retried after growing delays, and a newer status replaces one
that is not written yet. The writer ends when the pod is deleted or another pod has its name.

A status that soon has a successor, such as that of a pod whose containers are about to start, is not urgent:
it waits for a moment, and if the successor comes, only that is written. What happened in between is in the
successor, too; the transition times of conditions come from the latest status, written or not.

When the server has another status than was written, another client has overwritten it, or the server was
restored to an earlier state. Then the newest status is written once more, after a delay, because observed
objects may be outdated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from dray.api.core import Pod
from dray.client.client import Client
from dray.client.errors import ConflictError, InvalidObjectError, NotFoundError
from dray.client.object_refs import ObjectKey
from dray.client.patches import StrategicMergePatch
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff
from dray.tasks import wait_for_first
from dray.telemetry.logs import StructuredLogger

MAX_BACKOFF_SECONDS: Final = 15.0
SETTLE_SECONDS: Final = 2.0
"""How long a status that is not urgent waits for its successor."""
OVERWRITE_DELAY_SECONDS: Final = 1.0
"""How long a different status may stay on the server before it is overwritten."""

Document = dict[str, Any]
WriteLast = Callable[[StrategicMergePatch], Awaitable[bool]]
"""Writes the last status of a pod together with more; False when the status has to be written alone."""


class PodStatusWriter:
    """Writes the status of one pod."""

    def __init__(self, client: Client, key: ObjectKey, uid: str, log: StructuredLogger) -> None:
        self._client = client
        self._time_source = client.options.time_source
        self._key, self._uid = key, uid
        self._log = log
        self._pending: Document | None = None
        """The status that is not written yet."""
        self._due_at = 0.0
        """When it is to be written."""
        self._latest: Document | None = None
        self._differs_since: float | None = None
        """Since when the server has another status than was written."""
        self._write_last: WriteLast | None = None
        self._wake = asyncio.Event()
        self._written = asyncio.Event()
        self._written.set()
        self.gone = False
        """Whether the pod does not exist any more."""

    @property
    def latest(self) -> Document | None:
        """The latest status; None when there is none, or another client wrote another one since."""
        return self._latest if self._differs_since is None else None

    def set_final_status(self, status: Document, write_last: WriteLast) -> None:
        """Set the last status; `write_last` is called with its patch once and may write more with it."""
        self._write_last = write_last
        self.set_status(status)

    def set_status(self, status: Document, *, urgent: bool = True) -> None:
        """Set the status to write, unless it is the latest already."""
        if self.gone or (status == self._latest and not (urgent and self._pending)):
            return
        now = self._time_source.clock.monotonic()
        due_at = now if urgent else now + SETTLE_SECONDS
        self._due_at = due_at if self._pending is None else min(due_at, self._due_at)
        self._pending = self._latest = status
        self._written.clear()
        self._wake.set()

    def observe_status(self, status: Mapping[str, Any]) -> None:
        """Compare the status on the server with the latest."""
        if self._latest is None or self._pending is not None or _contains(self._latest, status):
            self._differs_since = None
        elif self._differs_since is None:
            self._differs_since = self._time_source.clock.monotonic()
            self._wake.set()

    async def wait_until_written(self) -> None:
        """Wait until the latest status is written, or the pod does not exist any more."""
        await self._written.wait()

    async def run(self) -> None:
        """Write each status until cancelled, or until the pod does not exist any more."""
        backoff = Backoff(self._time_source, initial=0.2, maximum=MAX_BACKOFF_SECONDS)
        while not self.gone:
            if await self._write_status(await self._wait_for_change()):
                backoff.reset()
            else:
                await backoff.wait()
            if self._pending is None:
                self._written.set()
        self._written.set()

    async def _wait_for_change(self) -> Document:
        """Wait for a status to write: a new one, or the latest when another client has overwritten it."""
        while True:
            self._wake.clear()
            now = self._time_source.clock.monotonic()
            if self._pending is not None:
                due_at = self._due_at
            elif self._differs_since is not None:
                due_at = self._differs_since + OVERWRITE_DELAY_SECONDS
            else:
                await self._wake.wait()
                continue
            if due_at <= now:
                break
            await wait_for_first(self._wake.wait(), self._time_source.sleep(due_at - now))
        if self._pending is None:
            self._differs_since, self._pending = None, self._latest
        assert self._pending is not None
        return self._pending

    async def _write_status(self, status: Document) -> bool:
        """Write a status; return whether a retry is useless."""
        patch = StrategicMergePatch({"metadata": {"uid": self._uid}, "status": status})
        namespace, name = self._key
        write_last, self._write_last = self._write_last, None
        try:
            if write_last is None or not await write_last(patch):
                await self._client.patch(Pod, name, patch, namespace, subresource="status")
        except (NotFoundError, ConflictError) as error:
            self.gone = isinstance(error, NotFoundError) or await self._is_replaced()
            return self.gone
        except InvalidObjectError as error:
            self._log.error("the server rejects the status of a pod", pod=self._key, error=error)
        except CALL_ERRORS as error:
            self._log.debug("the status of a pod is not written yet", pod=self._key, error=error)
            return False
        self._differs_since = None
        if self._pending is status:
            self._pending = None
        return True

    async def _is_replaced(self) -> bool:
        """Return whether another pod has the name; a conflict may also come from concurrent writes."""
        try:
            found: Pod = await self._client.get(Pod, self._key.name, self._key.namespace)
        except NotFoundError:
            return True
        except CALL_ERRORS:
            return False
        return found.metadata.uid != self._uid


def _contains(expected: Any, actual: Any) -> bool:
    """Return whether `actual` has everything of `expected`, and maybe more; missing equals null."""
    if isinstance(expected, Mapping):
        fields = actual if isinstance(actual, Mapping) else {}
        return all(_contains(value, fields.get(name)) for name, value in expected.items())
    if isinstance(expected, list):
        rows = actual if isinstance(actual, list) else []
        return all(any(_contains(one, row) for row in rows) for one in expected)
    return bool(expected == actual)
