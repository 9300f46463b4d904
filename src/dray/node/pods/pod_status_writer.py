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
from dray.client.errors import Conflict, Invalid, NotFound
from dray.client.object_refs import Key
from dray.client.patches import StrategicPatch
from dray.client.rest_client import TROUBLE
from dray.client.timing import Backoff
from dray.node.keyed_locks import first_of
from dray.telemetry.logs import Log

LONGEST_WAIT: Final = 15.0
DOUBT_SECONDS: Final = 1.0
"""How long something else may stand on the server before it is written over."""

Document = dict[str, Any]


class Teller:
    """Tells the server how one pod is."""

    def __init__(self, client: Client, key: Key, uid: str, log: Log) -> None:
        self._client = client
        self._tempo = client.habits.tempo
        self._key, self._uid = key, uid
        self._log = log
        self._said: Document | None = None
        """What is not written yet."""
        self._newest: Document | None = None
        self._doubted: float | None = None
        """Since when the server has something else than was written."""
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self.gone = False
        """Whether the server knows no such pod any more."""

    def say(self, status: Document) -> None:
        """Note how the pod is; written soon, unless it was said before."""
        if status == self._newest or self.gone:
            return
        self._said = self._newest = status
        self._settled.clear()
        self._wake.set()

    def see(self, status: Mapping[str, Any]) -> None:
        """Note what the server has."""
        if self._newest is None or _holds(self._newest, status):
            self._doubted = None
        elif self._doubted is None:
            self._doubted = self._tempo.clock.monotonic()
            self._wake.set()

    async def settled(self) -> None:
        """Wait until everything said is written, or the pod is gone."""
        await self._settled.wait()

    async def run(self) -> None:
        """Write what is said until cancelled, or until the pod is gone."""
        backoff = Backoff(self._tempo, first=0.2, longest=LONGEST_WAIT)
        while not self.gone:
            await self._words()
            while self._said is not None and not self.gone:
                if await self._write(self._said):
                    backoff.reset()
                else:
                    await backoff.wait()
            self._settled.set()

    async def _words(self) -> None:
        """Wait for something to write: what is said, or what somebody else has written over."""
        while self._said is None:
            self._wake.clear()
            if self._doubted is None:
                await self._wake.wait()
                continue
            left = self._doubted + DOUBT_SECONDS - self._tempo.clock.monotonic()
            if left > 0:
                await first_of(self._wake.wait(), self._tempo.sleep(left))
            else:
                self._doubted, self._said = None, self._newest

    async def _write(self, status: Document) -> bool:
        """Whether there is no use in trying again."""
        patch = StrategicPatch({"metadata": {"uid": self._uid}, "status": status})
        namespace, name = self._key
        try:
            await self._client.patch(Pod, name, patch, namespace, subresource="status")
        except (NotFound, Conflict) as refused:
            self.gone = isinstance(refused, NotFound) or await self._is_another()
            return self.gone
        except Invalid as refused:
            self._log.error("the server does not take the status of a pod", pod=self._key, error=refused)
        except TROUBLE as trouble:
            self._log.debug("the status of a pod is not written yet", pod=self._key, error=trouble)
            return False
        self._doubted = None
        if self._said is status:
            self._said = None
        return True

    async def _is_another(self) -> bool:
        """Whether another pod has the name; a conflict may also mean that too many others write."""
        try:
            found: Pod = await self._client.get(Pod, self._key.name, self._key.namespace)
        except NotFound:
            return True
        except TROUBLE:
            return False
        return found.metadata.uid != self._uid


def _holds(said: Any, there: Any) -> bool:
    """Whether everything that was said is there; there may be more, and nothing is as good as null."""
    if isinstance(said, Mapping):
        fields = there if isinstance(there, Mapping) else {}
        return all(_holds(value, fields.get(name)) for name, value in said.items())
    if isinstance(said, list):
        rows = there if isinstance(there, list) else []
        return all(any(_holds(one, row) for row in rows) for one in said)
    return bool(said == there)
