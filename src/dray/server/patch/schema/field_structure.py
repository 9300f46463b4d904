"""The structure of a field: a granular or atomic map or list, or a plain value.

Theory of operation: every field has a `Structure`. A map is granular (its entries have owners of their own)
unless it is atomic. A list is atomic unless it is a set of values or a map of items with keys. Two different
rules of Kubernetes read the same tree: field ownership reads `list_type`, `map_keys` and `atomic`; strategic
merge patches read `strategy` and `merge_key`. They mostly agree, and the tables have the exceptions. A field
that is in no table is `ANY`: maps are granular, lists are atomic, as in Kubernetes.

The structures of the kinds are in `tables`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

ListType = Literal["atomic", "set", "map"]
Strategy = tuple[str, ...]

_NO_FIELDS: Mapping[str, Any] = MappingProxyType({})

MERGE: Strategy = ("merge",)
MERGE_RETAIN: Strategy = ("merge", "retainKeys")
RETAIN: Strategy = ("retainKeys",)
REPLACE: Strategy = ("replace",)


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """The structure of one field, and of every field below."""

    fields: Mapping[str, Structure] = field(default_factory=lambda: _NO_FIELDS)
    items: Structure | None = None
    """The structure of the elements of a list or the values of a map, unless they are plain values."""
    atomic: bool = False
    """For maps: owned and replaced as one (`x-kubernetes-map-type: atomic`)."""
    list_type: ListType = "atomic"
    map_keys: tuple[str, ...] = ()
    key_defaults: Mapping[str, Any] = field(default_factory=lambda: _NO_FIELDS)
    """The value of a key that an item leaves out."""
    merge_key: str = ""
    strategy: Strategy = ()
    """How strategic merge patches treat it: `merge`, `replace`, `retainKeys`; empty is the default: maps are
    merged, lists replaced.
    """
    always_present: bool = False
    """In Kubernetes this field is present in every object that has its parent, even when empty; so nobody
    becomes its owner by filling it.
    """

    def get_field(self, name: str) -> Structure:
        """Return the structure under a field name, or under a key when this is a map."""
        found = self.fields.get(name)
        if found is not None:
            return found
        return self.items if self.items is not None and not self.fields else ANY

    @property
    def map_type(self) -> Literal["atomic", "granular"]:
        """The value of `x-kubernetes-map-type` for a map."""
        return "atomic" if self.atomic else "granular"

    @property
    def element(self) -> Structure:
        """The structure of one element of the list."""
        return self.items if self.items is not None else ANY


ANY = Structure()
"""A field without a description."""

ATOMIC_MAP = Structure(atomic=True)
"""A map that is owned and replaced as one."""


def define_struct(**fields: Structure) -> Structure:
    """Define a map with named fields; those not named are plain, or atomic lists."""
    return Structure(fields=MappingProxyType(fields))


def make_always_present(structure: Structure) -> Structure:
    """Return the same structure for a field that is never absent."""
    return replace(structure, always_present=True)


def make_atomic(structure: Structure) -> Structure:
    """Return the same map, owned and replaced as one."""
    return replace(structure, atomic=True)


def make_retaining(structure: Structure) -> Structure:
    """Return the same map, with patches that may say which keys remain."""
    return replace(structure, strategy=RETAIN)


def define_keyed_list(
    *keys: str, of: Structure = ANY, strategy: Strategy = MERGE, **defaults: str
) -> Structure:
    """Define a list whose items have keys; strategic patches use the first of them."""
    return Structure(
        items=of,
        list_type="map",
        map_keys=tuple(sorted(keys)),
        key_defaults=MappingProxyType(defaults),
        merge_key=keys[0] if strategy else "",
        strategy=strategy,
    )


def define_set(strategy: Strategy = ()) -> Structure:
    """Define a list of plain values, each at most once."""
    return Structure(list_type="set", strategy=strategy)


def define_atomic_list(of: Structure) -> Structure:
    """Define an atomic list whose elements have a structure."""
    return Structure(items=of)


def define_merged_list(key: str, of: Structure = ANY) -> Structure:
    """Define a list owned as one that strategic patches merge by a key."""
    return Structure(items=of, merge_key=key, strategy=MERGE)


CONDITIONS = define_keyed_list("type")
"""The conditions of most kinds."""

ALWAYS_PRESENT_MAP = make_always_present(ANY)
"""A plain map that is never absent."""
