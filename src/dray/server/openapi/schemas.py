"""Schemas of the structs: types, descriptions, and how lists and maps are merged.

Theory of operation: a struct is walked once beside the tree of its kind's merge rules; each struct below it
becomes a schema of its own that others refer to. Open kinds say that they keep what they do not describe. The
first walk of a struct decides: the same struct has the same rules wherever it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from dray.api import conversion
from dray.api.field_docs import about, words_of
from dray.api.kinds import Kind
from dray.api.meta import View
from dray.server.openapi.schema_names import META, QUANTITY, package, reference, struct_name
from dray.server.patch.schema.field_structure import ANY, Structure
from dray.server.patch.schema.kind_structures import structure_of
from dray.values.quantity import Quantity

Schema = dict[str, Any]

KEEPS_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"
GVK: Final = "x-kubernetes-group-version-kind"

_QUANTITY: Final[Schema] = {
    "description": "An amount: a number with an optional suffix, such as `10Gi`, `500m` or `2`.",
    "oneOf": [{"type": "string"}, {"type": "number"}],
}
_ANYTHING: Final[Schema] = {"type": "object", KEEPS_UNKNOWN: True}


class Schemas:
    """The schemas of one group and version, collected while its kinds are walked."""

    def __init__(self, group: str, version: str) -> None:
        self._group, self._version = group, version
        self._home = package(group, version)
        self.found: dict[str, Schema] = {}

    def kind(self, kind: Kind) -> str:
        """Add the schema of a kind and of its list; the name of the former."""
        name = f"{self._home}.{kind.name}"
        shape = conversion.shape_of(kind, self._version)
        # Many kinds share a struct when they are only kept, so the schema is called like the kind.
        self._add(name, _inspected(shape), structure_of(kind, self._version))
        schema = self.found[name]
        if kind.open:
            schema |= self._kept(kind)
            schema["description"] = _kept_words(kind, shape)
        schema[GVK] = [self._gvk(kind.name)]
        self.found[f"{name}List"] = self._list(kind, name)
        return name

    def standalone(self, gvk: tuple[str, str, str]) -> str:
        """Add the schema of something that is asked and not kept; its name."""
        group, version, kind = gvk
        name = f"{package(group, version)}.{kind}"
        self.found[name] = {
            "description": f"{kind}: asked, answered and not kept.",
            "type": "object",
            KEEPS_UNKNOWN: True,
            GVK: [{"group": group, "version": version, "kind": kind}],
        }
        return name

    def _kept(self, kind: Kind) -> Schema:
        """What kinds that are merely kept may hold besides what we read."""
        known = self.found[f"{self._home}.{kind.name}"]["properties"]
        status = (
            {"status": {**_ANYTHING, "description": words_of(kind.type)["status"]}}
            if "status" in kind.subresources
            else {}
        )
        return {"properties": {**status, **known}, KEEPS_UNKNOWN: True}

    def _gvk(self, name: str) -> dict[str, str]:
        return {"group": self._group, "version": self._version, "kind": name}

    def _list(self, kind: Kind, name: str) -> Schema:
        self.found.setdefault(f"{META}.ListMeta", _LIST_META)
        return {
            "description": f"A list of objects of the kind {kind.name}.",
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string", "description": words_of(kind.type)["apiVersion"]},
                "kind": {"type": "string", "description": f"`{kind.name}List`."},
                "metadata": _part("Where the list stands, and how it goes on.", f"{META}.ListMeta"),
                "items": {
                    "description": "The objects.",
                    "type": "array",
                    "items": {"default": {}, "allOf": [{"$ref": reference(name)}]},
                },
            },
            GVK: [self._gvk(f"{kind.name}List")],
        }

    def _add(self, name: str, kind: inspect.StructType, structure: Structure) -> None:
        if name in self.found:
            return
        shape = kind.cls
        schema: Schema = {"description": about(shape), "type": "object"}
        self.found[name] = schema
        words = words_of(shape)
        schema["properties"] = {
            field.encode_name: self._field(field.type, structure.of_field(field.encode_name))
            | {"description": words.get(field.encode_name, "")}
            for field in kind.fields
        }
        if structure.atomic:
            schema["x-kubernetes-map-type"] = "atomic"
        if issubclass(shape, View):
            schema[KEEPS_UNKNOWN] = True

    def _field(self, kind: inspect.Type, structure: Structure) -> Schema:
        match kind:
            case inspect.Metadata(type=inner):
                return self._field(inner, structure)
            case inspect.UnionType(types=members):
                inner = next(member for member in members if not isinstance(member, inspect.NoneType))
                return self._field(inner, structure)
            case inspect.StructType():
                name = struct_name(kind.cls, self._home)
                self._add(name, kind, structure)
                return {"allOf": [{"$ref": reference(name)}], "default": {}}
            case inspect.VarTupleType(item_type=inner):
                return {
                    "type": "array",
                    "items": self._field(inner, structure.element),
                    **_merging(structure),
                }
            case inspect.DictType(value_type=inner):
                values = self._field(inner, structure.element)
                return {"type": "object", "additionalProperties": values, **_merging_map(structure)}
            case _:
                return self._leaf(kind)

    def _leaf(self, kind: inspect.Type) -> Schema:
        match kind:
            case inspect.CustomType(cls=cls) if cls is Quantity:
                self.found.setdefault(QUANTITY, _QUANTITY)
                return {"allOf": [{"$ref": reference(QUANTITY)}]}
            case inspect.StrType(pattern=pattern):
                return {"type": "string", "format": "date-time"} if pattern else {"type": "string"}
            case inspect.IntType():
                return {"type": "integer", "format": "int64"}
            case inspect.BoolType():
                return {"type": "boolean"}
            case _:
                return dict(_ANYTHING)


@lru_cache(maxsize=128)
def _inspected(shape: type) -> inspect.StructType:
    """The type of a struct with those of its fields; looking into types takes longer than anything here."""
    kind = inspect.type_info(shape)
    assert isinstance(kind, inspect.StructType)
    return kind


def _kept_words(kind: Kind, shape: type[msgspec.Struct]) -> str:
    if shape.__name__ in ("Bystander", "ClusterBystander"):
        return f"{kind.name}: kept whole, as it was written; dray does not look into it."
    return f"{about(shape)} Fields that are not described here are kept as they were written."


def _part(description: str, name: str) -> Schema:
    return {"description": description, "default": {}, "allOf": [{"$ref": reference(name)}]}


def _merging(structure: Structure) -> Schema:
    """How a list is merged, in the words of Kubernetes."""
    found: Schema = {"x-kubernetes-list-type": structure.list_type}
    if structure.map_keys:
        found["x-kubernetes-list-map-keys"] = list(structure.map_keys)
    if structure.merge_key:
        found["x-kubernetes-patch-merge-key"] = structure.merge_key
    if structure.strategy:
        found["x-kubernetes-patch-strategy"] = ",".join(structure.strategy)
    return found


def _merging_map(structure: Structure) -> Schema:
    found: Schema = {"x-kubernetes-map-type": "atomic"} if structure.atomic else {}
    if structure is not ANY and structure.strategy:
        found["x-kubernetes-patch-strategy"] = ",".join(structure.strategy)
    return found


def _plain(description: str, type_: str = "string") -> Schema:
    return {"description": description, "type": type_}


_LIST_META: Final[Schema] = {
    "description": "Where a list stands, and how it goes on.",
    "type": "object",
    "properties": {
        "resourceVersion": _plain("The version everything in the list was read at; a watch may begin there."),
        "continue": _plain("Ask again with this to get what follows; empty at the end."),
        "remainingItemCount": _plain("How many objects follow, where that is known.", "integer"),
        "selfLink": _plain("No longer used."),
    },
}

OPTIONS: Final[Mapping[str, Schema]] = {
    f"{META}.DeleteOptions": {
        "description": "How something is to be deleted.",
        "type": "object",
        "properties": {
            "apiVersion": _plain("Group and version of the options."),
            "kind": _plain("`DeleteOptions`."),
            "gracePeriodSeconds": _plain("How long the object may take to end; zero is at once.", "integer"),
            "preconditions": {
                "description": "What must be true of the object, else nothing happens: `uid`, "
                "`resourceVersion`.",
                "type": "object",
                "properties": {
                    "uid": _plain("The uid the object must have."),
                    "resourceVersion": _plain("The version the object must have."),
                },
            },
            "propagationPolicy": _plain(
                "What happens to what it owns: `Background`, `Foreground` or `Orphan`."
            ),
            "orphanDependents": _plain("No longer used; see `propagationPolicy`.", "boolean"),
            "dryRun": {
                "description": "`All`: say what would happen, and do nothing.",
                "type": "array",
                "items": {"type": "string"},
            },
        },
    },
    f"{META}.Status": {
        "description": "How a request ended, when there is no object to show.",
        "type": "object",
        "properties": {
            "apiVersion": _plain("`v1`."),
            "kind": _plain("`Status`."),
            "status": _plain("`Success` or `Failure`."),
            "message": _plain("What happened, in a sentence."),
            "reason": _plain("What happened, in one word."),
            "code": _plain("The code of HTTP.", "integer"),
            "details": {"description": "More, for programs.", "type": "object", KEEPS_UNKNOWN: True},
        },
    },
    f"{META}.Patch": {"description": "A patch, in the form its media type says.", "type": "object"},
    f"{META}.APIResourceList": {
        "description": "The resources of a group and version.",
        "type": "object",
        KEEPS_UNKNOWN: True,
    },
}
"""Schemas that every document has."""
