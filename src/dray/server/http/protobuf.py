"""Bodies in Kubernetes protobuf: requests decoded to JSON documents, and responses encoded from JSON.

Clients built for Kubernetes send and prefer protobuf. Kinds of dray's own groups have no messages, and
neither has a `Table`; clients get those in JSON. This module is imported when the first such body arrives or
leaves, because the protobuf runtime is slow to import.
"""

from __future__ import annotations

from typing import Any, Final

from dray.api.json_text import read_json
from dray.errors import DecodeError
from dray.server.http.errors import ApiStatusError, new_bad_request, new_unsupported_media_type
from dray.server.http.requests import JSON, YAML
from dray.wire import kubernetes
from dray.wire.kubernetes import UnencodableValueError, UnknownMessageError
from dray.wire.protobuf import MalformedProtobufError

UNSUPPORTED_HINT: Final = (
    "; send JSON: `kubectl` with a manifest, daemons with --kube-api-content-type=application/json"
)


def decode(body: bytes, default_names: tuple[str, str] = ("", "")) -> dict[str, Any]:
    """Decode a protobuf body; raises an `ApiStatusError` of 400 or 415."""
    try:
        return kubernetes.decode(body, default_names)
    except MalformedProtobufError as broken:
        raise new_bad_request(f"the body is not Kubernetes protobuf: {broken}") from None
    except DecodeError as broken:
        raise new_bad_request(f"the body holds a value that is {broken}") from None
    except UnknownMessageError as unknown:
        raise new_unsupported_media_type((JSON, YAML), f"; {unknown}{UNSUPPORTED_HINT}") from None


def encode(text: bytes) -> bytes:
    """Encode JSON text of an object; raises an `ApiStatusError` of 406 for one that protobuf cannot hold."""
    try:
        return kubernetes.encode(read_json(text))
    except UnencodableValueError as wrong:
        raise _build_unencodable(wrong) from None


def encode_event(type_: str, text: bytes) -> bytes:
    """Encode an event of a watch, whose object is JSON text."""
    return kubernetes.encode_watch_event(type_, encode(text))


def _build_unencodable(wrong: UnencodableValueError) -> ApiStatusError:
    return ApiStatusError(
        406, "NotAcceptable", f"the object cannot be written in protobuf: {wrong}; accept application/json"
    )
