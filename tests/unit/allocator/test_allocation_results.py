"""A solution becomes allocations: results, share ids, node selectors, configuration."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dray.allocator.allocate import SuccessfulAllocation, allocate, search_nodes
from dray.allocator.allocation_results import build_allocations
from dray.allocator.search.trace import Solved
from dray.api.resource import DeviceToleration
from dray.values.node_selectors import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    build_node_name_selector,
)
from tests.brute.builders import (
    asking,
    claim,
    device,
    device_class,
    devices,
    first_of,
    labelled,
    node,
    published,
    request,
)
from tests.brute.config_builders import claim_config, class_config, opaque
from tests.brute.laws import Bench, inventory_of, results_of, share_ids
from tests.brute.outcome import allocated, world

HERE = node("n1", zone="z1", rack="r1")


def the_results(problem):
    results = allocated(problem)
    assert results is not None
    return [item for one in results for item in one.devices.results]


@pytest.mark.req("K4816-055", "K4816-056")
def test_results_name_the_request_or_the_alternative():
    asked = claim(request("nic"), first_of("gpu", ("big", asking(1, "never")), ("small", asking())))
    found = the_results(world(published(*devices("a", "b")), asked))
    assert [item.request for item in found] == ["nic", "gpu/small"]
    assert [(item.driver, item.pool, item.device) for item in found] == [
        ("gpu.example", "pool", "a"),
        ("gpu.example", "pool", "b"),
    ]


def test_admin_access_is_set_only_when_true():
    asked = claim(request("look", admin_access=True), request("use", admin_access=False))
    found = the_results(world(published(*devices("a", "b")), asked))
    assert [item.admin_access for item in found] == [True, None]


def test_tolerations_and_binding_conditions_are_copied():
    tolerations = (DeviceToleration(key="hot", operator="Exists"),)
    waiting = device("a", binding_conditions=("Attached",), binding_failure_conditions=("Lost",))
    asked = claim(request("r", tolerations=tolerations))
    (found,) = the_results(world(published(waiting), asked))
    assert found.tolerations == tolerations
    assert found.binding_conditions == ("Attached",)
    assert found.binding_failure_conditions == ("Lost",)


@pytest.mark.req("K5075-079", "K5075-080", "K5075-094", "K5075-095")
def test_every_share_gets_an_id_of_its_own():
    asked = claim(request("r0", capacity={"mem": 1}), request("r1", capacity={"mem": 2}))
    found = the_results(world(published(device("a", shared=True, capacity={"mem": 4})), asked))
    assert [item.device for item in found] == ["a", "a"]
    assert len({item.share_id for item in found}) == 2
    assert [str(item.consumed_capacity["mem"]) for item in found] == ["1", "2"]


def test_ids_are_asked_for_once_per_share_and_only_then():
    problem = world(
        published(device("a"), device("b", shared=True)),
        claim(request("r0", 1, "single"), request("r1", 1, "shared")),
    )
    asked: list[None] = []

    def new_share_id():
        asked.append(None)
        return "id"

    found = allocate(inventory_of(problem), problem.claims, problem.node, new_share_id=new_share_id)
    assert isinstance(found, SuccessfulAllocation)
    assert [item.share_id for item in found.results[0].devices.results] == [None, "id"]
    assert len(asked) == 1


@pytest.mark.req("K5075-084")
def test_a_whole_device_has_no_share_id_and_consumes_nothing():
    asked = claim(request("r", capacity={"mem": 1}))
    (found,) = the_results(world(published(device("a", capacity={"mem": 4})), asked))
    assert found.share_id is None
    assert found.consumed_capacity == {}


def test_amounts_are_written_as_the_device_writes_them():
    asked = claim(request("r", capacity={"mem": str(2 * 1024**3)}))
    (found,) = the_results(world(published(device("a", shared=True, capacity={"mem": "4Gi"})), asked))
    assert str(found.consumed_capacity["mem"]) == "2Gi"


# --- where ---


WHERE: dict[str, tuple[dict[str, Any], Any]] = {
    "a node by name": ({"node_name": "n1"}, build_node_name_selector("n1")),
    "all nodes": ({"all_nodes": True}, None),
    "a selector": ({"node_selector": labelled({"zone": "z1"})}, labelled({"zone": "z1"})),
}


@pytest.mark.parametrize("case", WHERE)
def test_the_allocation_is_bound_where_the_device_is(case):
    where, wanted = WHERE[case]
    (found,) = allocated(world(published(device("a"), **where), claim(request("r")), nodes=[HERE]))
    assert found.node_selector == wanted


def test_selectors_of_several_devices_are_merged_without_repeating_them():
    slices = [
        published(device("a"), name="s1", pool="p1", node_selector=labelled({"zone": "z1"})),
        published(device("b"), name="s2", pool="p2", node_selector=labelled({"zone": "z1", "rack": "r1"})),
        published(device("c"), name="s3", pool="p3", all_nodes=True),
    ]
    (found,) = allocated(world(slices, claim(request("r", 3)), nodes=[HERE]))
    assert found.node_selector == labelled({"zone": "z1", "rack": "r1"})


def test_one_local_device_binds_everything_to_the_node():
    slices = [
        published(device("a"), name="s1", pool="p1", node_selector=labelled({"zone": "z1"})),
        published(device("b", binds_to_node=True), name="s2", pool="p2", all_nodes=True),
    ]
    (found,) = allocated(world(slices, claim(request("r", 2)), nodes=[HERE]))
    assert found.node_selector == build_node_name_selector("n1")


def test_each_device_may_say_by_itself_where_it_is():
    page = published(
        device("a", node_name="n2"),
        device("b", node_selector=labelled({"rack": "r1"})),
        per_device_node_selection=True,
    )
    (found,) = allocated(world(page, claim(request("r")), nodes=[HERE]))
    assert found.devices.results[0].device == "b"
    assert found.node_selector == labelled({"rack": "r1"})


def test_nodes_that_look_alike_are_bound_to_where_their_own_devices_are():
    """Two nodes have one shape, yet one reaches its device by name and the other by a label."""
    there = node("n2", zone="z2")
    slices = [
        published(device("a"), name="s1", pool="p1", node_name="n1"),
        published(device("a"), name="s2", pool="p2", node_selector=labelled({"zone": "z2"})),
    ]
    problem = world(slices, claim(request("r")), nodes=[HERE, there])
    bench = Bench(problem)
    found = {}
    for view, ending in search_nodes(bench.inventory, bench.ask, problem.nodes):
        assert isinstance(ending, Solved)
        (one,) = build_allocations(bench.ask, view, ending.picks, new_share_id=share_ids())
        found[view.node.metadata.name] = one.node_selector
    assert bench.inventory.get_node_view(HERE).shape is bench.inventory.get_node_view(there).shape
    assert found == {"n1": build_node_name_selector("n1"), "n2": labelled({"zone": "z2"})}


def test_claims_of_one_pod_are_bound_each_by_its_own_devices():
    slices = [
        published(device("a"), name="s1", pool="p1", node_name="n1"),
        published(device("b"), name="s2", pool="p2", all_nodes=True),
    ]
    found = allocated(
        world(slices, claim(request("r"), name="c0"), claim(request("r"), name="c1"), nodes=[HERE])
    )
    assert [one.node_selector for one in found] == [build_node_name_selector("n1"), None]


# --- configuration ---


def config(problem):
    (found,) = allocated(problem)
    return [(item.source, item.requests, bytes(item.opaque.parameters)) for item in found.devices.config]


CLASSES = (
    device_class("any", config=(class_config("any-1"), class_config("any-2"))),
    device_class("odd", config=(class_config("odd"),)),
    device_class("plain"),
)


def test_configuration_of_classes_comes_first_in_the_order_of_their_use():
    asked = claim(
        request("r0", device_class="odd"),
        request("r1", device_class="any"),
        request("r2", device_class="odd"),
        config=[claim_config("mine", "r1")],
    )
    found = config(world(published(*devices("a", "b", "c")), asked, classes=CLASSES))
    assert found == [
        ("FromClass", ("r0", "r2"), b'"odd"'),
        ("FromClass", ("r1",), b'"any-1"'),
        ("FromClass", ("r1",), b'"any-2"'),
        ("FromClaim", ("r1",), b'"mine"'),
    ]


@pytest.mark.req("K4816-020", "K4816-021", "K4816-048")
@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ((), [((), b'"x"')]),
        (("gpu",), [(("gpu",), b'"x"')]),
        (("gpu/small",), [(("gpu/small",), b'"x"')]),
        (("gpu/big",), []),
        (("gpu", "nic"), [((), b'"x"')]),
        (("gpu/small", "nic"), [((), b'"x"')]),
        (("gpu/big", "nic"), [(("gpu/big", "nic"), b'"x"')]),
        (("gpu/big", "gpu/small"), [(("gpu/big", "gpu/small"), b'"x"')]),
    ],
)
def test_configuration_of_the_claim_reaches_what_was_chosen(named, expected):
    """Names that cover every request, as it was chosen, become none; others are never widened to that."""
    asked = claim(
        first_of(
            "gpu", ("big", asking(1, "never", device_class="plain")), ("small", asking(device_class="plain"))
        ),
        request("nic", device_class="plain"),
        config=[claim_config("x", *named)],
    )
    found = config(world(published(*devices("a", "b")), asked, classes=CLASSES))
    assert [(names, text) for _source, names, text in found] == expected


def test_a_class_of_every_request_needs_no_names():
    found = config(world(published(*devices("a", "b")), claim(request("r0"), request("r1")), classes=CLASSES))
    assert [(source, names) for source, names, _ in found] == [("FromClass", ()), ("FromClass", ())]


def test_a_class_of_an_alternative_not_taken_configures_nothing():
    asked = claim(
        first_of(
            "gpu", ("big", asking(1, "never", device_class="odd")), ("small", asking(device_class="plain"))
        )
    )
    assert config(world(published(device("a")), asked, classes=CLASSES)) == []


def test_parameters_are_passed_on_untouched():
    (found,) = allocated(world(published(device("a")), claim(request("r"), config=[claim_config("x")])))
    assert found.devices.config[0].opaque == opaque("x")
    assert isinstance(found.devices.config[0].opaque.parameters, msgspec.Raw)


@pytest.mark.parametrize("per_device", [False, True])
def test_a_requirement_that_is_repeated_is_written_once(per_device):
    repeated = NodeSelector(
        node_selector_terms=(
            NodeSelectorTerm(
                match_expressions=(
                    NodeSelectorRequirement(key="zone", operator="In", values=("z1", "z2")),
                    NodeSelectorRequirement(key="zone", operator="In", values=("z2", "z1")),
                    NodeSelectorRequirement(key="rack", operator="Exists"),
                )
            ),
        )
    )
    slices = published(device("a"), node_selector=repeated)
    if per_device:
        slices = published(device("a", node_selector=repeated), per_device_node_selection=True)
    (found,) = results_of(world(slices, claim(request("r")), nodes=[HERE]))
    (term,) = found.node_selector.node_selector_terms
    assert [(item.key, item.values) for item in term.match_expressions] == [
        ("zone", ("z1", "z2")),
        ("rack", ()),
    ]


def test_no_claims_and_no_requests_are_trivially_answered():
    assert results_of(world(published(device("a")))) == ()
    (found,) = results_of(world(published(device("a")), claim()))
    assert found.devices.results == ()
    assert found.node_selector is None
