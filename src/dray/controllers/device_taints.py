"""The taints of devices as controllers see them: those that drivers publish, and those of rules.

Theory of operation: taints that end pods are kept by the place of their device as slices change. Rules are
few and select by name, so they are asked about a place when somebody wants to know; that way they also reach
devices whose slice is gone while a pod still uses them. A server that has no rules is not asked for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dray.api.devices.taint_rules import selects, taint_of
from dray.api.resource import DeviceTaint, DeviceTaintRule, ResourceSlice
from dray.claims.taint_eviction import NO_EXECUTE, Place
from dray.client.client import Client
from dray.client.informers.informer import Informer
from dray.client.object_refs import Key
from dray.controllers.informers import ways
from dray.telemetry.logs import Log


class DeviceTaints:
    """Which devices have taints that end pods."""

    def __init__(self, client: Client, log: Log, *, rules: bool) -> None:
        self.slices = Informer(client, ResourceSlice, ways=ways(log))
        self.rules = Informer(client, DeviceTaintRule, ways=ways(log)) if rules else None
        self._published: dict[Place, dict[Key, tuple[DeviceTaint, ...]]] = {}
        self._ending: dict[str, DeviceTaintRule] = {}
        self._place_changed: Callable[[Place], None] = lambda _place: None
        self._rule_changed: Callable[[list[DeviceTaintRule]], None] = lambda _rules: None

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        return (self.slices,) if self.rules is None else (self.slices, self.rules)

    def listen(self, place: Callable[[Place], None], rules: Callable[[list[DeviceTaintRule]], None]) -> None:
        """Hear of places, and of rules as they were and are, whose taints that end pods are different now."""
        self._place_changed, self._rule_changed = place, rules
        self.slices.listen(
            lambda new: self._slice(None, new), self._slice, lambda old: self._slice(old, None)
        )
        if self.rules is not None:
            self.rules.listen(
                lambda new: self._rule(None, new), self._rule, lambda old: self._rule(old, None)
            )

    def __bool__(self) -> bool:
        """Whether there is any taint that ends pods."""
        return bool(self._published or self._ending)

    def of(self, place: Place) -> Iterator[DeviceTaint]:
        """The taints of a device that end pods."""
        for taints in self._published.get(place, {}).values():
            yield from taints
        for rule in self._ending.values():
            if selects(rule, *place):
                yield taint_of(rule)

    def all_rules(self) -> list[DeviceTaintRule]:
        """Every rule, whatever its effect."""
        return [] if self.rules is None else self.rules.all()

    def _slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        before, after = dict(_ending(old)), dict(_ending(new))
        if before == after:
            return
        holder = new or old
        assert holder is not None
        key = Key("", holder.metadata.name)
        for place in before.keys() | after.keys():
            self._note(place, key, after.get(place, ()))
            if before.get(place) != after.get(place):
                self._place_changed(place)

    def _note(self, place: Place, key: Key, taints: tuple[DeviceTaint, ...]) -> None:
        there = self._published.setdefault(place, {})
        if taints:
            there[key] = taints
        else:
            there.pop(key, None)
        if not there:
            del self._published[place]

    def _rule(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> None:
        if old is not None and new is not None and old.spec == new.spec:
            return
        concerned = [each for each in (old, new) if each is not None and _ends(each)]
        if old is not None:
            self._ending.pop(old.metadata.name, None)
        if new is not None and _ends(new):
            self._ending[new.metadata.name] = new
        if concerned:
            self._rule_changed(concerned)


def _ends(rule: DeviceTaintRule) -> bool:
    return rule.spec.taint.effect == NO_EXECUTE


def _ending(holder: ResourceSlice | None) -> Iterable[tuple[Place, tuple[DeviceTaint, ...]]]:
    """The devices of a slice whose taints end pods, with those taints."""
    if holder is None:
        return
    spec = holder.spec
    for device in spec.devices:
        taints = tuple(taint for taint in device.taints if taint.effect == NO_EXECUTE)
        if taints:
            yield (spec.driver, spec.pool.name, device.name), taints
