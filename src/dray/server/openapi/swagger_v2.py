"""OpenAPI version 2, for older clients.

Theory of operation: the documents of version 3 are joined and rewritten: schemas become definitions, bodies
become parameters. `kubectl` requests version 2 in protobuf, and only where version 3 does not help; a
document without definitions is enough then, because `kubectl` falls back to its built-in types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dray.server.http.requests import JSON, YAML

BINARY_SUFFIXES: Final = ("proto-openapi.spec.v2@v1.0+protobuf", "proto-openapi.spec.v2.v1.0+protobuf")
"""The endings of the two spellings of its media type."""
BINARY_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_OLD, _NEW = "#/components/schemas/", "#/definitions/"
_METHODS: Final = frozenset({"get", "put", "post", "delete", "patch"})


def build_v2_document(v3_documents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Convert documents of version 3 to one document of version 2."""
    paths: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    info: Mapping[str, Any] = {}
    for one in v3_documents:
        info = one["info"]
        definitions |= {
            name: _convert_schema(schema) for name, schema in one["components"]["schemas"].items()
        }
        paths |= {path: _convert_path(item) for path, item in one["paths"].items()}
    return {
        "swagger": "2.0",
        "info": dict(info),
        "paths": dict(sorted(paths.items())),
        "definitions": dict(sorted(definitions.items())),
        "securityDefinitions": {
            "BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"},
        },
        "security": [{"BearerToken": []}],
    }


def _convert_schema(schema: Any) -> Any:
    """Convert a schema to version 2: other references, no `allOf` around a single
    reference, and no `oneOf`.
    """
    if isinstance(schema, list):
        return [_convert_schema(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        return {"$ref": schema["$ref"].replace(_OLD, _NEW)}
    rest = {
        name: _convert_schema(value)
        for name, value in schema.items()
        if name not in ("allOf", "oneOf", "default")
    }
    if "oneOf" in schema:
        rest["type"] = "string"
    for one in schema.get("allOf", ()):
        rest |= _convert_schema(one)
    return rest


def _convert_path(item: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        method: _convert_operation(operation) for method, operation in item.items() if method in _METHODS
    }
    if "parameters" in item:
        made["parameters"] = [_convert_parameter(one) for one in item["parameters"]]
    return made


def _convert_operation(operation: Mapping[str, Any]) -> dict[str, Any]:
    made = {
        name: value
        for name, value in operation.items()
        if name not in ("requestBody", "responses", "parameters")
    }
    body = operation.get("requestBody")
    parameters = [_convert_parameter(one) for one in operation.get("parameters", ())]
    if body is not None:
        content = next(iter(body["content"].values()))
        sent = {"name": "body", "in": "body", "schema": _convert_schema(content["schema"])}
        parameters.insert(0, sent | ({"required": True} if body.get("required") else {}))
    return {
        **made,
        "consumes": sorted(body["content"]) if body is not None else ["*/*"],
        "produces": [JSON, YAML],
        "schemes": ["https"],
        "parameters": parameters,
        "responses": {code: _convert_response(one) for code, one in operation["responses"].items()},
    }


def _convert_parameter(parameter: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameter.items() if name != "schema"} | dict(parameter["schema"])


def _convert_response(response: Mapping[str, Any]) -> dict[str, Any]:
    content = response.get("content", {}).get(JSON)
    schema = {"schema": _convert_schema(content["schema"])} if content is not None else {}
    return {"description": response["description"], **schema}


_BINARY_MESSAGES: Final = """
Document
  1 swagger string
  2 info Info
  8 paths Empty
  9 definitions Empty
Info
  1 title string
  2 version string
Empty
"""


def encode_binary_skeleton(title: str, version: str) -> bytes:
    """Encode a document in protobuf that has its version and defines nothing."""
    from dray.api.messages.field_tables import parse_message_table
    from dray.wire.protobuf import build_message_classes

    classes = build_message_classes("openapi.v2", parse_message_table(_BINARY_MESSAGES), syntax="proto3")
    info, empty = classes["Info"](title=title, version=version), classes["Empty"]()
    encoded: bytes = classes["Document"](
        swagger="2.0", info=info, paths=empty, definitions=empty
    ).SerializeToString(deterministic=True)
    return encoded
