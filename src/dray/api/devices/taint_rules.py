"""Taints that rules put on devices: slices as they are under the taint rules of a cluster.

Theory of operation: a rule selects devices by driver, pool and name; what it leaves out matches all, and a
rule without a selector selects none. A slice under some rules is the same slice with the taints of those that
select its devices behind the devices' own, in the order of the rules' names. A slice that no rule selects is
the very same object, so whoever keeps something by slices keeps it.

`Tainted` keeps the slices of a cluster under its rules. A slice that changes is looked at alone; a rule that
changes means a look at every slice, but a new one only for those that the rule selects.

Rules for this file: pure. Whether rules count at all is asked at the door (`allocator/feature_gates`).
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

Rules = tuple[DeviceTaintRule, ...]

EVERY_DEVICE: Final = DeviceTaintSelector()


class RuleTaint(DeviceTaint, frozen=True, gc=False):
    """A taint that a device has from a rule."""

    rule: str = ""


def taint_of(rule: DeviceTaintRule) -> RuleTaint:
    """The taint of a rule, as devices get it."""
    taint = rule.spec.taint
    return RuleTaint(
        key=taint.key,
        value=taint.value,
        effect=taint.effect,
        time_added=taint.time_added,
        rule=rule.metadata.name,
    )


def rule_behind(taint: DeviceTaint) -> str:
    """The name of the rule a taint comes from; empty for one that the driver published."""
    return taint.rule if isinstance(taint, RuleTaint) else ""


def selects(rule: DeviceTaintRule, driver: str, pool: str, device: str | None = None) -> bool:
    """Whether a rule selects a device; without a device, whether it may select some of a pool."""
    selector = rule.spec.device_selector
    if selector is None or (selector.driver is not None and selector.driver != driver):
        return False
    if selector.pool is not None and selector.pool != pool:
        return False
    return device is None or selector.device is None or selector.device == device


def selects_everything(rule: DeviceTaintRule) -> bool:
    """Whether a rule selects every device of every driver."""
    return rule.spec.device_selector == EVERY_DEVICE


def under(published: ResourceSlice, rules: Iterable[DeviceTaintRule]) -> ResourceSlice:
    """A slice with the taints of rules on its devices; the very same when none selects one."""
    spec = published.spec
    chosen = [rule for rule in rules if spec.devices and selects(rule, spec.driver, spec.pool.name)]
    if not chosen:
        return published
    added = [(rule.spec.device_selector, taint_of(rule)) for rule in chosen]
    devices = tuple([_with(device, added) for device in spec.devices])
    if all(new is old for new, old in zip(devices, spec.devices, strict=True)):
        return published
    return replace(published, spec=replace(spec, devices=devices))


def _with(device: Device, added: list[tuple[DeviceTaintSelector | None, RuleTaint]]) -> Device:
    more = tuple(
        taint
        for selector, taint in added
        if selector is not None and (selector.device is None or selector.device == device.name)
    )
    return replace(device, taints=device.taints + more) if more else device


def in_order(rules: Iterable[DeviceTaintRule]) -> Rules:
    """Rules by name: the order in which their taints follow those of the driver."""
    return tuple(sorted(rules, key=lambda rule: rule.metadata.name))


def all_under(slices: Iterable[ResourceSlice], rules: Iterable[DeviceTaintRule]) -> list[ResourceSlice]:
    """Slices with the taints of rules on their devices."""
    ordered = in_order(rules)
    return [under(each, ordered) for each in slices] if ordered else list(slices)


class Tainted:
    """The slices of a cluster under its rules, kept as both change."""

    def __init__(self) -> None:
        self._published: dict[str, ResourceSlice] = {}
        self._under: dict[str, ResourceSlice] = {}
        self._rules: dict[str, DeviceTaintRule] = {}
        self._ordered: Rules = ()

    @property
    def slices(self) -> Iterable[ResourceSlice]:
        """Every slice under the rules."""
        return self._under.values()

    def get(self, name: str) -> ResourceSlice | None:
        """A slice under the rules, by name."""
        return self._under.get(name)

    def saw_slice(self, published: ResourceSlice) -> ResourceSlice:
        """A slice came or changed; it under the rules."""
        name = published.metadata.name
        self._published[name] = published
        now = self._under[name] = under(published, self._ordered) if self._ordered else published
        return now

    def lost_slice(self, name: str) -> ResourceSlice | None:
        """A slice went; as it was under the rules."""
        self._published.pop(name, None)
        return self._under.pop(name, None)

    def saw_rule(self, rule: DeviceTaintRule) -> list[ResourceSlice]:
        """A rule came or changed; the slices that are different now."""
        known = self._rules.get(rule.metadata.name)
        if known is not None and known.spec == rule.spec:
            return []
        self._rules[rule.metadata.name] = rule
        return list(self._reconsider(known, rule))

    def lost_rule(self, name: str) -> list[ResourceSlice]:
        """A rule went, whether it was known or not; the slices that are different now."""
        known = self._rules.pop(name, None)
        return [] if known is None else list(self._reconsider(known, None))

    def _reconsider(self, *concerned: DeviceTaintRule | None) -> Iterator[ResourceSlice]:
        self._ordered = in_order(self._rules.values())
        rules = [rule for rule in concerned if rule is not None]
        for name, published in self._published.items():
            spec = published.spec
            if any(selects(rule, spec.driver, spec.pool.name) for rule in rules):
                now = under(published, self._ordered)
                if now != self._under[name]:
                    self._under[name] = now
                    yield now
