"""What nodes see equals what they see when every slice is read from scratch, however slices change.

Equal nodes are prepared after one model, slices for several nodes are found by labels, and what did not
change is reused. Every node is compared with pool views that were built of all slices one by one.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

from hypothesis import given
from hypothesis import strategies as st

from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.device_profiles import DeviceProfileTable
from dray.allocator.inventory.pool_views import PoolView, PreparedSlice, build_pool_views, sort_pool_views
from dray.allocator.inventory.usage import DeviceUsage
from dray.api.core import Node
from dray.api.devices.interning import DeviceInterner
from dray.api.json_text import write_json
from dray.api.resource import ResourceSlice
from dray.values.node_selectors import (
    NODE_NAME_FIELD,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from tests.brute import builders as make
from tests.brute.toy_selectors import evaluate_toy
from tests.effort import effort

NODES = (make.node("n1", zone="a", rack="1"), make.node("n2", zone="a", rack="2"), make.node("n3", zone="b"))
LABELS = {"zone": ("a", "b"), "rack": ("1", "2")}

names = st.sampled_from(["n1", "n2", "n3", "n4"])


@st.composite
def requirements(draw: st.DrawFn) -> NodeSelectorRequirement:
    key = draw(st.sampled_from(sorted(LABELS)))
    operator = draw(st.sampled_from(["In", "In", "NotIn", "Exists", "DoesNotExist"]))
    values = draw(st.lists(st.sampled_from(LABELS[key]), min_size=1, max_size=2)) if "In" in operator else []
    return NodeSelectorRequirement(key=key, operator=operator, values=tuple(values))


@st.composite
def terms(draw: st.DrawFn) -> NodeSelectorTerm:
    fields = draw(st.lists(names, max_size=1))
    named = [NodeSelectorRequirement(key=NODE_NAME_FIELD, operator="In", values=(name,)) for name in fields]
    return NodeSelectorTerm(
        match_expressions=tuple(draw(st.lists(requirements(), max_size=2))), match_fields=tuple(named)
    )


selectors = st.builds(
    lambda terms: NodeSelector(node_selector_terms=tuple(terms)), st.lists(terms(), min_size=1, max_size=2)
)
devices = st.lists(
    st.builds(
        make.device,
        st.sampled_from(["a", "b"]),
        numa=st.integers(0, 1),
        shared=st.booleans(),
        binding_conditions=st.sampled_from([(), (), ("Attached",)]),
    ),
    min_size=1,
    max_size=2,
)


@st.composite
def slices(draw: st.DrawFn) -> ResourceSlice:
    where: dict[str, Any] = draw(
        st.one_of(
            st.fixed_dictionaries({"node_name": names}),
            st.fixed_dictionaries({"node_name": names}),
            st.fixed_dictionaries({"node_selector": selectors}),
            st.just({"all_nodes": True}),
        )
    )
    pool = draw(st.sampled_from(["p", "q"])) if "node_name" not in where else f"of-{where['node_name']}"
    return make.published(
        *draw(devices),
        name=draw(st.sampled_from("stuvw")),
        pool=pool,
        generation=draw(st.integers(1, 2)),
        count=draw(st.sampled_from([1, 1, 2])),
        priority=draw(st.sampled_from([None, None, 5])),
        **where,
    )


@st.composite
def pairs(draw: st.DrawFn) -> list[ResourceSlice]:
    """Pools of two slices on two nodes, alike or nearly so."""
    return [
        make.published(
            make.device(name),
            name=f"{name}-{node}",
            pool=f"of-{node}",
            node_name=node,
            count=2,
            generation=draw(st.sampled_from([1, 1, 2])),
            priority=draw(st.sampled_from([None, 5])),
        )
        for node in ("n1", "n2")
        for name in ("a", "b")
    ]


def look(shelf: PoolView) -> dict[str, Any]:
    return {
        "pool": shelf.pool,
        "order": shelf.order,
        "names": shelf.names,
        "contents": [write_json(content.device) for content in shelf.profiles],
        "reaches": shelf.node_scopes,
        "counters": shelf.counters,
        "consumers": shelf.consumers,
        "flaw": shelf.flaw,
    }


def anew(published: list[ResourceSlice], node: Node) -> list[dict[str, Any]]:
    """What a node sees, made of nothing but the slices."""
    pages = [PreparedSlice(each, DeviceProfileTable(evaluate_toy)) for each in published]
    pools: dict[Any, list[Any]] = {}
    for page in pages:
        positions = page.find_reachable(node)
        if positions is not None:
            pools.setdefault(page.pool, []).append((page, positions))
    found: list[PoolView] = []
    for pool, entries in pools.items():
        everything = [page for page in pages if page.pool == pool]
        found += build_pool_views(pool, entries, everything, WeakValueDictionary())
    return [_without_name(look(shelf)) for shelf in sort_pool_views(found)]


def _without_name(shown: dict[str, Any]) -> dict[str, Any]:
    """Devices that differ only in name have one content: of which of them its device is does not matter."""
    contents = [text.replace(b'"name":"b"', b'"name":"a"') for text in shown["contents"]]
    return shown | {"contents": contents}


@effort(1)
@given(st.lists(st.lists(slices(), max_size=5) | pairs(), min_size=1, max_size=3), st.booleans())
def test_node_views_equal_the_slices(steps: list[list[ResourceSlice]], sharing: bool) -> None:
    shared = DeviceInterner()
    there = DeviceInventory((), (), DeviceUsage(), evaluate_toy)
    kept: list[ResourceSlice] = []
    for step, some in enumerate(steps):
        came = [shared.intern_devices(each) for each in some] if sharing else some
        kept = [*kept[step % 2 :: 2], *came]  # half of what was there goes
        there = there.replace_slices(kept)
        for node in NODES:
            seen = [_without_name(look(shelf)) for shelf in there.get_node_view(node).pool_views]
            assert seen == anew(kept, node)
