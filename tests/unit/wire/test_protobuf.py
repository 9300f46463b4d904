"""Message classes from tables of fields, and the strict decoding of what clients send."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import dray
from dray.api.messages.field_tables import FieldDefinition, parse_message_table
from dray.wire.protobuf import (
    MAX_UNKNOWN_BYTES,
    MalformedProtobufError,
    build_message_classes,
    decode_message,
    decode_strictly,
)

TABLE = """
Pod
  1 name string
  2 containers []Container
  4 uid ?string
  5 index ?int64
Container
  1 image string
  2 ready bool
"""


def build(syntax: str = "proto2"):
    return build_message_classes("test", parse_message_table(TABLE), syntax=syntax)


def test_a_table_has_messages_and_their_fields():
    assert parse_message_table(TABLE)["Pod"] == (
        FieldDefinition(1, "name", "string"),
        FieldDefinition(2, "containers", "Container", "[]"),
        FieldDefinition(4, "uid", "string", "?"),
        FieldDefinition(5, "index", "int64", "?"),
    )


def test_messages_of_a_table_are_written_and_read():
    classes = build()
    pod = classes["Pod"](name="a", containers=[classes["Container"](image="x", ready=True)], index=7)
    content = pod.SerializeToString()
    assert content == b"\x0a\x01a\x12\x05\x0a\x01x\x10\x01\x28\x07"
    assert classes["Pod"].FromString(content) == pod


def test_of_a_oneof_the_last_field_counts():
    pod = build()["Pod"](uid="u")
    pod.index = 3
    assert pod.WhichOneof("one") == "index"
    assert not pod.uid


@pytest.mark.parametrize(("syntax", "content"), [("proto2", b"\x10\x00"), ("proto3", b"")])
def test_only_proto2_distinguishes_zero_from_absent(syntax, content):
    assert build(syntax)["Container"](ready=False).SerializeToString() == content


def test_bytes_that_are_no_message_are_none_or_an_error():
    pod = build()["Pod"]
    assert decode_message(pod, b"\x0a\x05ab") is None
    with pytest.raises(MalformedProtobufError, match="4 bytes are not a whole Pod message"):
        decode_strictly(pod, b"\x0a\x05ab")


def test_a_known_field_of_another_wire_type_is_an_error():
    """The runtime alone would drop the name and go on."""
    pod = build()["Pod"]
    lenient = decode_message(pod, b"\x08\x05")
    assert lenient is not None
    assert lenient.name == ""
    with pytest.raises(MalformedProtobufError, match="name of a Pod has the wire type 0"):
        decode_strictly(pod, b"\x08\x05")


def test_unknown_fields_are_ignored_up_to_a_limit():
    pod = build()["Pod"]
    assert decode_strictly(pod, b"\x78\x05\x0a\x01a").name == "a"
    with pytest.raises(MalformedProtobufError, match="unknown fields"):
        decode_strictly(pod, b"\x78\x05" * (MAX_UNKNOWN_BYTES // 2 + 1))
    name = b"a" * (MAX_UNKNOWN_BYTES * 2)
    long = pod(name=name.decode()).SerializeToString()
    assert decode_strictly(pod, long + b"\x78\x05").name.encode() == name


def test_the_protobuf_runtime_is_used_through_this_package_alone():
    source = Path(dray.__file__).parent
    users = {
        path.relative_to(source).parts[0]
        for path in source.rglob("*.py")
        if re.search(r"^\s*(from|import) google\.protobuf", path.read_text(), re.MULTILINE)
    }
    assert users == {"wire"}


def test_a_server_starts_without_the_protobuf_runtime():
    """Its import takes longer than most others; only a body in protobuf, or etcd, needs it."""
    program = "import sys, dray.server.app; print('google.protobuf' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
