"""Tells people why a pod has no node: its condition `PodScheduled` and an event, in the words of `explain`.

Theory of operation: an explanation costs more than a placement, and most pods that wait do so for a moment.
So a pod is explained only when it has waited a while, with what was found when it was tried last; and whoever
explains rests after every step four times as long as it took, so that pods are placed in between. When that
takes too long for all who wait, they are told in few words first. What a pod says already is not said again.

Rules for this file: a pod that has its node meanwhile is never told otherwise: its condition is written on
the version that had none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dray.allocator.feature_gates import Admission
from dray.api.core import Pod
from dray.client.client import POD, Client
from dray.client.errors import ApiError, Conflict, NotFound
from dray.client.events import EventRecorder
from dray.client.patches import StrategicPatch
from dray.client.rest_client import TROUBLE
from dray.clock import timestamp
from dray.explain import Effort
from dray.placement.pending_pod import PLUGIN
from dray.placement.rejections import Verdict
from dray.placement.scheduling_cycle import Unplaceable
from dray.placement.unschedulable_message import briefly, finding_words
from dray.scheduler.queued_pod import PENDING, Entry, Place

PATIENCE: Final = 0.5
"""Seconds a pod has waited before it is explained."""
LATE: Final = 5.0
"""Seconds beyond which a pod is told briefly: few words now are better than all of them some day."""
RESTS: Final = 4
"""How many times as long as an explanation took nobody explains anything."""
MANY_UNTOLD: Final = 256
"""Beyond so many the others are told briefly: a whole refusal keeps a photograph of the cluster alive."""
BROKEN: Final = 500
"""An answer from here on may be another one in a while."""
UNSCHEDULABLE: Final = "Unschedulable"
CONDITION: Final = "PodScheduled"

Refusal = Unplaceable | Verdict


@dataclass(slots=True)
class _Untold:
    """A pod to explain, from when on, and what is known."""

    entry: Entry
    due: float
    refusal: Refusal
    held: bool = False
    """Whether it has its place, and waits there for devices: nobody is about to refuse or bind it."""


class Teller:
    """Explains the pods that wait."""

    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        door: Admission,
        latest: Callable[[Pod], Pod | None],
    ) -> None:
        self._client, self._recorder, self._door = client, recorder, door
        self._latest = latest
        self._tempo = client.habits.tempo
        self._untold: dict[str, _Untold] = {}
        self._news = asyncio.Event()
        self.effort: Callable[[Unplaceable], Effort] = lambda _unplaceable: Effort()
        """Says how much work an explanation may be."""
        self.broken: Callable[[Entry, Exception], None] = lambda _entry, _why: None
        """Told of explanations that failed: people wait for words, and pods must not wait for people."""

    def note(self, entry: Entry, refusal: Refusal, *, held: bool = False) -> None:
        """A pod was refused, or is held up: it is explained soon, unless it gets its node before."""
        known = self._untold.get(entry.uid)
        if len(self._untold) >= MANY_UNTOLD and isinstance(refusal, Unplaceable):
            refusal = Verdict(PLUGIN, briefly(refusal))
        due = self._tempo.clock.monotonic() + PATIENCE if known is None else known.due
        self._untold[entry.uid] = _Untold(entry, due, refusal, held)
        self._news.set()

    def drop(self, uid: str) -> None:
        """A pod needs no explanation any more."""
        self._untold.pop(uid, None)

    async def run(self) -> None:
        """Explain, until cancelled."""
        while True:
            self._news.clear()
            first = next(iter(self._untold.values()), None)
            if first is None:
                await self._news.wait()
                continue
            now = self._tempo.clock.monotonic()
            if first.due > now:
                await self._tempo.sleep(first.due - now)
                continue
            self._untold.pop(first.entry.uid, None)
            if first.entry.place in PENDING or (first.held and first.entry.place is Place.TRYING):
                try:
                    await self._tell(first, late=now - first.due > LATE)
                except Exception as broken:
                    self.broken(first.entry, broken)
                    await self._rest(now)

    async def _rest(self, began: float) -> None:
        """Let others work, as long as it is polite."""
        spent = self._tempo.clock.monotonic() - began
        await self._tempo.sleep(min(RESTS * spent, 1.0))

    async def _tell(self, untold: _Untold, *, late: bool) -> None:
        text = await self._words(untold.refusal, late=late)
        untold.entry.verdict = text
        began = self._tempo.clock.monotonic()
        await self._say(untold, text)
        await self._rest(began)

    async def _say(self, untold: _Untold, text: str) -> None:
        try:
            if await self._written(untold.entry.pod, text):
                self._recorder.record(
                    untold.entry.pod, "FailedScheduling", text, warning=True, action="Scheduling"
                )
        except TROUBLE as failed:
            # Who may not write conditions may not in a while either.
            if not isinstance(failed, ApiError) or isinstance(failed, Conflict) or failed.code >= BROKEN:
                self._try_later(untold, text)

    def _try_later(self, untold: _Untold, text: str) -> None:
        """Nobody heard it: say it again in a while, unless the pod was refused anew by then."""
        untold.due = self._tempo.clock.monotonic() + PATIENCE
        untold.refusal = Verdict(PLUGIN, text)
        self._untold.setdefault(untold.entry.uid, untold)

    async def _words(self, refusal: Refusal, *, late: bool) -> str:
        """A refusal as people read it."""
        if isinstance(refusal, Verdict):
            return refusal.reason
        if late:
            return briefly(refusal)
        steps = finding_words(refusal, self._door, effort=self.effort(refusal))
        while True:
            began = self._tempo.clock.monotonic()
            try:
                next(steps)
            except StopIteration as found:
                return str(found.value)
            await self._rest(began)

    async def _written(self, pod: Pod, text: str) -> bool:
        """The condition of the pod; False when it says so already, or the pod has a node or is gone."""
        for left in reversed(range(3)):
            now = self._latest(pod)
            if now is None or now.metadata.uid != pod.metadata.uid or now.spec.node_name:
                return False
            old = next((each for each in now.status.conditions if each.type == CONDITION), None)
            if old is not None and (old.status, old.reason, old.message) == ("False", UNSCHEDULABLE, text):
                return False
            since = old.last_transition_time if old is not None and old.status == "False" else None
            change = _condition(now, text, since or timestamp(self._tempo.clock.now()))
            try:
                await self._client.patch(
                    POD, pod.metadata.name, change, pod.metadata.namespace, subresource="status"
                )
                return True
            except Conflict:
                if not left:
                    raise
                await self._tempo.sleep(0.05)  # the watch brings the newer version
            except NotFound:
                return False
        return False


def _condition(pod: Pod, text: str, since: str) -> StrategicPatch:
    """The change of one condition, on the very version that was seen without a node."""
    metadata: dict[str, Any] = {
        "uid": pod.metadata.uid,
        "resourceVersion": pod.metadata.resource_version,
    }
    condition = {
        "type": CONDITION,
        "status": "False",
        "reason": UNSCHEDULABLE,
        "message": text,
        "lastTransitionTime": since,
    }
    return StrategicPatch({"metadata": metadata, "status": {"conditions": [condition]}})
