"""Application of device taint rules to slices.

Theory of operation: a rule selects devices by driver, pool and name; a field that is not set matches all, and
a rule without a selector selects none. A slice with rules applied is the same slice with the taints of the
rules that select its devices after the devices' own taints, in the order of the rules' names. A slice that no
rule selects is returned as the same object, so that callers that cache by slice keep their entries.

`TaintedSlices` keeps the slices of a cluster with its rules applied. When a slice changes, only that slice is
updated; when a rule changes, every slice is tested, but only those that the rule selects are replaced.

Rules for this file: pure. `allocator/feature_gates` decides whether rules apply at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from dray.api.resource import (
    Device,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintSelector,
    ResourceSlice,
)

TaintRules = tuple[DeviceTaintRule, ...]

EVERY_DEVICE: Final = DeviceTaintSelector()


class RuleTaint(DeviceTaint, frozen=True):
    """A taint that a device has from a rule."""

    rule: str = ""


def build_rule_taint(rule: DeviceTaintRule) -> RuleTaint:
    """Build the taint of a rule, as devices get it."""
    taint = rule.spec.taint
    return RuleTaint(
        key=taint.key,
        value=taint.value,
        effect=taint.effect,
        time_added=taint.time_added,
        rule=rule.metadata.name,
    )


def get_rule_name(taint: DeviceTaint) -> str:
    """Return the name of the rule a taint comes from; empty for one that the driver published."""
    return taint.rule if isinstance(taint, RuleTaint) else ""


def rule_selects(rule: DeviceTaintRule, driver: str, pool: str, device: str | None = None) -> bool:
    """Whether a rule selects a device; without a device, whether it may select some of a pool."""
    selector = rule.spec.device_selector
    if selector is None or (selector.driver is not None and selector.driver != driver):
        return False
    if selector.pool is not None and selector.pool != pool:
        return False
    return device is None or selector.device is None or selector.device == device


def rule_selects_everything(rule: DeviceTaintRule) -> bool:
    """Whether a rule selects every device of every driver."""
    return rule.spec.device_selector == EVERY_DEVICE


def apply_taint_rules(published: ResourceSlice, rules: Iterable[DeviceTaintRule]) -> ResourceSlice:
    """Return a slice with the taints of rules on its devices; the same object when no rule selects one."""
    spec = published.spec
    chosen = [rule for rule in rules if spec.devices and rule_selects(rule, spec.driver, spec.pool.name)]
    if not chosen:
        return published
    added = [(rule.spec.device_selector, build_rule_taint(rule)) for rule in chosen]
    devices = tuple([_add_taints(device, added) for device in spec.devices])
    if all(new is old for new, old in zip(devices, spec.devices, strict=True)):
        return published
    return replace(published, spec=replace(spec, devices=devices))


def _add_taints(device: Device, added: list[tuple[DeviceTaintSelector | None, RuleTaint]]) -> Device:
    more = tuple(
        taint
        for selector, taint in added
        if selector is not None and (selector.device is None or selector.device == device.name)
    )
    return replace(device, taints=device.taints + more) if more else device


def sort_rules(rules: Iterable[DeviceTaintRule]) -> TaintRules:
    """Sort rules by name: the order in which their taints follow those of the driver."""
    return tuple(sorted(rules, key=lambda rule: rule.metadata.name))


def apply_taint_rules_to_all(
    slices: Iterable[ResourceSlice], rules: Iterable[DeviceTaintRule]
) -> list[ResourceSlice]:
    """Return slices with the taints of rules on their devices."""
    ordered = sort_rules(rules)
    return [apply_taint_rules(each, ordered) for each in slices] if ordered else list(slices)


class TaintedSlices:
    """The slices of a cluster with its rules applied, updated as both change."""

    def __init__(self) -> None:
        self._published: dict[str, ResourceSlice] = {}
        self._tainted: dict[str, ResourceSlice] = {}
        self._rules: dict[str, DeviceTaintRule] = {}
        self._sorted_rules: TaintRules = ()

    @property
    def slices(self) -> Iterable[ResourceSlice]:
        """Every slice, with the rules applied."""
        return self._tainted.values()

    def get(self, name: str) -> ResourceSlice | None:
        """Return a slice by name, with the rules applied."""
        return self._tainted.get(name)

    def upsert_slice(self, published: ResourceSlice) -> ResourceSlice:
        """Add or replace a slice; returns it with the rules applied."""
        name = published.metadata.name
        self._published[name] = published
        now = self._tainted[name] = (
            apply_taint_rules(published, self._sorted_rules) if self._sorted_rules else published
        )
        return now

    def remove_slice(self, name: str) -> ResourceSlice | None:
        """Remove a slice; returns it as it was with the rules applied."""
        self._published.pop(name, None)
        return self._tainted.pop(name, None)

    def upsert_rule(self, rule: DeviceTaintRule) -> list[ResourceSlice]:
        """Add or replace a rule; returns the slices that changed."""
        known = self._rules.get(rule.metadata.name)
        if known is not None and known.spec == rule.spec:
            return []
        self._rules[rule.metadata.name] = rule
        return list(self._update_slices(known, rule))

    def remove_rule(self, name: str) -> list[ResourceSlice]:
        """Remove a rule, whether it exists or not; returns the slices that changed."""
        known = self._rules.pop(name, None)
        return [] if known is None else list(self._update_slices(known, None))

    def _update_slices(self, *concerned: DeviceTaintRule | None) -> Iterator[ResourceSlice]:
        self._sorted_rules = sort_rules(self._rules.values())
        rules = [rule for rule in concerned if rule is not None]
        for name, published in self._published.items():
            spec = published.spec
            if any(rule_selects(rule, spec.driver, spec.pool.name) for rule in rules):
                now = apply_taint_rules(published, self._sorted_rules)
                if now != self._tainted[name]:
                    self._tainted[name] = now
                    yield now
