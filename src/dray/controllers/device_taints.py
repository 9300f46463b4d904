"""Index of the `NoExecute` taints of devices: those that drivers publish, and those of taint rules.

Theory of operation: published taints are indexed by device as slices change. Rules are few and select by
name, so they are matched when the taints of a device are looked up; that way they also reach devices whose
slice is gone while a pod still uses them. A server that does not serve rules is not asked for them. A rule
with fields that we do not understand evicts nothing: it may select fewer devices than it seems to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dray.api.devices.taint_rules import build_rule_taint, rule_selects
from dray.api.resource import DeviceTaint, DeviceTaintRule, ResourceSlice
from dray.api.unknown_fields import explain_unknown_fields, list_unknown_fields
from dray.claims.taint_eviction import NO_EXECUTE, DevicePath
from dray.client.client import Client
from dray.client.informers.informer import Informer
from dray.client.object_refs import ObjectKey
from dray.controllers.informers import build_informer_options
from dray.telemetry.logs import StructuredLogger


class DeviceTaintIndex:
    """The devices with taints that evict pods."""

    def __init__(self, client: Client, log: StructuredLogger, *, rules: bool) -> None:
        self._log = log
        self.slices = Informer(client, ResourceSlice, options=build_informer_options(log))
        self.rules = Informer(client, DeviceTaintRule, options=build_informer_options(log)) if rules else None
        self._published: dict[DevicePath, dict[ObjectKey, tuple[DeviceTaint, ...]]] = {}
        self._evicting_rules: dict[str, DeviceTaintRule] = {}
        self._notify_device_changed: Callable[[DevicePath], None] = lambda _device: None
        self._notify_rules_changed: Callable[[list[DeviceTaintRule]], None] = lambda _rules: None

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        return (self.slices,) if self.rules is None else (self.slices, self.rules)

    def listen(
        self,
        on_device_changed: Callable[[DevicePath], None],
        on_rules_changed: Callable[[list[DeviceTaintRule]], None],
    ) -> None:
        """Listen to changes of evicting taints: the devices concerned, or the rules before and after."""
        self._notify_device_changed, self._notify_rules_changed = on_device_changed, on_rules_changed
        self.slices.listen(
            lambda new: self._on_slice_changed(None, new),
            self._on_slice_changed,
            lambda old: self._on_slice_changed(old, None),
        )
        if self.rules is not None:
            self.rules.listen(
                lambda new: self._on_rule_changed(None, new),
                self._on_rule_changed,
                lambda old: self._on_rule_changed(old, None),
            )

    def __bool__(self) -> bool:
        """Whether any taint evicts pods."""
        return bool(self._published or self._evicting_rules)

    def get_taints(self, device: DevicePath) -> Iterator[DeviceTaint]:
        """Yield the evicting taints of a device."""
        for taints in self._published.get(device, {}).values():
            yield from taints
        for rule in self._evicting_rules.values():
            if rule_selects(rule, *device):
                yield build_rule_taint(rule)

    def list_rules(self) -> list[DeviceTaintRule]:
        """List all rules, whatever their effect."""
        return [] if self.rules is None else self.rules.list_all()

    def _on_slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        before, after = dict(_list_evicting_taints(old)), dict(_list_evicting_taints(new))
        if before == after:
            return
        holder = new or old
        assert holder is not None
        key = ObjectKey("", holder.metadata.name)
        for device in before.keys() | after.keys():
            self._set_published_taints(device, key, after.get(device, ()))
            if before.get(device) != after.get(device):
                self._notify_device_changed(device)

    def _set_published_taints(
        self, device: DevicePath, key: ObjectKey, taints: tuple[DeviceTaint, ...]
    ) -> None:
        by_slice = self._published.setdefault(device, {})
        if taints:
            by_slice[key] = taints
        else:
            by_slice.pop(key, None)
        if not by_slice:
            del self._published[device]

    def _on_rule_changed(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> None:
        if (
            old is not None
            and new is not None
            and old.spec == new.spec
            and list_unknown_fields(old) == list_unknown_fields(new)
        ):
            return
        if new is not None and list_unknown_fields(new):
            self._log.warning(
                "a taint rule evicts nothing, because it may select less than this dray understands",
                rule=new.metadata.name,
                why=explain_unknown_fields(list_unknown_fields(new)),
            )
        evicting = [each for each in (old, new) if each is not None and _is_evicting(each)]
        if old is not None:
            self._evicting_rules.pop(old.metadata.name, None)
        if new is not None and _is_evicting(new):
            self._evicting_rules[new.metadata.name] = new
        if evicting:
            self._notify_rules_changed(evicting)


def _is_evicting(rule: DeviceTaintRule) -> bool:
    return rule.spec.taint.effect == NO_EXECUTE and not list_unknown_fields(rule)


def _list_evicting_taints(
    resource_slice: ResourceSlice | None,
) -> Iterable[tuple[DevicePath, tuple[DeviceTaint, ...]]]:
    """Yield the devices of a slice that have evicting taints, with those taints."""
    if resource_slice is None:
        return
    spec = resource_slice.spec
    for device in spec.devices:
        taints = tuple(taint for taint in device.taints if taint.effect == NO_EXECUTE)
        if taints:
            yield (spec.driver, spec.pool.name, device.name), taints
