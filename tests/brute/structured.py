"""Random problems with a structure: equal GPUs with partitions, packed shares, several counter sets, lists.

Theory of operation: the problems of `drawing` have a bit of everything. These have much of one thing, because
that is where pruning works hardest: components that look alike, capacities without slack, constraints over
lists. They are just small enough for the plain search; `scale` makes them larger for runs that compare the
search with itself.
"""

from __future__ import annotations

from random import Random
from typing import Any

from dray.api.resource import DeviceRequest, ResourceClaim, ResourceSlice
from tests.brute import builders as make
from tests.brute.generators import LARGE, SMALL, draw
from tests.brute.problem import Problem

CLASSES = (
    make.device_class("any"),
    make.device_class("whole", "attr?:kind=whole"),
    make.device_class("half", "attr?:kind=half"),
    make.device_class("part", "attr?:part=yes"),
)


def draw_numbered(seed: str, number: int, large: bool = False) -> Problem:
    """A problem of a seed: two of three have a bit of everything, one has much of one thing."""
    source = Random(f"{seed}/{number}")
    if number % 3 == 2:
        return draw_structured(source, 3 if large else 1)
    return draw(source, LARGE if large else SMALL)


def draw_packing(seed: str, number: int) -> Problem:
    """A problem of many shares that hardly fit, in which failed states come back."""
    slices, claims = _shares(Random(f"{seed}/{number}"), 5)
    return Problem(tuple(slices), CLASSES, tuple(claims), (), (make.node("n1"),))


def draw_structured(source: Random, scale: int = 1) -> Problem:
    """One problem of one of the structures."""
    structure = source.choice((_partitions, _partitions, _shares, _several_sets, _lists, _mixed, _mixed))
    slices, claims = structure(source, scale)
    held = _held(source, slices)
    limit = source.choice((32, 32, 32, 32, 3, 4, 6))
    return Problem(tuple(slices), CLASSES, tuple(claims), held, (make.node("n1"),), limit)


def _held(source: Random, slices: list[ResourceSlice]) -> tuple[ResourceClaim, ...]:
    """Sometimes one or two devices are taken already."""
    everything = [device for item in slices for device in item.spec.devices]
    if source.random() < 0.6:
        return ()
    chosen = source.sample(everything, min(len(everything), source.randint(1, 2)))
    return tuple(
        make.holding(make.result(device.name, **_share_of(source, device)), name=f"h{i}")
        for i, device in enumerate(chosen)
    )


def _share_of(source: Random, device: Any) -> dict[str, Any]:
    if not device.allow_multiple_allocations:
        return {}
    amounts = {name: source.randint(0, 2) for name in device.capacity}
    return {"share": f"00000000-0000-4000-9000-{source.randrange(10**12):012d}", "consumed": amounts}


def _spread(source: Random, requests: list[DeviceRequest], constraints: list[Any]) -> list[ResourceClaim]:
    """Requests in one claim, or each in its own."""
    if constraints or source.random() < 0.6:
        return [make.claim(*requests, *constraints, name="c")]
    return [make.claim(request, name=f"c{i}") for i, request in enumerate(requests)]


# --- partitions of equal GPUs ---


def _partitions(source: Random, scale: int) -> tuple[list[ResourceSlice], list[ResourceClaim]]:
    gpus = source.randint(2, 2 + scale)
    layout = source.choice(((2, 2, 1, 1), (2, 2), (3, 1, 1), (2, 1, 1, 1)))
    odd = source.randrange(gpus) if source.random() < 0.4 else -1
    greedy = source.random() < 0.5  # the odd one has partitions that draw more, not more to draw from
    rows: list[tuple[int, int, dict[str, Any]]] = []
    sets = []
    for gpu in range(gpus):
        slots = 4 if gpu != odd or greedy else source.randint(2, 5)
        sets.append(make.budget(f"g{gpu}", slots=slots, **{f"s{i}": 1 for i in range(4)}))
        rows.append((gpu, 0, _partition(source, gpu, "whole", 4, 0)))
        start = 0
        for number, size in enumerate(layout):
            kind = "half" if size == 2 else "small"
            taken = min(size + (gpu == odd and greedy), 4)
            rows.append((gpu, 1 + number, _partition(source, gpu, kind, taken, start)))
            start = (start + size) % 4
    if source.random() < 0.4:
        rows.sort(key=lambda row: (row[1], row[0]))  # by profile: the devices of the GPUs are interleaved
    devices = [make.device(f"d{i}", **fields) for i, (_, _, fields) in enumerate(rows)]
    slices = [
        make.published(*sets, name="counters", count=2),
        make.published(*devices, name="devices", count=2),
    ]
    requests = []
    for i in range(source.randint(2, 3)):
        count = source.choice((1, 1, 1, 2, 2, max(1, gpus - 1)))
        requests.append(_of_class(source, f"r{i}", count))
    constraints = []
    if source.random() < 0.35:
        rule = make.match if source.random() < 0.5 else make.distinct
        names = [item.name for item in requests if source.random() < 0.7]
        constraints.append(rule(source.choice(("gpu.example/parent", "gpu.example/numa")), *names))
    return slices, _spread(source, requests, constraints)


def _partition(source: Random, gpu: int, kind: str, size: int, start: int) -> dict[str, Any]:
    slots = {f"s{i}": 1 for i in range(start, min(start + size, 4))}
    fields: dict[str, Any] = {
        "kind": kind,
        "part": "no" if kind == "whole" else "yes",
        "parent": f"gpu-{gpu}",
        "numa": gpu % 2,
        "consumes_counters": (make.draws(f"g{gpu}", slots=size, **slots),),
    }
    if kind == "small" and source.random() < 0.05:
        del fields["parent"]
    return fields


def _of_class(source: Random, name: str, count: int) -> DeviceRequest:
    if source.random() < 0.25:
        ways = [(f"s{i}", _alternative(source)) for i in range(source.randint(2, 3))]
        return make.first_of(name, *ways)
    chosen = source.choice(("whole", "half", "part", "any"))
    wanted: int | str = "All" if source.random() < 0.05 else count
    return make.request(name, wanted, device_class=chosen)


def _alternative(source: Random) -> dict[str, Any]:
    chosen = source.choice(("whole", "half", "part"))
    return make.asking(source.choice((1, 1, 2)), device_class=chosen)


# --- shares ---


def _shares(source: Random, scale: int) -> tuple[list[ResourceSlice], list[ResourceClaim]]:
    number = source.randint(2, 3)
    alike = source.random() < 0.4
    amounts = [source.randint(1, 5) for _ in range(source.randint(3, 4 + 2 * scale))]
    total = sum(amounts)
    each = [total // number + (i < total % number) + source.choice((0, 0, 0, 1, -1)) for i in range(number)]
    devices = []
    for i in range(number):
        fields: dict[str, Any] = {"numa": i % 2}
        rule = source.choice((None, None, None, make.policy(1), make.policy(2, values=(1, 2, 4, 6))))
        fields["capacity"] = {"bw": make.capacity(max(each[0 if alike else i], 1), None if alike else rule)}
        if source.random() < 0.4:
            fields["capacity"]["qp"] = make.capacity(source.randint(2, 6), make.policy(1))
        if source.random() < 0.3:
            fields["consumes_counters"] = (make.draws("set", slots=source.randint(1, 2)),)
        devices.append(make.device(f"d{i}", shared=source.random() < 0.92, **fields))
    requests = [make.request(f"r{i}", 1, capacity={"bw": amount}) for i, amount in enumerate(amounts)]
    if source.random() < 0.2:
        requests[0] = make.first_of(
            "r0",
            ("a", make.asking(2, capacity={"bw": amounts[0]})),
            ("b", make.asking(1, capacity={"bw": 1})),
        )
    constraints = [make.match("gpu.example/numa", "r0", "r1")] if source.random() < 0.2 else []
    return make.partitioned(make.budget("set", slots=source.randint(2, 5)), *devices), _spread(
        source, requests, constraints
    )


# --- several counter sets ---


def _several_sets(source: Random, scale: int) -> tuple[list[ResourceSlice], list[ResourceClaim]]:
    names = ("x", "y", "z")
    sets = [make.budget(name, a=source.randint(3, 6), b=source.randint(3, 6)) for name in names]
    devices = []
    for i in range(source.randint(5, 6 + 3 * scale)):
        drawn = [
            make.draws(name, **{c: source.randint(1, 3) for c in ("a", "b") if source.random() < 0.8})
            for name in source.sample(names, source.randint(1, 2))
        ]
        devices.append(make.device(f"d{i}", consumes_counters=tuple(drawn), numa=source.randrange(3)))
        if source.random() < 0.25:
            devices[-1] = make.device(f"d{i}", numa=source.randrange(3))
    slices = [
        make.published(*sets, name="counters", count=2),
        make.published(*devices, name="devices", count=2),
    ]
    counts = source.choice(((4,), (2, 2), (3, 1), (1, 1, 2), (2, 1, 1)))
    requests = [
        make.request(f"r{i}", count, *(["attr?:numa=1"] if source.random() < 0.3 else []))
        for i, count in enumerate(counts)
    ]
    constraints = [make.distinct("gpu.example/numa", "r0")] if source.random() < 0.2 else []
    return slices, _spread(source, requests, constraints)


# --- constraints over lists ---


def _lists(source: Random, scale: int) -> tuple[list[ResourceSlice], list[ResourceClaim]]:
    values = [f"v{i}" for i in range(source.randint(3, 6))]
    devices = []
    for i in range(source.randint(5, 6 + 3 * scale)):
        own = source.sample(values, source.choice((1, 1, 2, 2, 3)))
        fields: dict[str, Any] = {
            "root": own if source.random() < 0.8 else own[0],
            "numa": source.randrange(2),
        }
        devices.append(make.device(f"d{i}", **fields))
        if i and source.random() < 0.2:
            devices[-1] = make.device(f"d{i}", attributes=devices[-2].attributes)
    requests = [
        make.request(
            f"r{i}",
            source.choice((1, 1, 2)),
            *([f"attr?:numa={source.randrange(2)}"] if source.random() < 0.5 else []),
        )
        for i in range(source.randint(2, 4))
    ]
    constraints = []
    for _ in range(source.randint(1, 2)):
        kind = make.match if source.random() < 0.5 else make.distinct
        names = [item.name for item in requests if source.random() < 0.8]
        constraints.append(
            kind(source.choice(("gpu.example/root", "gpu.example/root", "gpu.example/numa")), *names)
        )
    return [make.published(*devices)], _spread(source, requests, constraints)


# --- shared and single devices under many alternatives ---


def _mixed(source: Random, scale: int) -> tuple[list[ResourceSlice], list[ResourceClaim]]:
    devices = []
    for i in range(source.randint(4, 5 + 3 * scale)):
        fields: dict[str, Any] = {"kind": source.randrange(3), "numa": source.randrange(2)}
        shared = source.random() < 0.4
        if shared:
            fields["capacity"] = {"mem": make.capacity(source.randint(1, 4), make.policy(1))}
        devices.append(make.device(f"d{i}", shared=shared, **fields))
    requests = []
    for i in range(source.randint(3, 3 + 2 * scale)):
        if source.random() < 0.15:
            requests.append(make.request(f"r{i}", 1, admin_access=True if source.random() < 0.5 else None))
            continue
        ways = [(f"s{k}", _way(source)) for k in range(source.randint(2, 3))]
        requests.append(make.first_of(f"r{i}", *ways))
    constraints = [make.match("gpu.example/numa", "r0", "r1")] if source.random() < 0.2 else []
    return [make.published(*devices)], _spread(source, requests, constraints)


def _way(source: Random) -> dict[str, Any]:
    words = [f"attr?:kind={source.randrange(3)}"] if source.random() < 0.7 else []
    words += ["single"] if source.random() < 0.3 else []
    count: int | str = "All" if source.random() < 0.05 else source.choice((1, 1, 2, 2, 3))
    return make.asking(count, *words)
