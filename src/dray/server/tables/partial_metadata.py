"""Objects reduced to their metadata, for clients that need no more.

Theory of operation: the metadata is cut out of the stored bytes, and the version is put in front of it;
nothing inside is parsed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dray.server.objects.stored_object import StoredObject


class _Envelope(msgspec.Struct, frozen=True):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_ENVELOPE = msgspec.json.Decoder(_Envelope)


def read_metadata(stored: StoredObject) -> msgspec.Raw:
    """Return the metadata of an object as JSON, with its version."""
    metadata = bytes(_ENVELOPE.decode(stored.value).metadata)
    comma = b"" if metadata == b"{}" else b","
    return msgspec.Raw(b'{"resourceVersion":"%d"%s%s' % (stored.revision, comma, metadata[1:]))


def build_partial_metadata(stored: StoredObject, version: str = "v1") -> dict[str, Any]:
    """Return an object as `PartialObjectMetadata`."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": read_metadata(stored),
    }
