"""Request bodies in Kubernetes protobuf, decoded to JSON documents.

Clients built for Kubernetes send a few kinds in protobuf and do not fall back to JSON; this package decodes
those kinds and refuses others with a hint. It must not write protobuf, nor interpret a document. Only the
decoding of request bodies imports it, when the first such body arrives, because the protobuf runtime is slow
to import.
"""

from dray.server.http.protobuf.decoding import PROTOBUF_MAGIC, UNSUPPORTED_HINT, decode

__all__ = ["PROTOBUF_MAGIC", "UNSUPPORTED_HINT", "decode"]
