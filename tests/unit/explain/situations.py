"""Small clusters in which claims fit or do not fit; by name, because several tests use them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.api.core import Node
from dray.api.decode_report import UnknownField
from dray.api.kinds import get_kind_by_type
from dray.api.resource import CapacityRequestPolicy, CapacityRequestPolicyRange, ResourceSlice
from dray.api.unknown_fields import mark_unknown_fields
from dray.explain import Diagnosis, WorkBudget
from dray.values.node_selectors import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dray.values.quantity import Quantity
from tests.unit.explain.cluster import (
    Cluster,
    attribute,
    capacity,
    claim,
    counter_set,
    first_of,
    memory,
    request,
)

TAINT = "taint=gpu.example/maintenance:NoSchedule"
SIZES = {size: {"where": [attribute("size", size)]} for size in ("large", "small")}


def all_in_use() -> Diagnosis:
    cluster = Cluster().node("node-a", "gpu-0 held=ml/old\ngpu-1 held=ml/old")
    return cluster.node("node-b", "gpu-0 held=ml/other").diagnose(claim())


def all_in_use_on_many_nodes() -> Diagnosis:
    cluster = Cluster()
    for i in range(50):
        cluster.node(f"node-{i:02}", f"gpu-0 held=ml/old-{i}")
    return cluster.diagnose(claim())


def tainted() -> Diagnosis:
    return Cluster().node("node-a", f"gpu-0 {TAINT}\ngpu-1 held=ml/old").diagnose(claim())


def closest() -> Diagnosis:
    cluster = Cluster().node(
        "node-a",
        f"""
        gpu-0 numa=0
        gpu-1 numa=0
        gpu-2 numa=0 held=ml/old
        gpu-3 numa=1 held=ml/old
        gpu-4 numa=1 held=ml/other
        gpu-5 numa=1
        gpu-6 numa=1
        gpu-7 numa=0 {TAINT}""",
    )
    cluster.node("node-b", "gpu-0 numa=0", slices=2, generation=7)
    cluster.node("node-c", "gpu-0 numa=0\ngpu-1 numa=1").node("node-d")
    return cluster.diagnose(claim(request(count=3), same="numa"))


def same_numa() -> Diagnosis:
    """The furthest dead end is not the first one: two devices are on numa 1, one is on numa 0."""
    cluster = Cluster().node("node-a", "gpu-0 numa=0\ngpu-1 numa=1\ngpu-2 numa=1")
    return cluster.diagnose(claim(request(count=3), same="numa"))


def different_numa() -> Diagnosis:
    cluster = Cluster().node("node-a", "gpu-0 numa=0\ngpu-1 numa=0\ngpu-2 numa=1")
    return cluster.diagnose(claim(request(count=3), different="numa"))


def attribute_missing() -> Diagnosis:
    return Cluster().node("node-a", "gpu-0 numa=0\ngpu-1").diagnose(claim(request(count=2), same="numa"))


def capacity_short() -> Diagnosis:
    lines = "gpu-0 shared memory:10Gi share=ml/old/memory:7Gi\ngpu-1 shared memory:4Gi\ngpu-2 shared cores:8"
    return Cluster().node("node-a", lines).diagnose(claim(request(capacity="memory:5Gi")))


def capacity_policy() -> Diagnosis:
    cluster = Cluster().node("node-a", "gpu-0 shared memory:40Gi")
    limits = CapacityRequestPolicyRange(
        min=Quantity.parse("2Gi"), max=Quantity.parse("8Gi"), step=Quantity.parse("2Gi")
    )
    return _with_policy(cluster, limits).diagnose(claim(request(capacity="memory:9Gi")))


def capacity_unrepresentable() -> Diagnosis:
    cluster = Cluster().node("node-a", "gpu-0 shared memory:40Gi")
    limits = CapacityRequestPolicyRange(min=Quantity.parse("1"), step=Quantity.parse("7Ei"))
    return _with_policy(cluster, limits).diagnose(claim(request(capacity="memory:7680Pi")))


def _with_policy(cluster: Cluster, limits: CapacityRequestPolicyRange) -> Cluster:
    policy = CapacityRequestPolicy(valid_range=limits)
    held = {"memory": capacity(Quantity.parse("40Gi"), policy)}
    published = cluster.slices[0]
    device = msgspec.structs.replace(published.spec.devices[0], capacity=held)
    spec = msgspec.structs.replace(published.spec, devices=(device,))
    cluster.slices[0] = msgspec.structs.replace(published, spec=spec)
    return cluster


def counters_short() -> Diagnosis:
    lines = """
        big-0 size=big draws=board/memory:40Gi
        small-0 size=small draws=board/memory:10Gi held=ml/old
        small-1 size=small draws=board/memory:10Gi"""
    cluster = Cluster().node("node-a", lines, counters=counter_set("board", "memory:40Gi"))
    return cluster.diagnose(claim(request(where=[attribute("size", "big")])))


def selector_false() -> Diagnosis:
    cluster = Cluster().node("node-a", "gpu-0 memory:24Gi\ngpu-1 memory:40Gi")
    return cluster.diagnose(claim(request(where=[memory(">=", "80Gi")])))


def one_condition_false() -> Diagnosis:
    cluster = Cluster().node("node-a", "gpu-0 numa=1 memory:24Gi\ngpu-1 numa=0 memory:40Gi")
    both = f"{attribute('numa', 0)} && {memory('>=', '80Gi')}"
    return cluster.diagnose(claim(request(where=[both])))


def nothing_of_the_class() -> Diagnosis:
    return Cluster().node("node-a", "nic-0", driver="nic.example").diagnose(claim())


def selector_fails() -> Diagnosis:
    cluster = Cluster().node("node-a", "gpu-0 memory:80Gi held=ml/old\ngpu-1")
    cluster.node("node-b", "gpu-0 memory:40Gi")
    return cluster.diagnose(claim(request(where=[memory(">=", "80Gi")])))


def pool_incomplete() -> Diagnosis:
    cluster = Cluster().node("node-a", "gpu-0", slices=2, generation=7)
    return cluster.node("node-b", "gpu-0", slices=2, generation=7).diagnose(claim())


def pool_invalid() -> Diagnosis:
    return Cluster().node("node-a", "gpu-0\ngpu-0").diagnose(claim())


def pool_with_unknown_fields() -> Diagnosis:
    cluster = Cluster().node("node-a", "gpu-0").node("node-b", "gpu-0").node("node-c", "gpu-0")
    for index, path in ((0, "spec.devices[0].tomorrow"), (2, "spec.skipNodeOperations")):
        unknown = UnknownField(path, path.rpartition(".")[2])
        kind = get_kind_by_type(ResourceSlice)
        cluster.slices[index] = mark_unknown_fields(cluster.slices[index], kind, [unknown])
    return cluster.diagnose(claim(request(count=2)))


def all_with_unknown_fields() -> Diagnosis:
    cluster = Cluster().node("node-a", "gpu-0")
    unknown = UnknownField("spec.tomorrow", "tomorrow")
    kind = get_kind_by_type(ResourceSlice)
    cluster.slices[0] = mark_unknown_fields(cluster.slices[0], kind, [unknown])
    return cluster.diagnose(claim(request(all=True)))


def alternatives_exhausted() -> Diagnosis:
    cluster = Cluster().node("node-a", "gpu-0 size=large held=ml/old\ngpu-1 size=medium")
    return cluster.diagnose(claim(first_of("gpu", **SIZES)))


def all_refused() -> Diagnosis:
    return Cluster().node("node-a", "gpu-0\ngpu-1 held=ml/old\ngpu-2").diagnose(claim(request(all=True)))


def all_with_an_incomplete_pool() -> Diagnosis:
    return Cluster().node("node-a", "gpu-0\ngpu-1", slices=3).diagnose(claim(request(all=True)))


def all_and_nothing_matches() -> Diagnosis:
    asked = request(all=True, where=[attribute("size", "large")])
    return Cluster().node("node-a", "gpu-0 size=small").diagnose(claim(asked))


def more_than_a_claim_can_hold() -> Diagnosis:
    lines = "\n".join(f"gpu-{i}" for i in range(33))
    return Cluster().node("node-a", lines).diagnose(claim(request(all=True)))


def thirty_three_asked() -> Diagnosis:
    lines = "\n".join(f"gpu-{i}" for i in range(40))
    return Cluster().node("node-a", lines).diagnose(claim(request(count=33)))


def gave_up() -> Diagnosis:
    lines = "\n".join(f"gpu-{i} numa={i % 4}" for i in range(12))
    cluster = Cluster().node("node-a", lines).node("node-b", "gpu-0 numa=0 held=ml/old")
    return cluster.diagnose(claim(request(count=4), same="numa"), work_budget=WorkBudget(max_steps=5))


def unknown_class() -> Diagnosis:
    return Cluster().node("node-a", "gpu-0").diagnose(claim(request(of="gpus")))


def two_claims() -> Diagnosis:
    cluster = Cluster().node("node-a", "gpu-0")
    return cluster.diagnose(claim(name="first"), claim(request("extra"), request("more"), name="second"))


def pruned_traces() -> Diagnosis:
    """More kinds of nodes than get a detailed trace: the last ones have the trace of a pruned search."""
    cluster = Cluster()
    for i in range(52):
        others = "\n".join(f"nic-{i}-{j} numa={i}" for j in range(i))
        cluster.node(f"node-{i:02}", others, driver="nic.example")
        cluster.node(f"node-{i:02}", "gpu-0 numa=0\ngpu-1 numa=1\ngpu-2 numa=1\ngpu-3 numa=0")
    return cluster.diagnose(claim(request(count=3), same="numa"))


def node_selector_of_several_terms() -> Diagnosis:
    cluster = Cluster().node("node-a", "gpu-0")
    name = NodeSelectorRequirement(key="metadata.name", operator="In", values=("node-a",))
    term = NodeSelectorTerm(match_fields=(name,))
    spec = msgspec.structs.replace(
        cluster.slices[0].spec, node_name=None, node_selector=NodeSelector(node_selector_terms=(term, term))
    )
    cluster.slices = [ResourceSlice(metadata=cluster.slices[0].metadata, spec=spec)]
    return cluster.diagnose(claim())


def no_nodes() -> Diagnosis:
    return Cluster().diagnose(claim(), pod="")


# --- claims that fit ---


def passed_over() -> Diagnosis:
    lines = f"gpu-0 held=ml/old\ngpu-1 {TAINT}\ngpu-2\ngpu-3 held=ml/other\ngpu-4"
    cluster = Cluster().node("node-a", lines).node("node-b", "gpu-0\ngpu-1").node("node-c")
    return cluster.diagnose(claim(request(count=2)))


def second_alternative() -> Diagnosis:
    cluster = Cluster().node("node-a", "gpu-0 size=large held=ml/old\ngpu-1 size=small")
    return cluster.diagnose(claim(first_of("gpu", **SIZES)))


def better_alternative_elsewhere() -> Diagnosis:
    cluster = Cluster().node("node-a", "gpu-0 size=small").node("node-b", "gpu-0 size=large")
    return cluster.diagnose(claim(first_of("gpu", **SIZES)))


def turned_back() -> Diagnosis:
    cluster = Cluster().node("node-a", "gpu-0 numa=0\ngpu-1 numa=1\ngpu-2 numa=1")
    return cluster.diagnose(claim(request(count=2), same="numa"))


def a_share() -> Diagnosis:
    lines = "gpu-0 shared memory:10Gi share=ml/old/memory:7Gi\ngpu-1 shared memory:40Gi"
    return Cluster().node("node-a", lines).diagnose(claim(request(capacity="memory:5Gi")), pod="")


def everything() -> Diagnosis:
    return Cluster().node("node-a", "gpu-0\ngpu-1").diagnose(claim(request(all=True)))


def claims_of_one_pod() -> Diagnosis:
    return Cluster().node("node-a", "gpu-0\ngpu-1").diagnose(claim(name="first"), claim(name="second"))


def nothing_asked() -> Diagnosis:
    return Cluster().node("node-a").diagnose()


def withheld() -> Diagnosis:
    """Devices that need a feature gate which is off; a claim that holds one still counts."""
    cluster = Cluster().node(
        "node-a", "gpu-0 draws=board/memory:20Gi", counters=counter_set("board", "memory:20Gi")
    )
    cluster.node("node-b", "gpu-0\ngpu-1 held=ml/old")
    last = cluster.slices[-1]
    waiting = tuple(
        msgspec.structs.replace(device, binding_conditions=("Attached",)) for device in last.spec.devices
    )
    cluster.slices[-1] = msgspec.structs.replace(
        last, spec=msgspec.structs.replace(last.spec, devices=waiting)
    )
    cluster.node("node-c", "gpu-0")
    own = cluster.slices[-1]
    spec = msgspec.structs.replace(
        own.spec,
        node_name=None,
        per_device_node_selection=True,
        devices=tuple(msgspec.structs.replace(one, node_name="node-c") for one in own.spec.devices),
    )
    cluster.slices[-1] = msgspec.structs.replace(own, spec=spec)
    gates = {"DRADeviceBindingConditions": False, "DRAPartitionableDevices": False}
    cluster.slices = AllocatorGateFilter.from_overrides(gates).admit_slices(cluster.slices)
    return cluster.diagnose(claim())


SITUATIONS: dict[str, Callable[[], Diagnosis]] = {
    name: found
    for name, found in list(globals().items())
    if getattr(found, "__annotations__", {}) == {"return": "Diagnosis"}
}
"""Every situation by name."""

__all__ = ["SITUATIONS", "TAINT", "Node"]
