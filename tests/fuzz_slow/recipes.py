"""Recipes: problems as a few lists of numbers that can be changed one by one.

Theory of operation: a recipe names a family and has genes. `build` makes the same problem from the same
recipe, on any machine. A gene is a list of numbers within a range; `mutate` changes one number, adds one or
leaves one out. What the numbers mean is the family's business: sizes of partitions, amounts of shares, values
of attributes, counts of requests.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from dray.api.resource import DeviceConstraint, DeviceRequest, ResourceSlice
from tests.brute import builders as make
from tests.brute.problem import Problem

Genes = dict[str, list[int]]
Built = tuple[list[ResourceSlice], list[DeviceRequest], list[DeviceConstraint]]


class Gene(NamedTuple):
    """How many numbers a gene may have, and how large each may be."""

    least: int
    most: int
    low: int
    high: int


class Recipe(NamedTuple):
    """A problem to be built."""

    family: str
    genes: Genes


class Family(NamedTuple):
    """What the genes of a family may be, and how they become a problem."""

    genes: dict[str, Gene]
    build: Callable[[Genes], Built]


def build(recipe: Recipe) -> Problem:
    """The problem of a recipe."""
    slices, requests, constraints = FAMILIES[recipe.family].build(recipe.genes)
    claims = (make.claim(*requests, *constraints, name="c"),)
    return Problem(tuple(slices), (make.device_class("any"),), claims, (), (make.node("n1"),))


def draw_recipe(source: Random) -> Recipe:
    """A recipe to start from."""
    family = source.choice(sorted(FAMILIES))
    genes = {
        name: [source.randint(gene.low, gene.high) for _ in range(source.randint(gene.least, gene.most))]
        for name, gene in FAMILIES[family].genes.items()
    }
    return Recipe(family, genes)


def mutate(recipe: Recipe, source: Random) -> Recipe:
    """A recipe that differs in one or a few numbers."""
    genes = {name: list(values) for name, values in recipe.genes.items()}
    for _ in range(source.choice((1, 1, 1, 2, 4))):
        name = source.choice(sorted(genes))
        gene, values = FAMILIES[recipe.family].genes[name], genes[name]
        move = source.random()
        if move < 0.2 and len(values) < gene.most:
            values.insert(source.randint(0, len(values)), source.randint(gene.low, gene.high))
        elif move < 0.35 and len(values) > gene.least:
            values.pop(source.randrange(len(values)))
        elif values:
            place = source.randrange(len(values))
            near = values[place] + source.choice((-1, 1))
            far = source.randint(gene.low, gene.high)
            values[place] = min(max(near, gene.low), gene.high) if source.random() < 0.5 else far
    return Recipe(recipe.family, genes)


# --- families ---


def _named(values: list[int], place: int) -> int:
    return values[place % len(values)]


def _partitions(genes: Genes) -> Built:
    """GPUs with partitions; a request asks for partitions of at least some size, or of exactly one."""
    devices, sets = [], []
    for gpu, space in enumerate(genes["gpus"]):
        sets.append(make.budget(f"g{gpu}", memory=space, **{f"s{i}": 1 for i in range(8)}))
        for number, size in enumerate(genes["partitions"]):
            start = genes["starts"][number % len(genes["starts"])]
            slots = {f"s{i}": 1 for i in range(start, min(start + size, 8))}
            drawn = make.draws(f"g{gpu}", memory=size, **slots)
            devices.append(make.device(f"g{gpu}-{number}", size=size, consumes_counters=(drawn,)))
    slices = [
        make.published(*sets, name="counters", count=2),
        make.published(*devices, name="devices", count=2),
    ]
    requests = [
        make.request(f"r{i}", count, *_sized(genes["sizes"][i % len(genes["sizes"])]))
        for i, count in enumerate(genes["counts"])
    ]
    return slices, requests, []


def _sized(size: int) -> list[str]:
    return [f"attr?:size={size}"] if size else []


def _shares(genes: Genes) -> Built:
    """Shared devices with two capacities, and requests that pack them."""
    devices = []
    for i, space in enumerate(genes["capacities"]):
        amounts = {"bw": space, "qp": _named(genes["pairs"], i)}
        devices.append(make.device(f"d{i}", shared=True, capacity=amounts, numa=i % 2))
    requests = [
        make.request(f"r{i}", 1, capacity={"bw": amount, "qp": _named(genes["queues"], i)})
        for i, amount in enumerate(genes["amounts"])
    ]
    constraints = [make.match("gpu.example/numa", "r0", f"r{len(requests) - 1}")] if genes["matched"] else []
    return [make.published(*devices)], requests, constraints


def _sets(genes: Genes) -> Built:
    """Devices that draw from two of several counter sets each."""
    sets = [
        make.budget(f"s{i}", a=space, b=_named(genes["others"], i))
        for i, space in enumerate(genes["capacities"])
    ]
    devices = []
    for i, amount in enumerate(genes["amounts"]):
        first = _named(genes["places"], i) % len(sets)
        second = (first + 1 + _named(genes["places"], i + 1) % max(len(sets) - 1, 1)) % len(sets)
        drawn = [make.draws(f"s{first}", a=amount, b=_named(genes["amounts"], i + 1))]
        if second != first:
            drawn.append(make.draws(f"s{second}", a=_named(genes["amounts"], i + 2)))
        devices.append(make.device(f"d{i}", kind=i % 3, consumes_counters=tuple(drawn)))
    slices = [
        make.published(*sets, name="counters", count=2),
        make.published(*devices, name="devices", count=2),
    ]
    requests = []
    for i, count in enumerate(genes["counts"]):
        kind = _named(genes["kinds"], i)
        requests.append(make.request(f"r{i}", count, *([f"attr?:kind={kind}"] if kind < 3 else [])))
    return slices, requests, []


def _lists(genes: Genes) -> Built:
    """Devices with lists of values, requests that must share or must not share some of them."""
    devices = []
    for i, value in enumerate(genes["values"]):
        width = _named(genes["widths"], i)
        roots = sorted({f"v{(value + k * (1 + value % 3)) % 16}" for k in range(width)})
        devices.append(make.device(f"d{i}", root=roots, rail=_named(genes["rails"], i), kind=i % 2))
    requests = []
    for i, count in enumerate(genes["counts"]):
        kind = _named(genes["kinds"], i)
        requests.append(make.request(f"r{i}", count, *([f"attr?:kind={kind}"] if kind < 2 else [])))
    half = [f"r{i}" for i in range(0, len(requests), 2)]
    rules = {
        0: make.match("gpu.example/root"),
        1: make.distinct("gpu.example/root"),
        2: make.distinct("gpu.example/rail"),
        3: make.match("gpu.example/rail", *half),
        4: make.distinct("gpu.example/root", *half),
    }
    return [make.published(*devices)], requests, [rules[number] for number in dict.fromkeys(genes["rules"])]


def _alternatives(genes: Genes) -> Built:
    """Many requests with many alternatives each, over devices of a few kinds."""
    numas = genes["numas"]
    devices = [
        make.device(f"d{i:02}", kind=kind, numa=_named(numas, i)) for i, kind in enumerate(genes["kinds"])
    ]
    requests = []
    for i, number in enumerate(genes["alternatives"]):
        ways = []
        for k in range(number):
            kind, count = _named(genes["wanted"], 3 * i + k), _named(genes["counts"], i + 2 * k)
            ways.append((f"s{k}", make.asking(count, f"attr?:kind={kind}")))
        requests.append(make.first_of(f"r{i:02}", *ways))
    constraints = [
        (make.match if rule % 2 else make.distinct)("gpu.example/numa", f"r{rule % len(requests):02}")
        for rule in genes["rules"]
    ]
    return [make.published(*devices)], requests, constraints


FAMILIES: dict[str, Family] = {
    "partitions": Family(
        {
            "gpus": Gene(1, 8, 2, 8),
            "partitions": Gene(1, 13, 1, 8),
            "starts": Gene(1, 13, 0, 7),
            "sizes": Gene(1, 8, 0, 8),
            "counts": Gene(1, 12, 1, 8),
        },
        _partitions,
    ),
    "shares": Family(
        {
            "capacities": Gene(2, 8, 5, 90),
            "pairs": Gene(1, 8, 4, 16),
            "amounts": Gene(4, 32, 1, 50),
            "queues": Gene(1, 12, 0, 4),
            "matched": Gene(0, 1, 0, 1),
        },
        _shares,
    ),
    "sets": Family(
        {
            "capacities": Gene(1, 6, 4, 12),
            "others": Gene(1, 6, 4, 12),
            "amounts": Gene(8, 48, 1, 4),
            "places": Gene(1, 12, 0, 5),
            "counts": Gene(1, 8, 1, 8),
            "kinds": Gene(1, 8, 0, 4),
        },
        _sets,
    ),
    "lists": Family(
        {
            "values": Gene(8, 48, 0, 15),
            "widths": Gene(1, 6, 1, 5),
            "rails": Gene(1, 12, 0, 7),
            "counts": Gene(1, 10, 1, 6),
            "kinds": Gene(1, 6, 0, 3),
            "rules": Gene(1, 3, 0, 4),
        },
        _lists,
    ),
    "alternatives": Family(
        {
            "kinds": Gene(4, 40, 0, 5),
            "numas": Gene(1, 8, 0, 3),
            "alternatives": Gene(4, 32, 1, 8),
            "wanted": Gene(4, 40, 0, 6),
            "counts": Gene(2, 12, 1, 3),
            "rules": Gene(0, 6, 0, 31),
        },
        _alternatives,
    ),
}


def read_recipe(document: dict[str, Any]) -> Recipe:
    """A recipe as it is kept in a file."""
    return Recipe(document["family"], document["genes"])
