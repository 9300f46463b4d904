"""Writes the status of a pod until the server has it; only the newest counts.

Theory of operation: what a node says about a pod is merged into the pod's status, so that others may write
there, too. While the server does not answer it is tried again, with growing waits, and whatever was said in
between replaces what was not written yet. A pod that is gone, or another of its name, ends it.

When the server has something else than was written, somebody wrote over it, or the server was put back to an
earlier state. Then the newest is written once more, after a pause in which it may turn out that it is there:
what the server tells comes late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
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
OVERWRITE_DELAY_SECONDS: Final = 1.0
"""How long something else may stand on the server before it is written over."""

Document = dict[str, Any]


class PodStatusWriter:
    """Tells the server how one pod is."""

    def __init__(self, client: Client, key: ObjectKey, uid: str, log: StructuredLogger) -> None:
        self._client = client
        self._time_source = client.options.time_source
        self._key, self._uid = key, uid
        self._log = log
        self._pending: Document | None = None
        """What is not written yet."""
        self._latest: Document | None = None
        self._differs_since: float | None = None
        """Since when the server has something else than was written."""
        self._wake = asyncio.Event()
        self._written = asyncio.Event()
        self._written.set()
        self.gone = False
        """Whether the server knows no such pod any more."""

    def set_status(self, status: Document) -> None:
        """Note how the pod is; written soon, unless it was said before."""
        if status == self._latest or self.gone:
            return
        self._pending = self._latest = status
        self._written.clear()
        self._wake.set()

    def observe_status(self, status: Mapping[str, Any]) -> None:
        """Note what the server has."""
        if self._latest is None or _contains(self._latest, status):
            self._differs_since = None
        elif self._differs_since is None:
            self._differs_since = self._time_source.clock.monotonic()
            self._wake.set()

    async def wait_until_written(self) -> None:
        """Wait until everything said is written, or the pod is gone."""
        await self._written.wait()

    async def run(self) -> None:
        """Write what is said until cancelled, or until the pod is gone."""
        backoff = Backoff(self._time_source, initial=0.2, maximum=MAX_BACKOFF_SECONDS)
        while not self.gone:
            await self._wait_for_change()
            while self._pending is not None and not self.gone:
                if await self._write_status(self._pending):
                    backoff.reset()
                else:
                    await backoff.wait()
            self._written.set()

    async def _wait_for_change(self) -> None:
        """Wait for something to write: what is said, or what somebody else has written over."""
        while self._pending is None:
            self._wake.clear()
            if self._differs_since is None:
                await self._wake.wait()
                continue
            left = self._differs_since + OVERWRITE_DELAY_SECONDS - self._time_source.clock.monotonic()
            if left > 0:
                await wait_for_first(self._wake.wait(), self._time_source.sleep(left))
            else:
                self._differs_since, self._pending = None, self._latest

    async def _write_status(self, status: Document) -> bool:
        """Whether there is no use in trying again."""
        patch = StrategicMergePatch({"metadata": {"uid": self._uid}, "status": status})
        namespace, name = self._key
        try:
            await self._client.patch(Pod, name, patch, namespace, subresource="status")
        except (NotFoundError, ConflictError) as refused:
            self.gone = isinstance(refused, NotFoundError) or await self._is_replaced()
            return self.gone
        except InvalidObjectError as refused:
            self._log.error("the server does not take the status of a pod", pod=self._key, error=refused)
        except CALL_ERRORS as trouble:
            self._log.debug("the status of a pod is not written yet", pod=self._key, error=trouble)
            return False
        self._differs_since = None
        if self._pending is status:
            self._pending = None
        return True

    async def _is_replaced(self) -> bool:
        """Whether another pod has the name; a conflict may also mean that too many others write."""
        try:
            found: Pod = await self._client.get(Pod, self._key.name, self._key.namespace)
        except NotFoundError:
            return True
        except CALL_ERRORS:
            return False
        return found.metadata.uid != self._uid


def _contains(expected: Any, actual: Any) -> bool:
    """Whether everything that was said is there; there may be more, and nothing is as good as null."""
    if isinstance(expected, Mapping):
        fields = actual if isinstance(actual, Mapping) else {}
        return all(_contains(value, fields.get(name)) for name, value in expected.items())
    if isinstance(expected, list):
        rows = actual if isinstance(actual, list) else []
        return all(any(_contains(one, row) for row in rows) for one in expected)
    return bool(expected == actual)
