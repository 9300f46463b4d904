"""Protobuf request bodies as the JSON documents they stand for.

Clients that were built for Kubernetes write a few kinds in protobuf and do not fall back; those kinds are
decoded here, everything else is refused with a hint. Nothing here writes protobuf or knows what a document
means. Only the intake of the server imports this package.
"""

from dray.server.http.protobuf.decoding import PROTOBUF_MAGIC, UNSUPPORTED_HINT, decode

__all__ = ["PROTOBUF_MAGIC", "UNSUPPORTED_HINT", "decode"]
