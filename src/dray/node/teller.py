"""Writes the status of a pod until the server has it; only the newest counts.

Theory of operation: what a node says about a pod is merged into the pod's status, so that others may write
there, too. While the server does not answer it is tried again, with growing waits, and whatever was said in
between replaces what was not written yet. A pod that is gone, or another of its name, ends it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from dray.api.core import Pod
from dray.client.caller import TROUBLE
from dray.client.changes import StrategicPatch
from dray.client.client import Client
from dray.client.failures import Conflict, Invalid, NotFound
from dray.client.places import Key
from dray.client.tempo import Backoff
from dray.telemetry.logs import Log

LONGEST_WAIT: Final = 15.0

Document = dict[str, Any]


class Teller:
    """Tells the server how one pod is."""

    def __init__(self, client: Client, key: Key, uid: str, log: Log) -> None:
        self._client = client
        self._key, self._uid = key, uid
        self._log = log
        self._said: Document | None = None
        """What is not written yet."""
        self._newest: Document | None = None
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

    async def settled(self) -> None:
        """Wait until everything said is written, or the pod is gone."""
        await self._settled.wait()

    async def run(self) -> None:
        """Write what is said until cancelled, or until the pod is gone."""
        backoff = Backoff(self._client.habits.tempo, first=0.2, longest=LONGEST_WAIT)
        while not self.gone:
            await self._wake.wait()
            self._wake.clear()
            while self._said is not None and not self.gone:
                if await self._write(self._said):
                    backoff.reset()
                else:
                    await backoff.wait()
            self._settled.set()

    async def _write(self, status: Document) -> bool:
        """Whether there is no use in trying again."""
        patch = StrategicPatch({"metadata": {"uid": self._uid}, "status": status})
        namespace, name = self._key
        try:
            await self._client.patch(Pod, name, patch, namespace, subresource="status")
        except (NotFound, Conflict):
            # The uid is the only thing we insist on: another pod has the name.
            self.gone = True
            return True
        except Invalid as refused:
            self._log.error("the server does not take the status of a pod", pod=self._key, error=refused)
        except TROUBLE as trouble:
            self._log.debug("the status of a pod is not written yet", pod=self._key, error=trouble)
            return False
        if self._said is status:
            self._said = None
        return True
