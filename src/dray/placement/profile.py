"""Which plugins judge nodes, in which order, and what their scores weigh.

Theory of operation: the table below holds every plugin by the name Kubernetes gives it, the cheap ones first,
with the weight of its score. Plugins that know claims need to be given what they work with, so whoever builds
a profile hands them in by name; everything else a person may choose is a `Choices` value, read from a small
document:

    schedulerName: default-scheduler
    scoring: least                # or `most`: fill one node before the next
    normalization: between        # of the score for devices; or `max`, as kube-scheduler has it
    weights: {NodeAffinity: 5}    # 0 leaves the score of a plugin out
    disabled: [NodeResourcesBalancedAllocation]
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from dray.api.fields import ROOT, FieldError, Path, duplicate, forbidden, invalid, not_supported
from dray.errors import InvalidError
from dray.placement.framework import Plugin, Spread, between, by_most
from dray.placement.plugins import (
    balanced_allocation,
    node_affinity,
    node_name,
    node_resources_fit,
    node_unschedulable,
    taint_toleration,
)
from dray.placement.plugins.node_resources_fit import Scoring

DEFAULT_SCHEDULER: Final = "default-scheduler"
DEVICES: Final = "DynamicResources"
CLASSIC: Final = "ClassicResources"
HEAVIEST: Final = 1000


class Normalization(StrEnum):
    """How the ranks of nodes become scores: from the worst to the best, or as parts of the best."""

    BETWEEN = "between"
    MAX = "max"


_SPREADS: dict[Normalization, Spread] = {Normalization.BETWEEN: between, Normalization.MAX: by_most}


@dataclass(frozen=True, slots=True)
class Choices:
    """What a person may choose about placement."""

    scheduler_name: str = DEFAULT_SCHEDULER
    scoring: Scoring = Scoring.LEAST
    normalization: Normalization = Normalization.BETWEEN
    weights: Mapping[str, int] = field(default_factory=dict)
    disabled: frozenset[str] = frozenset()

    @property
    def device_spread(self) -> Spread:
        """How the plugin for devices brings its scores to 0..100."""
        return _SPREADS[self.normalization]


class Weighed(NamedTuple):
    """A plugin, and how often its score counts."""

    plugin: Plugin
    weight: int


@dataclass(frozen=True, slots=True)
class Profile:
    """The plugins of one scheduler, in the order they are asked."""

    plugins: tuple[Weighed, ...]
    scheduler_name: str = DEFAULT_SCHEDULER


class _Row(NamedTuple):
    """A plugin that profiles know: its weight, and how it is made; None if it has to be handed in."""

    weight: int
    make: Callable[[Choices], Plugin] | None = None


PLUGINS: Final[Mapping[str, _Row]] = {
    node_name.NAME: _Row(0, lambda _: node_name.NodeName()),
    node_unschedulable.NAME: _Row(0, lambda _: node_unschedulable.NodeUnschedulable()),
    taint_toleration.NAME: _Row(3, lambda _: taint_toleration.TaintToleration()),
    node_affinity.NAME: _Row(2, lambda _: node_affinity.NodeAffinity()),
    node_resources_fit.NAME: _Row(1, lambda choices: node_resources_fit.NodeResourcesFit(choices.scoring)),
    balanced_allocation.NAME: _Row(1, lambda _: balanced_allocation.NodeResourcesBalancedAllocation()),
    # Last, because a search for devices costs more than all others together.
    CLASSIC: _Row(0),
    DEVICES: _Row(2),
}


def profile_of(choices: Choices, given: Iterable[Plugin] = ()) -> Profile:
    """The profile for some choices; `given` are the plugins that know claims, in any order.

    A plugin that the table does not know comes last, with the weight 1.
    """
    plugins = {title: row.make(choices) for title, row in PLUGINS.items() if row.make is not None}
    plugins.update({plugin.name: plugin for plugin in given})
    order = [*PLUGINS, *[title for title in plugins if title not in PLUGINS]]
    weights = {**{title: row.weight for title, row in PLUGINS.items()}, **choices.weights}
    return Profile(
        tuple(
            Weighed(plugins[title], weights.get(title, 1))
            for title in order
            if title in plugins and title not in choices.disabled
        ),
        choices.scheduler_name,
    )


# --- the document ---


def read_choices(document: object) -> Choices:
    """The choices in a plain document; raises `InvalidError` with everything that is wrong in it."""
    if document is None:
        return Choices()
    if not isinstance(document, dict):
        raise InvalidError(_SUBJECT, [invalid(Path("profile"), document, "must be a mapping of fields")])
    problems = [problem for key, value in document.items() for problem in _problems(key, value)]
    if problems:
        raise InvalidError(_SUBJECT, problems)
    return Choices(**{_FIELDS[key].attribute: _FIELDS[key].read(value) for key, value in document.items()})


_SUBJECT = "scheduler profile"


class _Field(NamedTuple):
    """A field of the document: what it fills, how it is checked, what is made of a sound value."""

    attribute: str
    check: Callable[[Path, Any], Iterable[FieldError]]
    read: Callable[[Any], Any]


def _problems(key: object, value: object) -> Iterable[FieldError]:
    place = ROOT.field(str(key))
    row = _FIELDS.get(str(key))
    return (
        [forbidden(place, f"unknown field{_nearest(str(key), _FIELDS)}")]
        if row is None
        else row.check(place, value)
    )


def _name_faults(place: Path, value: object) -> Iterator[FieldError]:
    if not isinstance(value, str) or not value:
        yield invalid(place, value, "must be the name that pods give in `spec.schedulerName`")


def _one_of(words: type[StrEnum]) -> Callable[[Path, Any], Iterable[FieldError]]:
    known = tuple(words)

    def faults(place: Path, value: object) -> Iterator[FieldError]:
        if value not in known:
            yield not_supported(place, value if isinstance(value, str) else repr(value), known)

    return faults


def _weight_faults(place: Path, value: object) -> Iterator[FieldError]:
    if not isinstance(value, dict):
        yield invalid(place, value, "must be a mapping of plugin names to weights")
        return
    for title, weight in value.items():
        yield from _plugin_faults(place.key(str(title)), title)
        if type(weight) is not int or not 0 <= weight <= HEAVIEST:
            yield invalid(place.key(str(title)), weight, f"must be a whole number from 0 to {HEAVIEST}")


def _disabled_faults(place: Path, value: object) -> Iterator[FieldError]:
    if not isinstance(value, list):
        yield invalid(place, value, "must be a list of plugin names")
        return
    for index, title in enumerate(value):
        yield from _plugin_faults(place.index(index), title)
        if title in (DEVICES, CLASSIC):
            yield forbidden(place.index(index), f"without `{title}` pods would start without their devices")
        if title in value[:index]:
            yield duplicate(place.index(index), title)


def _plugin_faults(place: Path, title: object) -> Iterator[FieldError]:
    if title not in tuple(PLUGINS):
        yield invalid(place, title, f"no such plugin{_nearest(str(title), PLUGINS)}")


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, tuple(known), n=1)
    return (
        f"; did you mean `{near[0]}`?" if near else f"; known are {', '.join(f'`{each}`' for each in known)}"
    )


_FIELDS: Final[Mapping[str, _Field]] = {
    "schedulerName": _Field("scheduler_name", _name_faults, str),
    "scoring": _Field("scoring", _one_of(Scoring), Scoring),
    "normalization": _Field("normalization", _one_of(Normalization), Normalization),
    "weights": _Field("weights", _weight_faults, dict),
    "disabled": _Field("disabled", _disabled_faults, frozenset),
}
