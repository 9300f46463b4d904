"""Schemas of the structs: types, descriptions, and merge rules of lists and maps.

Theory of operation: the builder walks a struct together with the merge rules of its kind; each nested struct
becomes a schema of its own that others refer to. Open kinds preserve unknown fields. The first visit of a
struct decides: the same struct has the same rules everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from dray.api import conversion
from dray.api.core.opaque import OpaqueClusterObject, OpaqueObject
from dray.api.field_docs import get_field_docs, get_struct_doc
from dray.api.kinds import Kind
from dray.api.meta import Projection
from dray.api.transactions import GROUP, KIND, VERSION, Transaction
from dray.server.openapi.schema_names import META, QUANTITY, build_reference, build_struct_name, get_package
from dray.server.patch.schema.field_structure import ANY, Structure
from dray.server.patch.schema.kind_structures import get_structure
from dray.values.quantity import Quantity

Schema = dict[str, Any]

PRESERVE_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"
GVK: Final = "x-kubernetes-group-version-kind"

_QUANTITY: Final[Schema] = {
    "description": "An amount: a number with an optional suffix, such as `10Gi`, `500m` or `2`.",
    "oneOf": [{"type": "string"}, {"type": "number"}],
}
_ANY_OBJECT: Final[Schema] = {"type": "object", PRESERVE_UNKNOWN: True}


class SchemaBuilder:
    """Collects the schemas of one group and version."""

    def __init__(self, group: str, version: str) -> None:
        self._group, self._version = group, version
        self._package = get_package(group, version)
        self.schemas: dict[str, Schema] = {}

    def add_kind(self, kind: Kind) -> str:
        """Add the schema of a kind and of its list; returns the name of the former."""
        name = f"{self._package}.{kind.name}"
        shape = conversion.get_struct_type(kind, self._version)
        # Opaque kinds share a struct, so the schema has the name of the kind.
        self._add_struct(name, _inspect_struct(shape), get_structure(kind, self._version))
        schema = self.schemas[name]
        if kind.open:
            schema |= self._build_open_kind(kind)
            schema["description"] = _describe_open_kind(kind, shape)
        schema[GVK] = [self._build_gvk(kind.name)]
        self.schemas[f"{name}List"] = self._build_list(kind, name)
        return name

    def add_standalone(self, gvk: tuple[str, str, str]) -> str:
        """Add the schema of a kind that is answered and not stored, such as a review; returns its name."""
        group, version, kind = gvk
        name = f"{get_package(group, version)}.{kind}"
        if gvk == (GROUP, VERSION, KIND):
            self._add_struct(name, _inspect_struct(Transaction), ANY)
            self.schemas[name][GVK] = [self._build_gvk(kind)]
            return name
        self.schemas[name] = {
            "description": f"{kind}: answered and not stored.",
            "type": "object",
            PRESERVE_UNKNOWN: True,
            GVK: [{"group": group, "version": version, "kind": kind}],
        }
        return name

    def _build_open_kind(self, kind: Kind) -> Schema:
        """Return what an open kind may have besides the fields that dray reads."""
        known = self.schemas[f"{self._package}.{kind.name}"]["properties"]
        status = (
            {"status": {**_ANY_OBJECT, "description": get_field_docs(kind.type)["status"]}}
            if "status" in kind.subresources
            else {}
        )
        return {"properties": {**status, **known}, PRESERVE_UNKNOWN: True}

    def _build_gvk(self, name: str) -> dict[str, str]:
        return {"group": self._group, "version": self._version, "kind": name}

    def _build_list(self, kind: Kind, name: str) -> Schema:
        self.schemas.setdefault(f"{META}.ListMeta", _LIST_META)
        return {
            "description": f"A list of objects of the kind {kind.name}.",
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string", "description": get_field_docs(kind.type)["apiVersion"]},
                "kind": {"type": "string", "description": f"`{kind.name}List`."},
                "metadata": _build_reference_field(
                    "Version and continuation of the list.", f"{META}.ListMeta"
                ),
                "items": {
                    "description": "The objects.",
                    "type": "array",
                    "items": {"default": {}, "allOf": [{"$ref": build_reference(name)}]},
                },
            },
            GVK: [self._build_gvk(f"{kind.name}List")],
        }

    def _add_struct(self, name: str, kind: inspect.StructType, structure: Structure) -> None:
        if name in self.schemas:
            return
        shape = kind.cls
        schema: Schema = {"description": get_struct_doc(shape), "type": "object"}
        self.schemas[name] = schema
        descriptions = get_field_docs(shape)
        schema["properties"] = {
            field.encode_name: self._build_field(field.type, structure.get_field(field.encode_name))
            | {"description": descriptions.get(field.encode_name, "")}
            for field in kind.fields
        }
        if structure.atomic:
            schema["x-kubernetes-map-type"] = "atomic"
        if issubclass(shape, Projection):
            schema[PRESERVE_UNKNOWN] = True

    def _build_field(self, kind: inspect.Type, structure: Structure) -> Schema:
        match kind:
            case inspect.Metadata(type=inner):
                return self._build_field(inner, structure)
            case inspect.UnionType(types=members):
                inner = next(member for member in members if not isinstance(member, inspect.NoneType))
                return self._build_field(inner, structure)
            case inspect.StructType():
                name = build_struct_name(kind.cls, self._package)
                self._add_struct(name, kind, structure)
                return {"allOf": [{"$ref": build_reference(name)}], "default": {}}
            case inspect.VarTupleType(item_type=inner):
                return {
                    "type": "array",
                    "items": self._build_field(inner, structure.element),
                    **_build_list_extensions(structure),
                }
            case inspect.DictType(value_type=inner):
                values = self._build_field(inner, structure.element)
                return {"type": "object", "additionalProperties": values, **_build_map_extensions(structure)}
            case _:
                return self._build_leaf(kind)

    def _build_leaf(self, kind: inspect.Type) -> Schema:
        match kind:
            case inspect.CustomType(cls=cls) if cls is Quantity:
                self.schemas.setdefault(QUANTITY, _QUANTITY)
                return {"allOf": [{"$ref": build_reference(QUANTITY)}]}
            case inspect.StrType(pattern=pattern):
                return {"type": "string", "format": "date-time"} if pattern else {"type": "string"}
            case inspect.IntType():
                return {"type": "integer", "format": "int64"}
            case inspect.BoolType():
                return {"type": "boolean"}
            case _:
                return dict(_ANY_OBJECT)


@lru_cache(maxsize=128)
def _inspect_struct(struct_type: type) -> inspect.StructType:
    """Inspect a struct and the types of its fields; cached, because inspection is slow."""
    kind = inspect.type_info(struct_type)
    assert isinstance(kind, inspect.StructType)
    return kind


def _describe_open_kind(kind: Kind, shape: type[msgspec.Struct]) -> str:
    if shape in (OpaqueObject, OpaqueClusterObject):
        return f"{kind.name}: stored as it was written; dray does not interpret it."
    return f"{get_struct_doc(shape)} Fields that are not described here are preserved."


def _build_reference_field(description: str, name: str) -> Schema:
    return {"description": description, "default": {}, "allOf": [{"$ref": build_reference(name)}]}


def _build_list_extensions(structure: Structure) -> Schema:
    """Return the merge rules of a list as extensions of Kubernetes."""
    found: Schema = {"x-kubernetes-list-type": structure.list_type}
    if structure.map_keys:
        found["x-kubernetes-list-map-keys"] = list(structure.map_keys)
    if structure.merge_key:
        found["x-kubernetes-patch-merge-key"] = structure.merge_key
    if structure.strategy:
        found["x-kubernetes-patch-strategy"] = ",".join(structure.strategy)
    return found


def _build_map_extensions(structure: Structure) -> Schema:
    found: Schema = {"x-kubernetes-map-type": "atomic"} if structure.atomic else {}
    if structure is not ANY and structure.strategy:
        found["x-kubernetes-patch-strategy"] = ",".join(structure.strategy)
    return found


def _build_plain_field(description: str, type_: str = "string") -> Schema:
    return {"description": description, "type": type_}


_LIST_META: Final[Schema] = {
    "description": "Version and continuation of a list.",
    "type": "object",
    "properties": {
        "resourceVersion": _build_plain_field(
            "The version everything in the list was read at; a watch may begin there."
        ),
        "continue": _build_plain_field("Token for the next page; empty at the end."),
        "remainingItemCount": _build_plain_field("How many objects follow, where that is known.", "integer"),
        "selfLink": _build_plain_field("No longer used."),
    },
}

SHARED_SCHEMAS: Final[Mapping[str, Schema]] = {
    f"{META}.DeleteOptions": {
        "description": "Options of a deletion.",
        "type": "object",
        "properties": {
            "apiVersion": _build_plain_field("Group and version of the options."),
            "kind": _build_plain_field("`DeleteOptions`."),
            "gracePeriodSeconds": _build_plain_field(
                "Grace period of the deletion; zero deletes at once.", "integer"
            ),
            "preconditions": {
                "description": "What must be true of the object, else nothing happens: `uid`, "
                "`resourceVersion`.",
                "type": "object",
                "properties": {
                    "uid": _build_plain_field("The uid the object must have."),
                    "resourceVersion": _build_plain_field("The version the object must have."),
                },
            },
            "propagationPolicy": _build_plain_field(
                "What happens to what it owns: `Background`, `Foreground` or `Orphan`."
            ),
            "orphanDependents": _build_plain_field("No longer used; see `propagationPolicy`.", "boolean"),
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
            "apiVersion": _build_plain_field("`v1`."),
            "kind": _build_plain_field("`Status`."),
            "status": _build_plain_field("`Success` or `Failure`."),
            "message": _build_plain_field("What happened, in a sentence."),
            "reason": _build_plain_field("What happened, in one word."),
            "code": _build_plain_field("The HTTP status code.", "integer"),
            "details": {"description": "Machine-readable details.", "type": "object", PRESERVE_UNKNOWN: True},
        },
    },
    f"{META}.Patch": {"description": "A patch, in the form its media type says.", "type": "object"},
    f"{META}.APIResourceList": {
        "description": "The resources of a group and version.",
        "type": "object",
        PRESERVE_UNKNOWN: True,
    },
}
"""Schemas that every document has."""
