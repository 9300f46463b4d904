"""Generated objects of every kind, derived from the structs: a field that is added is generated from then on.

Theory of operation: a strategy is built for every type by inspection; `SENSIBLE` lists fields that need
better values than any text or number, so that objects look like real ones without being valid in every
respect. Lists and maps stay short, because properties of objects hold or fail with two entries; texts,
quantities and opaque values come from short lists of unusual ones, because an object has hundreds of them and
time is short. `tests/property/test_api_strategies.py` proves that no field is left out.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from dray.api.json_text import read_json, write_json
from dray.api.kinds import KINDS, Kind
from dray.api.meta import ObjectMeta, OwnerRef, Projection
from dray.gates import GATES, GateSet
from dray.values.quantity import Quantity
from tests.property.strategies.values import labels

CLOSED = [kind for kind in KINDS if not kind.open]
OPEN = [kind for kind in KINDS if kind.open]

MOST = 2
"""How long lists and maps get."""

# --- values ---

names = st.sampled_from(["a", "gpu", "gpu-0", "nic-1", "small"])
drivers = st.sampled_from(["gpu.example.com", "nic.example.com"])
texts = st.sampled_from(
    ["a", "", "null", "0", "true", "é€🚀", "\x00\x7f", '"\\/', " ", "a.b/c", "\ufeff", "y" * 300]
)
integers = st.integers(-2, 9) | st.sampled_from([2**63 - 1, -(2**63), 2**31])
MAX_INT32 = 2**31 - 1
short_integers = st.integers(-2, 9) | st.sampled_from([MAX_INT32, -MAX_INT32 - 1])
timestamps = st.sampled_from(
    [
        "2026-01-31T12:00:00Z",
        "2024-02-29T23:59:59.999999Z",
        "0001-01-01T00:00:00Z",
        "2026-06-01T01:00:00+02:00",
    ]
)
_QUANTITIES = [
    "0",
    "1",
    "500m",
    "1Gi",
    "40Gi",
    "1e3",
    "1500u",
    "-3",
    "1.5Mi",
    "8E",
    "+007.250",
    "1000m",
    "2e-3",
]
quantities = st.sampled_from([Quantity.parse(text) for text in _QUANTITIES])
qualified_names = st.sampled_from(["memory", "numa", "gpu.example.com/model", "dra.example.com/pcie"])
versions = st.sampled_from(["1.0.0", "2.3.4-rc.1+b", "0.0.0"])
share_ids = st.sampled_from(["2b1dd7f7-1f0e-4d3f-8d3f-3c4a1c5ad7a5", "7c1ff0a5-5a1c-4f53-a1f3-0242ac120002"])

# Opaque parameters hold what JSON can hold, also numbers that no machine type holds.
_digits = st.text("123456789", min_size=1, max_size=30)
_decimals = st.builds(lambda whole, part: Decimal(f"{whole}.{part}"), _digits, _digits)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | _decimals | texts,
    lambda inner: st.lists(inner, max_size=MOST) | st.dictionaries(texts, inner, max_size=MOST),
    max_leaves=4,
)
_ODD_VALUES: list[Any] = [
    {},
    [],
    "",
    0,
    False,
    {"a": None},
    {
        "apiVersion": "gpu.example.com/v1",
        "kind": "GpuConfig",
        "sharing": {"strategy": "MPS", "limits": [1, 2.5]},
    },
    {"big": 10**30, "fine": Decimal("0.123456789012345678901234567890"), "one": Decimal("1.10")},
    [[[["é\x00", -1]]], {"": {"": ""}}],
]
odd_values = st.sampled_from(_ODD_VALUES)
raws = st.sampled_from([msgspec.Raw(write_json(value)) for value in _ODD_VALUES])

SENSIBLE: dict[str, st.SearchStrategy[Any]] = {
    "name": names,
    "driver": drivers,
    "driverName": drivers,
    "labels": labels,
    "annotations": labels,
    "allocationMode": st.sampled_from(["ExactCount", "All", "Immediate", "Delayed", "Some"]),
    "operator": st.sampled_from(["Equal", "Exists", "In"]),
    "effect": st.sampled_from(["NoSchedule", "NoExecute", "None"]),
    "phase": st.sampled_from(["Pending", "Allocated", "Reallocate"]),
    "source": st.sampled_from(["FromClass", "FromClaim"]),
    "matchAttribute": qualified_names,
    "distinctAttribute": qualified_names,
    "expression": st.sampled_from(["true", 'device.driver == "gpu.example.com"']),
    "shareID": share_ids,
    "uid": share_ids,
}
_BY_STRUCT: dict[tuple[str, str], st.SearchStrategy[Any]] = {
    ("DeviceAttribute", "version"): versions,
    ("DeviceAttribute", "versions"): st.lists(versions, max_size=MOST).map(tuple),
    ("ListAttribute", "version"): st.lists(versions, max_size=MOST).map(tuple),
    ("Device", "attributes"): st.deferred(lambda: _maps(qualified_names, "DeviceAttribute")),
    ("Device", "capacity"): st.deferred(lambda: _maps(qualified_names, "DeviceCapacity")),
}


def _maps(keys: st.SearchStrategy[str], struct: str) -> st.SearchStrategy[Any]:
    from dray.api import resource

    return st.dictionaries(keys, structs(getattr(resource, struct)), max_size=MOST)


# --- structs ---

_USUAL_METADATA = [
    ObjectMeta(name="gpu", namespace="ml"),
    ObjectMeta(
        generate_name="gpu-", labels={"a": "b"}, owner_references=(OwnerRef(kind="Pod", controller=True),)
    ),
]


@cache
def structs(cls: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Values of a struct: parts that are structs always, everything else now and then."""
    return st.sampled_from(_USUAL_METADATA) | _structs(cls) if cls is ObjectMeta else _structs(cls)


def _structs(cls: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    parts: dict[str, st.SearchStrategy[Any]] = {}
    others: dict[str, st.SearchStrategy[Any]] = {}
    for field in info.fields:
        if field.encode_name in ("apiVersion", "kind") and "metadata" in cls.__struct_fields__:
            continue
        chosen = parts if isinstance(field.type, inspect.StructType) else others
        chosen[field.name] = _field(cls, field)
    return st.fixed_dictionaries(parts, optional=others).map(lambda given: cls(**given))


def _field(cls: type, field: inspect.Field) -> st.SearchStrategy[Any]:
    special = _BY_STRUCT.get((cls.__name__, field.encode_name))
    if special is None and _is_plain(field.type):
        special = SENSIBLE.get(field.encode_name)
    return special if special is not None else of_type(field.type)


def _is_plain(kind: inspect.Type) -> bool:
    match kind:
        case inspect.UnionType(types=members):
            return all(_is_plain(member) for member in members)
        case inspect.DictType(value_type=inspect.StrType()) | inspect.StrType() | inspect.NoneType():
            return True
        case _:
            return False


def of_type(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Values of any type that stands in our structs."""
    match kind:
        case inspect.Metadata(type=inner):
            return of_type(inner)
        case inspect.UnionType(types=members):
            # `null` and absence are the same thing to these structs, and absence is generated already.
            return of_type(next(member for member in members if not isinstance(member, inspect.NoneType)))
        case inspect.StructType(cls=cls):
            return structs(cls)
        case inspect.VarTupleType(item_type=inner):
            return st.lists(of_type(inner), max_size=MOST).map(tuple)
        case inspect.DictType(value_type=inner):
            return st.dictionaries(texts, of_type(inner), max_size=MOST)
        case inspect.CustomType():
            return quantities
        case inspect.RawType():
            return raws
        case inspect.AnyType():
            return odd_values
        case inspect.StrType(pattern=pattern):
            return timestamps if pattern else texts
        case inspect.IntType(le=most) if most == MAX_INT32:
            return short_integers
        case inspect.IntType():
            return integers
        case inspect.BoolType():
            return st.booleans()
        case _:
            raise TypeError(f"no strategy for {kind}: teach it here")


def objects(kind: Kind) -> st.SearchStrategy[Any]:
    """Objects of a closed kind in the internal form."""
    return structs(kind.type)


# --- documents ---


@st.composite
def documents(draw: st.DrawFn, kind: Kind) -> dict[str, Any]:
    """Documents of an open kind: what we read, and around it what we do not know."""
    given = read_json(write_json(draw(structs(kind.type))))
    identity = {"apiVersion": kind.internal_api_version, "kind": kind.name}
    return {**_with_strangers(draw, given, inspect.type_info(kind.type)), **identity}


_STRANGERS = st.dictionaries(st.sampled_from(["image", "hostPID", "x-y", "zone"]), odd_values, max_size=1)


def _with_strangers(draw: st.DrawFn, value: Any, kind: inspect.Type) -> Any:
    """A value of an open struct with unknown fields in it and in every open struct below."""
    match kind:
        case inspect.Metadata(type=inner):
            return _with_strangers(draw, value, inner)
        case inspect.UnionType(types=members):
            inner = next(member for member in members if not isinstance(member, inspect.NoneType))
            return _with_strangers(draw, value, inner)
        case inspect.VarTupleType(item_type=inner):
            return [_with_strangers(draw, item, inner) for item in value]
        case inspect.StructType(cls=cls, fields=fields) if issubclass(cls, Projection):
            known = {
                field.encode_name: _with_strangers(draw, value[field.encode_name], field.type)
                for field in fields
                if field.encode_name in value
            }
            return {**draw(_STRANGERS), **known}
        case _:
            return value


any_document = st.one_of([documents(kind) for kind in OPEN])

# --- gates ---


@st.composite
def gate_sets(draw: st.DrawFn) -> GateSet:
    """Any choice of gates that does not contradict itself."""
    on: set[str] = set()
    for name in GATES:  # requirements stand before those who need them
        if on.issuperset(GATES[name].requires) and draw(st.booleans()):
            on.add(name)
    return GateSet(frozenset(on))


def without(gate: str) -> GateSet:
    """Everything on but one gate, and whatever cannot be on without it."""
    on = set(GATES) - {gate}
    while any(not on.issuperset(GATES[name].requires) for name in on):
        on = {name for name in on if on.issuperset(GATES[name].requires)}
    return GateSet(frozenset(on))
