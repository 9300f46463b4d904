"""Documents broken on purpose: wrong types, fields lost or renamed, numbers and texts at the edge.

Theory of operation: a mutation picks a place in a document and returns the document with that place changed;
what is not changed is shared. Some mutations make what only Python values can be (NaN, keys that are numbers,
a list inside itself), because documents also come from other readers than ours.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from random import Random
from typing import Any

from dray.api.kinds import KINDS
from tests.fuzz.valid_documents import sound

Place = tuple[Any, ...]

NUMBERS: tuple[Any, ...] = (
    0,
    -1,
    2**31,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    2**64,
    10**30,
    10**400,
    10**5000,
    1.5,
    -0.0,
    1e308,
    5e-324,
    float("nan"),
    float("inf"),
    Decimal("1.10"),
    Decimal("NaN"),
    Decimal("-Infinity"),
    Decimal("1E+1000000"),
    Decimal("1E-1000000"),
    Decimal("0." + "1" * 60),
)
TEXTS: tuple[str, ...] = (
    "",
    " ",
    "A",
    "a.b/c/d",
    "-",
    "..",
    "x" * 64,
    "x" * 254,
    "y" * 100_000,
    "\x00",
    "a\x00b",
    "\ufeff",
    "\u202e\u200d",
    "é" * 40,
    "e\u0301",
    "🚀",
    "\ud800",
    "a\udfff",
    "\uffff",
    "line\nbreak\r\n",
    "null",
    "true",
    "1e3",
    "$(id)",
    '"\\/`',
    "%s{0}",
)
QUANTITIES: tuple[str, ...] = (
    "1e1000000",
    "1E99",
    "1e-99",
    "9" * 64,
    "9" * 70,
    "1Zi",
    "-0",
    "+.5Gi",
    "١",
    "0x10",
    "1_000",
    ".",
    "+",
    "1..2",
    "8Ei",
    "9223372036854775808",
    "0.1n",
    "NaN",
    "1 Gi",
    "1K",
)
TIMES: tuple[str, ...] = (
    "2026-02-30T00:00:00Z",
    "0000-01-01T00:00:00Z",
    "2026-01-01",
    "2026-01-01T00:00:00Z\n",
)
SHAPES: tuple[Any, ...] = (None, True, False, [], {}, [None], [[]], {"": None}, [{}], {"a": {"b": []}})
STRANGE: tuple[Any, ...] = (b"bytes", {1, 2}, date(2026, 1, 1), ("a", 1), object, 1j)
KEYS: tuple[Any, ...] = (
    "",
    "a b",
    "\x00",
    "\ud800",
    "x" * 300,
    "é",
    1,
    1.5,
    None,
    True,
    ("a",),
    b"k",
    "metadata",
)
FIELDS: tuple[str, ...] = (
    "spec",
    "status",
    "basic",
    "exactly",
    "firstAvailable",
    "devices",
    "list",
    "ints",
    "items",
)


def places(value: Any, most: int = 400) -> list[Place]:
    """Where something stands in a document, the document itself aside."""
    found: list[Place] = []
    waiting: list[tuple[Place, Any]] = [((), value)]
    while waiting and len(found) < most:
        place, here = waiting.pop()
        items: Any = ()
        if isinstance(here, dict):
            items = here.items()
        elif isinstance(here, list) and len(here) < 200:
            items = enumerate(here)
        for step, item in items:
            below = (*place, step)
            found.append(below)
            if isinstance(item, dict | list) and len(below) < 30:
                waiting.append((below, item))
    return found


def at(value: Any, place: Place) -> Any:
    for step in place:
        value = value[step]
    return value


def changed(value: Any, place: Place, change: Callable[[Any], Any]) -> Any:
    """The document with the map or list at a place changed; everything else is shared."""
    if not place:
        return change(value)
    step, rest = place[0], place[1:]
    if isinstance(value, dict):
        return {key: changed(item, rest, change) if key == step else item for key, item in value.items()}
    return [changed(item, rest, change) if i == step else item for i, item in enumerate(value)]


def put(value: Any, place: Place, item: Any) -> Any:
    return changed(value, place, lambda _old: item)


def removed(value: Any, place: Place) -> Any:
    *holder, last = place

    def without(here: Any) -> Any:
        if isinstance(here, dict):
            return {key: item for key, item in here.items() if key != last}
        return [item for i, item in enumerate(here) if i != last]

    return changed(value, tuple(holder), without)


# --- what can happen to a place ---


def _other_value(random: Random, document: Any, place: Place) -> Any:
    pool = random.choice((NUMBERS, TEXTS, QUANTITIES, TIMES, SHAPES, SHAPES, TEXTS, STRANGE))
    return put(document, place, random.choice(pool))


def _odd_key(random: Random, document: Any, place: Place) -> Any:
    key = random.choice(KEYS)
    return changed(document, place[:-1], lambda here: {**here, key: 1} if isinstance(here, dict) else here)


def _renamed(random: Random, document: Any, place: Place) -> Any:
    *holder, last = place
    if not isinstance(last, str):
        return removed(document, place)
    ways: tuple[Callable[[str], Any], ...] = (
        str.upper,
        str.lower,
        lambda name: name[:-1],
        lambda name: name + "s",
        lambda name: "_".join(name),
        lambda name: name[::-1],
        lambda _name: random.choice(FIELDS),
        lambda _name: random.choice(KEYS),
    )
    new = random.choice(ways)(last)

    def rename(here: Any) -> Any:
        return {new if key == last else key: item for key, item in here.items()}

    return changed(document, tuple(holder), rename)


def _lost(random: Random, document: Any, place: Place) -> Any:
    return removed(document, place)


def _moved(random: Random, document: Any, place: Place) -> Any:
    """What stands somewhere else, here."""
    return put(document, place, at(document, random.choice(places(document))))


def _transplanted(random: Random, document: Any, place: Place) -> Any:
    """A piece of another document, here."""
    other = sound(random)
    return put(document, place, at(other, random.choice(places(other))))


def _many(random: Random, document: Any, place: Place) -> Any:
    """The same many times: beyond every limit on items."""
    here, count = at(document, place), random.choice((2, 9, 33, 65, 129, 257))
    if isinstance(here, list):
        return put(document, place, here * count)
    if isinstance(here, dict):
        return put(document, place, {**here, **{f"k{i}": next(iter(here.values()), i) for i in range(count)}})
    return put(document, place, [here] * count)


def _deep(random: Random, document: Any, place: Place) -> Any:
    here = at(document, place)
    for _ in range(random.choice((1, 2, 50, 99, 100, 101, 150, 1500))):
        here = [here] if random.random() < 0.5 else {"a": here}
    return put(document, place, here)


def _alias(random: Random, document: Any, place: Place) -> Any:
    """One list in very many places, or inside itself."""
    bomb: list[Any] = ["x"]
    if random.random() < 0.1:
        bomb.append(bomb)
    elif random.random() < 0.005:
        for _ in range(7):
            bomb = [bomb] * 10
    else:
        bomb = [bomb] * 20
    return put(document, place, bomb)


def _extra_field(random: Random, document: Any, place: Place) -> Any:
    field, value = random.choice(FIELDS), random.choice(SHAPES + NUMBERS)
    return changed(
        document, place[:-1], lambda here: {**here, field: value} if isinstance(here, dict) else here
    )


def _another_self(random: Random, document: Any, place: Place) -> Any:
    """The same fields under the name of another kind or version."""
    kind = random.choice(KINDS)
    version = random.choice((*kind.versions, "v1alpha3", "", "v2"))
    name = kind.name if random.random() < 0.9 else random.choice(TEXTS)
    return {**document, "apiVersion": kind.format_api_version(version), "kind": name}


MUTATIONS: tuple[tuple[int, Callable[[Random, Any, Place], Any]], ...] = (
    (40, _other_value),
    (12, _lost),
    (12, _renamed),
    (8, _moved),
    (8, _transplanted),
    (8, _extra_field),
    (4, _odd_key),
    (4, _many),
    (3, _deep),
    (1, _alias),
    (4, _another_self),
)
_WEIGHTS = [weight for weight, _ in MUTATIONS]
_CHANGES = [change for _, change in MUTATIONS]


def broken(random: Random) -> Any:
    """A document with up to four things wrong; now and then none."""
    document: Any = sound(random)
    for change in random.choices(_CHANGES, _WEIGHTS, k=random.choice((0, 1, 1, 1, 2, 2, 3, 4))):
        here = places(document)
        if not here:
            break
        document = change(random, document, random.choice(here))
    return document
