"""The controller that writes the status of taint rules: how many pods they evicted and still have to evict.

Theory of operation: the status of a rule is computed when the rule is added or changed, and some seconds
after anything it selects changed: a slice, a claim, a pod that uses one. The delay combines many evictions
into one write, and lets the watch show what was just deleted; the eviction history adds what it does not show
yet, so a pod is never counted twice. A rule with the effect `None` shows this way which pods `NoExecute`
would evict.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from dray.api.core import Pod
from dray.api.devices.taint_rules import rule_selects
from dray.api.meta import Condition
from dray.api.resource import ConsumerReference, DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.claims.taint_eviction import DevicePath
from dray.claims.taint_rule_impact import build_condition, compute_impact
from dray.client.client import Client
from dray.client.errors import ConflictError, NotFoundError
from dray.client.informers.informer import Informer
from dray.client.patches import StrategicMergePatch
from dray.clock import format_timestamp
from dray.controllers.device_taint_eviction import DeviceTaintEvictionController, list_allocated_devices
from dray.controllers.informers import CONSUMER_INDEX, SharedInformers
from dray.controllers.workqueue import WorkQueue
from dray.telemetry.logs import StructuredLogger
from dray.telemetry.metrics import MetricsRegistry

QUEUE_NAME: Final = "device_taint_rules"
STATUS_DELAY_SECONDS: Final = 5.0
"""Seconds after a change before the status of a rule is computed again."""


class DeviceTaintRuleController:
    """Writes the status of taint rules."""

    informers: tuple[Informer[object], ...] = ()

    def __init__(
        self,
        client: Client,
        shared_informers: SharedInformers,
        eviction: DeviceTaintEvictionController,
        metrics: MetricsRegistry,
        log: StructuredLogger,
        *,
        status_delay: float = STATUS_DELAY_SECONDS,
    ) -> None:
        self._client, self._shared_informers = client, shared_informers
        self._taints, self._eviction_history = eviction.taints, eviction.history
        self._log, self._status_delay = log, status_delay
        self._clock = client.options.time_source.clock
        self.queue: WorkQueue[str] = WorkQueue(QUEUE_NAME, client.options.time_source, metrics)
        if self._taints.rules is not None:
            self._register_listeners(self._taints.rules)

    def _register_listeners(self, rules: Informer[DeviceTaintRule]) -> None:
        self._eviction_history.on_evicted = lambda rule: self.queue.add_after(rule, self._status_delay)
        rules.listen(self._on_rule_added, self._on_rule_updated, self._on_rule_deleted)
        for listen in (self._taints.slices.listen, self._shared_informers.claims.listen):
            listen(self._on_object_changed, self._on_object_updated, self._on_object_changed)
        self._shared_informers.pods.listen(
            self._on_pod_changed,
            lambda _old, new: self._on_pod_changed(new),
            lambda old: self._on_pod_changed(old),
        )

    async def run(self) -> None:
        """Write statuses until cancelled; the informers are synced."""
        await self.queue.run(self._reconcile, self._log_failure, 1)

    def _log_failure(self, name: str, error: Exception) -> None:
        self._log.warning(
            "writing the status of a taint rule failed and is tried again later", rule=name, why=str(error)
        )

    # --- event handlers ---

    def _on_rule_added(self, rule: DeviceTaintRule) -> None:
        self.queue.add(rule.metadata.name)

    def _on_rule_updated(self, old: DeviceTaintRule, new: DeviceTaintRule) -> None:
        if old.metadata.uid != new.metadata.uid:
            self._eviction_history.forget_rule(old.metadata.name)
        if old.spec != new.spec or old.metadata.uid != new.metadata.uid:
            self.queue.add(new.metadata.name)

    def _on_rule_deleted(self, rule: DeviceTaintRule) -> None:
        self._eviction_history.forget_rule(rule.metadata.name)

    def _on_object_changed(self, obj: ResourceSlice | ResourceClaim) -> None:
        rules = self._taints.list_rules()
        if rules:
            self._enqueue_later(
                rules,
                _list_published_devices(obj)
                if isinstance(obj, ResourceSlice)
                else list_allocated_devices(obj),
            )

    def _on_object_updated(
        self, old: ResourceSlice | ResourceClaim, new: ResourceSlice | ResourceClaim
    ) -> None:
        self._on_object_changed(old)
        self._on_object_changed(new)

    def _on_pod_changed(self, pod: Pod) -> None:
        rules = self._taints.list_rules()
        if rules and pod.spec.node_name:
            for claim in self._shared_informers.claims.get_by_index(CONSUMER_INDEX, pod.metadata.uid):
                self._enqueue_later(rules, list_allocated_devices(claim))

    def _enqueue_later(self, rules: Iterable[DeviceTaintRule], devices: Iterable[DevicePath]) -> None:
        paths = list(devices)
        for rule in rules:
            if any(rule_selects(rule, *path) for path in paths):
                self.queue.add_after(rule.metadata.name, self._status_delay)

    # --- reconciliation ---

    async def _reconcile(self, name: str) -> None:
        rule = None if self._taints.rules is None else self._taints.rules.get(name)
        if rule is None:
            return
        impact = compute_impact(
            rule,
            self._taints.slices.list_all(),
            self._shared_informers.claims.list_all(),
            self._find_pod,
            self._eviction_history.__contains__,
        )
        now = format_timestamp(self._clock.now())
        condition = build_condition(rule, impact, self._eviction_history.count_for_rule(name), now=now)
        if condition not in rule.status.conditions:
            await self._write_condition(rule, condition)

    def _find_pod(self, namespace: str, consumer: ConsumerReference) -> Pod | None:
        pod = self._shared_informers.pods.get(consumer.name, namespace)
        return pod if pod is not None and pod.metadata.uid == consumer.uid else None

    async def _write_condition(self, rule: DeviceTaintRule, condition: Condition) -> None:
        metadata = rule.metadata
        patch = StrategicMergePatch(
            {"metadata": {"uid": metadata.uid}, "status": {"conditions": [condition]}}
        )
        with suppress(NotFoundError, ConflictError):  # the rule is gone, or another one has its name
            await self._client.patch(DeviceTaintRule, metadata.name, patch, subresource="status")


def _list_published_devices(resource_slice: ResourceSlice) -> list[DevicePath]:
    spec = resource_slice.spec
    return [(spec.driver, spec.pool.name, device.name) for device in spec.devices]
