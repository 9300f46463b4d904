"""What the lines of the specification cost in the allocator, measured in this process without a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from bench.specification import objects
from bench.specification.objects import DRIVER, Document
from bench.specification.timing import Figure, measure_micros, spread
from dray.allocator.allocate import allocate, search_nodes
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.usage import DeviceUsage
from dray.allocator.requests import normalize_claims
from dray.allocator.search.trace import Exhausted, SearchEnding, Solved
from dray.api import limits
from dray.api.core import Node
from dray.api.meta import ObjectMeta
from dray.api.resource import ResourceClaim

SHARE: Final = "00000000-0000-4000-8000-000000000000"
NODES: Final = 50
CLAIM_COUNTS, ALLOCATED_COUNTS = (100, 1_000, 10_000), (0, 1_000, 10_000)
LIST_LENGTHS: Final = (1, 8, 16, 32, limits.ATTRIBUTE_VALUES_PER_DEVICE)


def build_nodes(count: int) -> list[Node]:
    return [Node(metadata=ObjectMeta(name=objects.node_name(number))) for number in range(count)]


def build_cycle(
    inventory: DeviceInventory, claims: Sequence[ResourceClaim], nodes: Sequence[Node]
) -> Callable[[], list[SearchEnding]]:
    """Build the work of a scheduler for one pod: ask every node."""

    def ask() -> list[SearchEnding]:
        request = normalize_claims(claims, inventory.classes.get)
        return [ending for _, ending in search_nodes(inventory, request, nodes)]

    return ask


def measure_alternatives(times: int) -> Iterator[Figure]:
    """A claim with 1 to 8 alternatives, of which the last is there, on nodes of five kinds."""
    nodes = build_nodes(NODES)
    slices = objects.build_slices(NODES, _ten_devices_of_five_kinds)
    for count in range(1, limits.ALTERNATIVES_PER_REQUEST + 1):
        wanted = [objects.build_request(f"a{number}", model=f"none-{number}") for number in range(count - 1)]
        request = {"name": "r", "firstAvailable": [*wanted, objects.build_request("last")]}
        claim = partial(objects.build_claim, "c", [request])

        def build_work(claim: Callable[[], ResourceClaim] = claim) -> Callable[[], object]:
            return build_cycle(objects.build_inventory(slices), [claim()], nodes)

        assert all(isinstance(ending, Solved) for ending in build_work()())  # type: ignore[attr-defined]
        yield from spread(f"alternatives: {count}", measure_micros(build_work, times))


def _ten_devices_of_five_kinds(node: int) -> list[Document]:
    return [objects.build_device(i, {"kind": {"int": node % 5}}) for i in range(10)]


def measure_aggregation(times: int) -> Iterator[Figure]:
    """The sum of what claims consume of shared devices, for claims times devices."""
    for count in CLAIM_COUNTS:
        for devices in (10, 100, 1_000):
            claims = [_build_share(number, number % devices) for number in range(count)]
            micros = measure_micros(lambda claims=claims: partial(DeviceUsage.from_claims, claims), times)  # type: ignore[misc]
            yield spread(f"{count:,} claims on {devices:,} devices", micros)[0]
            usage = DeviceUsage.from_claims(claims)
            another = [_build_share(count, 0)]
            micros = measure_micros(lambda usage=usage, new=another: partial(usage.add_claims, new), times)  # type: ignore[misc]
            yield spread("  one claim more", micros)[0]


def _build_share(number: int, device: int) -> ResourceClaim:
    result = {
        "request": "r",
        "driver": DRIVER,
        "pool": f"pool-{device // 10}",
        "device": f"device-{device}",
        "shareID": f"00000000-0000-4000-8000-{number:012}",
        "consumedCapacity": {"bandwidth": "100M"},
    }
    request = objects.build_request("r")
    return objects.build_claim(f"c{number}", [request], allocation={"devices": {"results": [result]}})


def measure_classes_and_claims(times: int) -> Iterator[Figure]:
    """Classes of a cluster, claims of a pod, and allocated claims of a cluster."""
    nodes = build_nodes(NODES)
    slices = objects.build_slices(NODES, _ten_devices_of_five_kinds)
    for count in (1, 10, 20, 100):
        classes = [objects.build_class(f"class-{number}") for number in range(count)]
        request = objects.build_request("r", device_class=f"class-{count - 1}")

        def build_work(classes: list = classes, request: Document = request) -> Callable[[], object]:  # type: ignore[type-arg]
            claim = objects.build_claim("c", [request])
            return build_cycle(objects.build_inventory(slices, classes), [claim], nodes)

        yield from spread(f"classes in the cluster: {count}", measure_micros(build_work, times))
    for count in (1, 2, 4, 8):

        def build_pod(count: int = count) -> Callable[[], object]:
            claims = [objects.build_claim(f"c{i}", [objects.build_request("r")]) for i in range(count)]
            return build_cycle(objects.build_inventory(slices), claims, nodes)

        yield from spread(f"claims of a pod: {count}", measure_micros(build_pod, times))
    for count in ALLOCATED_COUNTS:
        usage = DeviceUsage.from_claims(_build_share(number, number % 1_000) for number in range(count))

        def build_full(usage: DeviceUsage = usage) -> Callable[[], object]:
            claim = objects.build_claim("c", [objects.build_request("r")])
            return build_cycle(objects.build_inventory(slices, usage=usage), [claim], nodes)

        yield from spread(f"allocated claims in the cluster: {count:,}", measure_micros(build_full, times))


def measure_sorting(times: int) -> Iterator[Figure]:
    """The first answer on a node with ten pools of eight slices, without and with priorities."""
    (node,) = build_nodes(1)

    def devices(node: int) -> list[Document]:
        return [objects.build_device(i) for i in range(4)]

    kinds: dict[str, Callable[[int], int | None]] = {
        "no priorities": lambda number: None,
        "a priority each": lambda number: number * 7919 % 101 - 50,
    }
    for what, priority in kinds.items():
        slices = objects.build_slices(1, devices, 10, 8, priority)

        def build_view(slices: list = slices) -> Callable[[], object]:  # type: ignore[type-arg]
            return partial(objects.build_inventory(slices).get_node_view, node)

        def build_work(slices: list = slices) -> Callable[[], object]:  # type: ignore[type-arg]
            claim = objects.build_claim("c", [objects.build_request("r")])
            return build_cycle(objects.build_inventory(slices), [claim], [node])

        yield from spread(f"80 slices, {what}: pools of a node", measure_micros(build_view, times))
        yield from spread(f"80 slices, {what}: first answer", measure_micros(build_work, times))


def measure_lists(times: int) -> Iterator[Figure]:
    """Four devices that match in an attribute: of one value, and of lists up to the limit of a device."""
    (node,) = build_nodes(1)
    for length in (0, *LIST_LENGTHS):
        slices = objects.build_slices(1, partial(_match_late, length=length))

        def build_work(slices: list = slices) -> Callable[[], object]:  # type: ignore[type-arg]
            return build_cycle(objects.build_inventory(slices), [_build_matching_claim(4)], [node])

        what = f"lists of {length} values" if length else "one value, not a list"
        yield from spread(what, measure_micros(build_work, times))
        yield Figure("  steps of the search", _count_steps(build_work()), "")


def _match_late(node: int, length: int, devices: int = 32) -> list[Document]:
    """Devices of which only the last half has the value that matches; the others have values of their own."""
    found = []
    for number in range(devices):
        first = "shared" if number >= devices // 2 else f"own-{number}"
        values = [first, *(f"d{number}-{i}" for i in range(1, length))]
        value = {"strings": values} if length else {"string": first}
        found.append(objects.build_device(number, {"match": value}))
    return found


def _build_matching_claim(count: int) -> ResourceClaim:
    constraint = {"requests": ["r"], "matchAttribute": f"{DRIVER}/match"}
    return objects.build_claim("c", [objects.build_request("r", count)], [constraint])


def count_worst_steps(devices: int, count: int, length: int) -> int:
    """Count the steps of a search that tries everything: no two devices have a common value."""

    def build(node: int) -> list[Document]:
        return _match_late(node, length, devices * 2)[:devices]

    (node,) = build_nodes(1)
    inventory = objects.build_inventory(objects.build_slices(1, build))
    found = allocate(inventory, [_build_matching_claim(count)], node, new_share_id=lambda: SHARE)
    assert isinstance(found.ending, Exhausted)
    return found.ending.steps


def measure_worst_case(times: int) -> Iterator[Figure]:
    """Searches without a solution: the steps with single values, and with lists of them."""
    for devices in (8, 16, 32):
        for length in (0, 1, limits.ATTRIBUTE_VALUES_PER_DEVICE):
            what = f"lists of {length}" if length else "single values"
            steps = count_worst_steps(devices, 4, length)
            yield Figure(f"4 of {devices} devices, {what}: steps", steps, "")


def _count_steps(work: Callable[[], object]) -> int:
    endings = work()
    assert isinstance(endings, list)
    (ending,) = endings
    assert isinstance(ending, Solved)
    return ending.steps


def measure_sizes(times: int) -> Iterator[Figure]:
    """What the fields of consumable capacity add to objects, as JSON in the store."""
    ranges = {"min": "1Gi", "max": "64Gi", "step": "1Gi"}
    values = [f"{number}{'0' * 12}" for number in range(1, limits.VALID_VALUES + 1)]
    parts = {
        "flag of a device": {"allowMultipleAllocations": True},
        "policy with a range": {"requestPolicy": {"default": "1Gi", "validRange": ranges}},
        "policy with the most values": {"requestPolicy": {"default": values[0], "validValues": values}},
        "a consumed capacity": {"consumedCapacity": {"bench.example.com/bandwidth": "2500M"}},
        "a share ID": {"shareID": SHARE},
    }
    for what, fields in parts.items():
        # Braces are there anyway, and a comma comes with each further field.
        yield Figure(what, len(msgspec.json.encode(fields)) - 2 + 1, "bytes")
