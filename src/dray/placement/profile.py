"""Scheduler profiles: which plugins run, in which order, and how their scores are weighed.

Theory of operation: the table below has every plugin by its Kubernetes name, the cheap ones first, with the
weight of its score. Plugins for claims need collaborators, so the caller that builds a profile passes them in
by name; everything else that users choose is a `PlacementOptions` value, read from a small document:

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

from dray.api.fields import ROOT, FieldError, FieldPath, duplicate, forbidden, invalid, not_supported
from dray.errors import InvalidError
from dray.placement.framework import SchedulingPlugin, ScoreNormalizer, normalize_min_max, normalize_to_max
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
DYNAMIC_RESOURCES: Final = "DynamicResources"
CLASSIC_RESOURCES: Final = "ClassicResources"
MAX_WEIGHT: Final = 1000


class Normalization(StrEnum):
    """How ranks of nodes become scores: scaled between the worst and the best, or as parts of the best."""

    BETWEEN = "between"
    MAX = "max"


_NORMALIZERS: dict[Normalization, ScoreNormalizer] = {
    Normalization.BETWEEN: normalize_min_max,
    Normalization.MAX: normalize_to_max,
}


@dataclass(frozen=True, slots=True)
class PlacementOptions:
    """Options of placement that users can set."""

    scheduler_name: str = DEFAULT_SCHEDULER
    scoring: Scoring = Scoring.LEAST
    normalization: Normalization = Normalization.BETWEEN
    weights: Mapping[str, int] = field(default_factory=dict)
    disabled: frozenset[str] = frozenset()

    @property
    def device_normalizer(self) -> ScoreNormalizer:
        """How the plugin for devices normalises its scores."""
        return _NORMALIZERS[self.normalization]


class WeightedPlugin(NamedTuple):
    """A plugin, and how often its score counts."""

    plugin: SchedulingPlugin
    weight: int


@dataclass(frozen=True, slots=True)
class SchedulerProfile:
    """The plugins of one scheduler, in the order in which they run."""

    plugins: tuple[WeightedPlugin, ...]
    scheduler_name: str = DEFAULT_SCHEDULER


class _PluginRow(NamedTuple):
    """A known plugin: its weight and its factory; None if the caller passes the plugin in."""

    weight: int
    make: Callable[[PlacementOptions], SchedulingPlugin] | None = None


PLUGINS: Final[Mapping[str, _PluginRow]] = {
    node_name.NAME: _PluginRow(0, lambda _: node_name.NodeName()),
    node_unschedulable.NAME: _PluginRow(0, lambda _: node_unschedulable.NodeUnschedulable()),
    taint_toleration.NAME: _PluginRow(3, lambda _: taint_toleration.TaintToleration()),
    node_affinity.NAME: _PluginRow(2, lambda _: node_affinity.NodeAffinityPlugin()),
    node_resources_fit.NAME: _PluginRow(
        1, lambda choices: node_resources_fit.NodeResourcesFit(choices.scoring)
    ),
    balanced_allocation.NAME: _PluginRow(1, lambda _: balanced_allocation.NodeResourcesBalancedAllocation()),
    # Last, because a search for devices costs more than all others together.
    CLASSIC_RESOURCES: _PluginRow(0),
    DYNAMIC_RESOURCES: _PluginRow(2),
}


def build_profile(
    options: PlacementOptions, claim_plugins: Iterable[SchedulingPlugin] = ()
) -> SchedulerProfile:
    """Build the profile for some options; `claim_plugins` are the plugins for claims, in any order.

    A plugin that the table does not know comes last, with the weight 1.
    """
    plugins = {title: row.make(options) for title, row in PLUGINS.items() if row.make is not None}
    plugins.update({plugin.name: plugin for plugin in claim_plugins})
    order = [*PLUGINS, *[title for title in plugins if title not in PLUGINS]]
    weights = {**{title: row.weight for title, row in PLUGINS.items()}, **options.weights}
    return SchedulerProfile(
        tuple(
            WeightedPlugin(plugins[title], weights.get(title, 1))
            for title in order
            if title in plugins and title not in options.disabled
        ),
        options.scheduler_name,
    )


# --- the document ---


def parse_placement_options(document: object) -> PlacementOptions:
    """Parse the options in a document; raises `InvalidError` with everything that is wrong in it."""
    if document is None:
        return PlacementOptions()
    if not isinstance(document, dict):
        raise InvalidError(_SUBJECT, [invalid(FieldPath("profile"), document, "must be a mapping of fields")])
    problems = [problem for key, value in document.items() for problem in _check_field(key, value)]
    if problems:
        raise InvalidError(_SUBJECT, problems)
    return PlacementOptions(
        **{_FIELDS[key].attribute: _FIELDS[key].read(value) for key, value in document.items()}
    )


_SUBJECT = "scheduler profile"


class _Field(NamedTuple):
    """A field of the document: the option it sets, its check, and its conversion."""

    attribute: str
    check: Callable[[FieldPath, Any], Iterable[FieldError]]
    read: Callable[[Any], Any]


def _check_field(key: object, value: object) -> Iterable[FieldError]:
    place = ROOT.child(str(key))
    row = _FIELDS.get(str(key))
    return (
        [forbidden(place, f"unknown field{_suggest_nearest(str(key), _FIELDS)}")]
        if row is None
        else row.check(place, value)
    )


def _check_name(place: FieldPath, value: object) -> Iterator[FieldError]:
    if not isinstance(value, str) or not value:
        yield invalid(place, value, "must be the name that pods give in `spec.schedulerName`")


def _check_one_of(words: type[StrEnum]) -> Callable[[FieldPath, Any], Iterable[FieldError]]:
    known = tuple(words)

    def faults(place: FieldPath, value: object) -> Iterator[FieldError]:
        if value not in known:
            yield not_supported(place, value if isinstance(value, str) else repr(value), known)

    return faults


def _check_weights(place: FieldPath, value: object) -> Iterator[FieldError]:
    if not isinstance(value, dict):
        yield invalid(place, value, "must be a mapping of plugin names to weights")
        return
    for title, weight in value.items():
        yield from _check_plugin(place.key(str(title)), title)
        if type(weight) is not int or not 0 <= weight <= MAX_WEIGHT:
            yield invalid(place.key(str(title)), weight, f"must be a whole number from 0 to {MAX_WEIGHT}")


def _check_disabled(place: FieldPath, value: object) -> Iterator[FieldError]:
    if not isinstance(value, list):
        yield invalid(place, value, "must be a list of plugin names")
        return
    for index, title in enumerate(value):
        yield from _check_plugin(place.index(index), title)
        if title in (DYNAMIC_RESOURCES, CLASSIC_RESOURCES):
            yield forbidden(place.index(index), f"without `{title}` pods would start without their devices")
        if title in value[:index]:
            yield duplicate(place.index(index), title)


def _check_plugin(place: FieldPath, title: object) -> Iterator[FieldError]:
    if title not in tuple(PLUGINS):
        yield invalid(place, title, f"no such plugin{_suggest_nearest(str(title), PLUGINS)}")


def _suggest_nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, tuple(known), n=1)
    return (
        f"; did you mean `{near[0]}`?" if near else f"; known are {', '.join(f'`{each}`' for each in known)}"
    )


_FIELDS: Final[Mapping[str, _Field]] = {
    "schedulerName": _Field("scheduler_name", _check_name, str),
    "scoring": _Field("scoring", _check_one_of(Scoring), Scoring),
    "normalization": _Field("normalization", _check_one_of(Normalization), Normalization),
    "weights": _Field("weights", _check_weights, dict),
    "disabled": _Field("disabled", _check_disabled, frozenset),
}
