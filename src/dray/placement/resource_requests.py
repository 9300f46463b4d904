"""Resource requests of pods: CPU, memory, pod slots and extended resources, computed as in Kubernetes.

Theory of operation: a container asks for its requests; a limit without a request is a request. Init
containers run one after the other before the main ones and release what they had, so the pod needs the
maximum over time, resource by resource. A sidecar (an init container that is always restarted) stays: it
counts in every step after its start and beside the main containers. So the pod needs the larger of

- all main containers and all sidecars, and
- over the init containers: that one and the sidecars started up to it,

and the overhead of its runtime on top. Where the pod itself has requests for CPU, memory or huge pages
(`spec.resources`), these replace the need of its containers; a limit of the pod is a request when no
container has one. For scores, and only there, a container without a request for CPU or
memory counts as a small one: many pods without requests still fill a node. Those two amounts are two more
columns of the same table, so that they follow the same rule.

All amounts are integer nanos; zero amounts are left out, so that equal requests are equal values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from dray.api.core import Container, Pod, PodResources
from dray.values.quantity import NANOS_PER_UNIT, Quantity

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
HUGE_PAGES_PREFIX = "hugepages-"
ONE_POD = NANOS_PER_UNIT

_POD_LEVEL_RESOURCES = frozenset({CPU, MEMORY})
"""Besides huge pages; Kubernetes has no other resources for pods as a whole."""

DEFAULT_CPU = NANOS_PER_UNIT // 10
"""CPU that a container without a request counts in scores: 100m."""
DEFAULT_MEMORY = 200 * 2**20 * NANOS_PER_UNIT
"""Memory that a container without a request counts in scores: 200Mi."""

# No resource has a space in its name.
_SCORED_CPU = "weighed cpu"
_SCORED_MEMORY = "weighed memory"

Amounts = dict[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class ResourceRequests:
    """Requests of one pod, or of all pods of a node together; equal and hashed by value."""

    amounts: Mapping[str, int] = field(default_factory=dict)
    """Resource name to nanos; the number of pods is one of them. Nothing is zero here."""
    scored: tuple[int, int] = (0, 0)
    """Nanos of cpu and memory as scores count them."""
    _hash: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if 0 in self.amounts.values():
            object.__setattr__(self, "amounts", {name: n for name, n in self.amounts.items() if n})
        object.__setattr__(self, "_hash", hash((frozenset(self.amounts.items()), self.scored)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ResourceRequests):
            return NotImplemented
        return self is other or (self.amounts == other.amounts and self.scored == other.scored)

    def __hash__(self) -> int:
        return self._hash

    def get(self, resource: str) -> int:
        """Nanos of one resource."""
        return self.amounts.get(resource, 0)

    def add(self, other: ResourceRequests) -> ResourceRequests:
        """Both together."""
        amounts = dict(self.amounts)
        for name, nanos in other.amounts.items():
            amounts[name] = amounts.get(name, 0) + nanos
        cpu, memory = other.scored
        return ResourceRequests(amounts, (self.scored[0] + cpu, self.scored[1] + memory))

    def subtract(self, other: ResourceRequests) -> ResourceRequests:
        """The requests without those of `other`."""
        amounts = dict(self.amounts)
        for name, nanos in other.amounts.items():
            amounts[name] = amounts.get(name, 0) - nanos
        cpu, memory = other.scored
        return ResourceRequests(amounts, (self.scored[0] - cpu, self.scored[1] - memory))


NO_REQUESTS = ResourceRequests()
"""A node without pods."""


def compute_requests(pod: Pod) -> ResourceRequests:
    """Compute the requests of a pod."""
    spec = pod.spec
    columns = _sum_amounts(map(_read_container_requests, spec.containers))
    if spec.init_containers:
        columns = _include_init_containers(columns, spec.init_containers)
    if spec.resources is not None:
        columns |= _read_pod_level_requests(spec.resources, columns)
    if spec.overhead:
        columns = _sum_amounts((columns, _add_scored_amounts(_to_nanos(spec.overhead), 0, 0)))
    weighed = (columns.pop(_SCORED_CPU, 0), columns.pop(_SCORED_MEMORY, 0))
    # After the containers, so that a request for `pods` does not change how a pod counts.
    columns[PODS] = ONE_POD
    return _intern_requests(tuple(columns.items()), weighed)


def _read_pod_level_requests(resources: PodResources, of_containers: Amounts) -> Amounts:
    """The requests of a pod as a whole, which replace those of its containers."""
    limits = _to_nanos(resources.limits)
    asked = {name: nanos for name, nanos in limits.items() if name not in of_containers}
    asked |= _to_nanos(resources.requests)
    counted = {
        name: nanos
        for name, nanos in asked.items()
        if name in _POD_LEVEL_RESOURCES or name.startswith(HUGE_PAGES_PREFIX)
    }
    scored = {
        column: counted[name]
        for name, column in ((CPU, _SCORED_CPU), (MEMORY, _SCORED_MEMORY))
        if name in counted
    }
    return counted | scored


def _read_container_requests(container: Container) -> Amounts:
    resources = container.resources
    asked = _to_nanos(resources.limits) if resources.limits else {}
    if resources.requests:
        asked.update(_to_nanos(resources.requests))
    return _add_scored_amounts(asked, DEFAULT_CPU, DEFAULT_MEMORY)


def _to_nanos(quantities: Mapping[str, Quantity]) -> Amounts:
    """Amounts in nanos; a negative one, which Kubernetes refuses, must not add to what others can take."""
    return {name: max(quantity.nanos, 0) for name, quantity in quantities.items()}


def _add_scored_amounts(asked: Amounts, cpu: int, memory: int) -> Amounts:
    """With what scores count: that which was asked for, zero too, or else the given amounts."""
    asked[_SCORED_CPU] = asked.get(CPU, cpu)
    asked[_SCORED_MEMORY] = asked.get(MEMORY, memory)
    return asked


def _include_init_containers(main: Amounts, init_containers: Iterable[Container]) -> Amounts:
    """The maximum over the phases of a pod, including its init containers."""
    sidecars: Amounts = {}
    hungriest: Amounts = {}
    for container in init_containers:
        asked = _read_container_requests(container)
        if container.restart_policy == "Always":
            sidecars = _sum_amounts((sidecars, asked))
            moment = sidecars
        else:
            moment = _sum_amounts((sidecars, asked))
        hungriest = _take_larger(hungriest, moment)
    return _take_larger(hungriest, _sum_amounts((main, sidecars)))


def _sum_amounts(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        if total:
            for name, nanos in part.items():
                total[name] = total.get(name, 0) + nanos
        else:
            total = dict(part)
    return total


def _take_larger(first: Amounts, second: Amounts) -> Amounts:
    larger = dict(first)
    for name, nanos in second.items():
        if nanos > larger.get(name, -1):
            larger[name] = nanos
    return larger


@lru_cache(maxsize=4096)
def _intern_requests(amounts: tuple[tuple[str, int], ...], weighed: tuple[int, int]) -> ResourceRequests:
    """One value for all pods of a template: they come by the thousand."""
    return ResourceRequests(dict(amounts), weighed)
