"""Which plugins are asked, in which order, with which weight; and reading that from a document."""

from __future__ import annotations

from typing import Any

import pytest

from dray.errors import InvalidError
from dray.placement.framework import PreFilterResult, normalize_min_max, normalize_to_max
from dray.placement.plugins.node_resources_fit import NodeResourcesFit, Scoring
from dray.placement.profile import (
    Normalization,
    PlacementOptions,
    SchedulerProfile,
    WeightedPlugin,
    build_profile,
    parse_placement_options,
)


class Named:
    """A plugin that is nothing but its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def pre_filter(self, subject: Any, snapshot: Any) -> PreFilterResult | None:
        return None


def weights_of(profile: SchedulerProfile) -> dict[str, int]:
    return {plugin.name: weight for plugin, weight in profile.plugins}


DEFAULT = {
    "NodeName": 0,
    "NodeUnschedulable": 0,
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "NodeResourcesBalancedAllocation": 1,
    "ClassicResources": 0,
    "DynamicResources": 2,
}


@pytest.mark.req("K4816-071")
def test_plugins_have_the_weights_of_kubernetes_and_cheap_ones_come_first() -> None:
    profile = build_profile(PlacementOptions(), [Named("DynamicResources"), Named("ClassicResources")])
    assert list(weights_of(profile).items()) == list(DEFAULT.items())
    assert profile.scheduler_name == "default-scheduler"


def test_plugins_that_are_not_passed_in_do_not_run() -> None:
    assert "DynamicResources" not in weights_of(build_profile(PlacementOptions()))


def test_a_plugin_of_ones_own_comes_last_or_instead_of_the_one_of_its_name() -> None:
    mine, other = Named("Mine"), Named("NodeAffinity")
    profile = build_profile(PlacementOptions(weights={"NodeName": 7}), [mine, other])
    assert profile.plugins[0].weight == 7
    assert profile.plugins[3] == WeightedPlugin(other, 2)
    assert profile.plugins[-1] == WeightedPlugin(mine, 1)


def test_choices_reach_the_plugins() -> None:
    chosen = PlacementOptions(
        "mine", Scoring.MOST, disabled=frozenset({"NodeName"}), weights={"NodeAffinity": 9}
    )
    profile = build_profile(chosen)
    assert profile.scheduler_name == "mine"
    assert NodeResourcesFit(Scoring.MOST) in [plugin for plugin, _ in profile.plugins]
    left = {name: weight for name, weight in DEFAULT.items() if name[0] in "NT" and name != "NodeName"}
    assert weights_of(profile) == left | {"NodeAffinity": 9}


@pytest.mark.req("K4816-069", "K4816-070")
def test_ranks_of_devices_are_spread_from_worst_to_best_unless_max_is_chosen() -> None:
    assert PlacementOptions().device_normalizer([16, 12, 8]) == [100, 50, 0]
    assert PlacementOptions().device_normalizer([7, 7]) == [0, 0]
    by_max = PlacementOptions(normalization=Normalization.MAX)
    assert by_max.device_normalizer([16, 12, 8]) == [100, 75, 50]
    assert (PlacementOptions().device_normalizer, by_max.device_normalizer) == (
        normalize_min_max,
        normalize_to_max,
    )


def test_a_document_is_read_whole() -> None:
    document = {
        "schedulerName": "mine",
        "scoring": "most",
        "normalization": "max",
        "weights": {"NodeAffinity": 5, "DynamicResources": 0},
        "disabled": ["NodeResourcesBalancedAllocation"],
    }
    assert parse_placement_options(document) == PlacementOptions(
        "mine",
        Scoring.MOST,
        Normalization.MAX,
        {"NodeAffinity": 5, "DynamicResources": 0},
        frozenset({"NodeResourcesBalancedAllocation"}),
    )


@pytest.mark.parametrize("document", [None, {}])
def test_an_empty_document_chooses_nothing(document: object) -> None:
    assert parse_placement_options(document) == PlacementOptions()


KNOWN = (
    "`NodeName`, `NodeUnschedulable`, `TaintToleration`, `NodeAffinity`, `NodeResourcesFit`, "
    "`NodeResourcesBalancedAllocation`, `ClassicResources`, `DynamicResources`"
)
WRONG: list[tuple[object, list[str]]] = [
    ([], ["profile: Invalid value: []: must be a mapping of fields"]),
    ({"scorin": "most"}, ["scorin: Forbidden: unknown field; did you mean `scoring`?"]),
    (
        {7: 1},
        [
            "7: Forbidden: unknown field; known are `schedulerName`, `scoring`, `normalization`, `weights`, "
            "`disabled`"
        ],
    ),
    (
        {"schedulerName": ""},
        ['schedulerName: Invalid value: "": must be the name that pods give in `spec.schedulerName`'],
    ),
    ({"scoring": "Most"}, ['scoring: Unsupported value: "Most": supported values: "least", "most"']),
    ({"scoring": ["most"]}, ['scoring: Unsupported value: "[\'most\']": supported values: "least", "most"']),
    ({"normalization": 3}, ['normalization: Unsupported value: "3": supported values: "between", "max"']),
    ({"weights": [1]}, ["weights: Invalid value: [1]: must be a mapping of plugin names to weights"]),
    (
        {"weights": {"NodeName": 1001}},
        ["weights[NodeName]: Invalid value: 1001: must be a whole number from 0 to 1000"],
    ),
    (
        {"weights": {"NodeName": True}},
        ["weights[NodeName]: Invalid value: true: must be a whole number from 0 to 1000"],
    ),
    (
        {"weights": {"NodeNam": -1}},
        [
            'weights[NodeNam]: Invalid value: "NodeNam": no such plugin; did you mean `NodeName`?',
            "weights[NodeNam]: Invalid value: -1: must be a whole number from 0 to 1000",
        ],
    ),
    ({"disabled": "NodeName"}, ['disabled: Invalid value: "NodeName": must be a list of plugin names']),
    ({"disabled": [["x"]]}, [f'disabled[0]: Invalid value: ["x"]: no such plugin; known are {KNOWN}']),
    ({"disabled": ["NodeName", "NodeName"]}, ['disabled[1]: Duplicate value: "NodeName"']),
    (
        {"disabled": ["DynamicResources"]},
        ["disabled[0]: Forbidden: without `DynamicResources` pods would start without their devices"],
    ),
    (
        {"scoring": "x", "schedulerName": None},
        [
            'scoring: Unsupported value: "x": supported values: "least", "most"',
            "schedulerName: Invalid value: null: must be the name that pods give in `spec.schedulerName`",
        ],
    ),
]


@pytest.mark.parametrize(("document", "expected"), WRONG)
def test_every_error_in_a_document_names_its_field(document: object, expected: list[str]) -> None:
    with pytest.raises(InvalidError, match=r"^scheduler profile is invalid: ") as caught:
        parse_placement_options(document)
    assert [str(problem) for problem in caught.value.problems] == expected
