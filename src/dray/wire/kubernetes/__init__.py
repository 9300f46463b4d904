"""Kubernetes objects in protobuf: JSON documents from protobuf bodies, and protobuf from documents.

The tables in `messages` name the fields of every kind that clients built for Kubernetes send or read, as
Kubernetes 1.37 has them. The package must not interpret a document, nor know which kinds a server has. It is
imported when the first protobuf is read or written, because the protobuf runtime is slow to import.
"""

from dray.wire.kubernetes.decoding import decode, decode_envelope
from dray.wire.kubernetes.encoding import UnencodableValueError, encode, encode_watch_event
from dray.wire.kubernetes.message_tables import MAGIC, UnknownMessageError, has_message

__all__ = [
    "MAGIC",
    "UnencodableValueError",
    "UnknownMessageError",
    "decode",
    "decode_envelope",
    "encode",
    "encode_watch_event",
    "has_message",
]
