"""The workloads, as a table: scheduler_perf of Kubernetes for devices, and what its scheduler did with them.

The figures of kube-scheduler were measured on two processors with kube-apiserver, kube-scheduler, the claim
controller and the collector of garbage in one process and etcd in another. The machine took `REFERENCE`
seconds for the calibration loop (see `dray.simulation.benchmarks.allocator_timing`); on another one they are
scaled by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from bench.scheduler import objects
from bench.scheduler.objects import Document

REFERENCE: Final = 0.2076

BURST, STEADY = "burst", "steady"


@dataclass(frozen=True, slots=True)
class Workload:
    """What is there before, what is asked for, and how.

    In a burst `pods` are created as fast as it goes. In a steady run `backlog` pods wait at any time:
    whenever one has its node it is deleted and another is created, so the cluster stays as full as it was.
    """

    name: str
    mode: str
    kubernetes: float | None
    """Pods per second of kube-scheduler, on average."""
    nodes: int = 500
    pods: int = 0
    backlog: int = 10
    taken: int = 0
    """Claims that are allocated before, without pods."""
    placed: int = 0
    """Pods that are scheduled before."""
    slices: Callable[[int], list[Document]] = objects.basic
    template: Document | None = None
    spots: Callable[[], list[tuple[str, ...]]] = objects.single_devices
    """The sets of devices of a node that a claim may have taken before."""
    named: int = 0
    """So many pods share a claim they name; without, each has one from the template."""
    class_expression: str = objects.OURS
    agents: bool = False
    """Whether each node has an agent and a driver, and pods count when they run; otherwise nodes and slices
    are given, and pods count when they have their node."""

    @property
    def is_steady(self) -> bool:
        return self.mode == STEADY


def _steady(name: str, kubernetes: float | None, **more: Any) -> Workload:
    return Workload(name, STEADY, kubernetes, **more)


_TEMPLATE: Final = "SchedulingWithResourceClaimTemplate"
_NAMED: Final = "SchedulingWithResourceClaim"
_LIST: Final = "SchedulingWithResourceClaimTemplateListAttributes"
_DEFAULT: Final = objects.template(objects.requests(1))
_SELECTED: Final = objects.template(objects.requests(1, selector=objects.SELECTOR))
_MATCHED: Final = objects.template(objects.requests(5), match="resource.kubernetes.io/pciRoot")
_PAIR: Final = objects.template(objects.requests(1, count=2))
_SEVEN: Final = objects.template(objects.requests(1, count=7))
_LISTED: Final = objects.template(objects.requests(32), match="dra.example.com/match")

_PARTS: Final[Mapping[str, Any]] = MappingProxyType(
    {"slices": objects.partitionable, "template": _PAIR, "spots": objects.both_parts}
)
_BACK: Final[Mapping[str, Any]] = MappingProxyType(
    {"slices": objects.backtracking, "template": _SEVEN, "spots": objects.all_but_first}
)
_SHARED: Final[Mapping[str, Any]] = MappingProxyType(
    {"slices": objects.consumable, "template": objects.SHARES, "class_expression": objects.OURS_SHARED}
)

WORKLOADS: Final[tuple[Workload, ...]] = (
    Workload(f"{_TEMPLATE}/500pods_50nodes", BURST, None, 50, 500, template=_DEFAULT),
    Workload(f"{_TEMPLATE}/500pods_500nodes", BURST, None, 500, 500, template=_DEFAULT),
    Workload(f"{_TEMPLATE}/2000pods_200nodes", BURST, None, 200, 1000, taken=1000, template=_DEFAULT),
    Workload(f"{_TEMPLATE}/5000pods_500nodes", BURST, 31.5, 500, 2500, taken=2500, template=_DEFAULT),
    _steady(f"{_TEMPLATE}/empty_500nodes", 29.8, template=_DEFAULT),
    _steady(f"{_TEMPLATE}/half_500nodes", 35.6, taken=2500, template=_DEFAULT),
    _steady(f"{_TEMPLATE}/full_500nodes", 26.8, taken=4990, template=_DEFAULT),
    _steady(f"{_TEMPLATE}/selector_empty_500nodes", 28.3, template=_SELECTED),
    _steady(f"{_TEMPLATE}/match_empty_500nodes", 15.4, template=_MATCHED),
    Workload(
        f"{_NAMED}/2000pods_200nodes", BURST, 121.6, 200, 1000, placed=1000, slices=objects.two, named=5
    ),
    Workload(f"{_NAMED}/5000pods_500nodes", BURST, 75.2, 500, 2500, placed=2500, slices=objects.two, named=5),
    _steady("FirstAvailable/derived_empty_500nodes", 18.3, template=objects.FIRST_AVAILABLE),
    _steady("ConsumableCapacity/empty_500nodes", 26.0, **_SHARED),
    _steady("ConsumableCapacity/half_500nodes", 14.0, placed=2000, **_SHARED),
    _steady("ConsumableCapacity/full_500nodes", 14.0, placed=3990, **_SHARED),
    _steady(f"{_LIST}/empty_500nodes", 0.3, backlog=500, slices=objects.listed, template=_LISTED),
    _steady("Partitionable/empty_500nodes", 38.6, **_PARTS),
    _steady("Partitionable/half_500nodes", 32.7, taken=250, **_PARTS),
    _steady("Partitionable/full_500nodes", 30.6, taken=490, **_PARTS),
    _steady("PartitionableBacktracking/empty_500nodes", 9.7, **_BACK),
    _steady("PartitionableBacktracking/half_500nodes", 9.0, taken=250, **_BACK),
    _steady("PartitionableBacktracking/full_500nodes", 21.3, taken=490, **_BACK),
)

LARGE: Final = _steady(
    "Large/half_5000nodes", None, nodes=5000, taken=5000, spots=objects.five_devices, template=_DEFAULT
)
"""Ten devices on each of 5,000 nodes, and half of them taken, five by each claim."""

AGENTS: Final = tuple(
    Workload(f"agents/{nodes}nodes", BURST, None, nodes, 500, template=_DEFAULT, agents=True)
    for nodes in (100, 500)
)
"""Five hundred pods from the create until they run, with an agent and a driver on each node."""

EVERYTHING: Final = (*WORKLOADS, *AGENTS, LARGE)
SHORT: Final = (
    f"{_TEMPLATE}/5000pods",
    f"{_TEMPLATE}/half_500nodes",
    f"{_NAMED}/2000pods",
    "ConsumableCapacity/half",
    "PartitionableBacktracking/half",
    "agents/100nodes",
)
"""Parts of the names of the workloads that `make bench` measures."""

NOT_BUILT: Final = (
    ("CompatibilityGroups", "gate DRADeviceCompatibilityGroups"),
    ("ExtendedResource", "gate DRAExtendedResource"),
    ("SharedPodGroupResourceClaimTemplate", "gates DRAWorkloadResourceClaims and GenericWorkload"),
)
"""Workloads that need what dray does not have."""
