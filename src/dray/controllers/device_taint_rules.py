"""What taint rules have done, written into their status: who still has to go, or would have to.

Theory of operation: a rule is counted when it comes or changes, and some seconds after anything it selects
changed: a slice, a claim, a pod that uses one. The pause makes one write of many evictions, and lets the
watch show what was just deleted; what it does not show yet is known from whoever evicts, so a pod is never
told as gone and as still to go. A rule of the effect `None` shows this way whom `NoExecute` would end.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from dray.api.core import Pod
from dray.api.devices.taint_rules import selects
from dray.api.meta import Condition
from dray.api.resource import ConsumerReference, DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.claims.taint_eviction import Place
from dray.claims.taint_rule_impact import condition_of, reach_of
from dray.client.client import Client
from dray.client.errors import Conflict, NotFound
from dray.client.informers.informer import Informer
from dray.client.patches import StrategicPatch
from dray.clock import timestamp
from dray.controllers.device_taint_eviction import Evicted, places
from dray.controllers.device_taints import DeviceTaints
from dray.controllers.informers import CONSUMER, Sights
from dray.controllers.workqueue import WorkQueue
from dray.telemetry.logs import Log
from dray.telemetry.metrics import Metrics

QUEUE: Final = "device_taint_rules"
PAUSE: Final = 5.0
"""Seconds after a change before a rule is counted again."""


class RuleController:
    """Keeps the status of taint rules."""

    informers: tuple[Informer[object], ...] = ()

    def __init__(
        self,
        client: Client,
        sights: Sights,
        seen: tuple[DeviceTaints, Evicted],
        metrics: Metrics,
        log: Log,
        *,
        pause: float = PAUSE,
    ) -> None:
        taints, evicted = seen
        self._client, self._sights, self._taints, self._evicted = client, sights, taints, evicted
        self._log, self._pause = log, pause
        self._clock = client.habits.tempo.clock
        self.queue: WorkQueue[str] = WorkQueue(QUEUE, client.habits.tempo, metrics)
        if taints.rules is not None:
            self._listen(taints.rules)

    def _listen(self, rules: Informer[DeviceTaintRule]) -> None:
        self._evicted.heard = lambda rule: self.queue.add_later(rule, self._pause)
        rules.listen(self._rule_seen, self._rule_changed, self._rule_gone)
        for listen in (self._taints.slices.listen, self._sights.claims.listen):
            listen(self._seen, self._changed, self._seen)
        self._sights.pods.listen(
            self._pod_seen, lambda _old, new: self._pod_seen(new), lambda old: self._pod_seen(old)
        )

    async def run(self) -> None:
        """Count, until cancelled; the informers have seen everything once."""
        await self.queue.run(self._count, self._troubled, 1)

    def _troubled(self, name: str, failed: Exception) -> None:
        self._log.warning("the status of a taint rule is written later", rule=name, why=str(failed))

    # --- what wakes whom ---

    def _rule_seen(self, rule: DeviceTaintRule) -> None:
        self.queue.add(rule.metadata.name)

    def _rule_changed(self, old: DeviceTaintRule, new: DeviceTaintRule) -> None:
        if old.metadata.uid != new.metadata.uid:
            self._evicted.forget(old.metadata.name)
        if old.spec != new.spec or old.metadata.uid != new.metadata.uid:
            self.queue.add(new.metadata.name)

    def _rule_gone(self, rule: DeviceTaintRule) -> None:
        self._evicted.forget(rule.metadata.name)

    def _seen(self, obj: ResourceSlice | ResourceClaim) -> None:
        rules = self._taints.all_rules()
        if rules:
            self._later(rules, _published(obj) if isinstance(obj, ResourceSlice) else places(obj))

    def _changed(self, old: ResourceSlice | ResourceClaim, new: ResourceSlice | ResourceClaim) -> None:
        self._seen(old)
        self._seen(new)

    def _pod_seen(self, pod: Pod) -> None:
        rules = self._taints.all_rules()
        if rules and pod.spec.node_name:
            for claim in self._sights.claims.by_index(CONSUMER, pod.metadata.uid):
                self._later(rules, places(claim))

    def _later(self, rules: Iterable[DeviceTaintRule], where: Iterable[Place]) -> None:
        known = list(where)
        for rule in rules:
            if any(selects(rule, *place) for place in known):
                self.queue.add_later(rule.metadata.name, self._pause)

    # --- counting ---

    async def _count(self, name: str) -> None:
        rule = None if self._taints.rules is None else self._taints.rules.get(name)
        if rule is None:
            return
        reach = reach_of(
            rule,
            self._taints.slices.all(),
            self._sights.claims.all(),
            self._pod_of,
            self._evicted.__contains__,
        )
        now = timestamp(self._clock.now())
        condition = condition_of(rule, reach, self._evicted.count(name), now=now)
        if condition not in rule.status.conditions:
            await self._write(rule, condition)

    def _pod_of(self, namespace: str, consumer: ConsumerReference) -> Pod | None:
        pod = self._sights.pods.get(consumer.name, namespace)
        return pod if pod is not None and pod.metadata.uid == consumer.uid else None

    async def _write(self, rule: DeviceTaintRule, condition: Condition) -> None:
        metadata = rule.metadata
        patch = StrategicPatch({"metadata": {"uid": metadata.uid}, "status": {"conditions": [condition]}})
        with suppress(NotFound, Conflict):  # it is gone, or another one has its name
            await self._client.patch(DeviceTaintRule, metadata.name, patch, subresource="status")


def _published(holder: ResourceSlice) -> list[Place]:
    spec = holder.spec
    return [(spec.driver, spec.pool.name, device.name) for device in spec.devices]
