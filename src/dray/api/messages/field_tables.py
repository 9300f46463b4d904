"""Field tables: the messages of Kubernetes and their fields, in one file per API group and version.

Theory of operation: a line that is not indented begins a message; each line below it is a field: number in
protobuf, name in JSON, type. Modifiers stand before the type. `[]` is a list and `{}` a map from strings; `+`
puts the fields of a message into the document of its holder. `*` keeps the zero value of a field, because Go
has a pointer there and tells it from an absent one; `!` keeps it because Go's JSON always shows the field (an
absent list is null then). A type with dots is a message of another file. Types without fields are leaves:
scalars, times, quantities, JSON. Lists of kinds have no tables: they all have the same two fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Final

LIST, MAP, INLINE, POINTER, REQUIRED, ONEOF = "[]", "{}", "+", "*", "!", "?"
"""Modifiers; the last one puts a field into the one oneof of its message."""

META: Final = "meta.v1"
META_KINDS: Final = frozenset(
    {
        "APIGroup",
        "APIGroupList",
        "APIResourceList",
        "APIVersions",
        "CreateOptions",
        "DeleteOptions",
        "GetOptions",
        "ListOptions",
        "PatchOptions",
        "Status",
        "UpdateOptions",
        "WatchEvent",
    }
)
"""Kinds that have the same message in every group and version."""

_FOLDER: Final = resources.files(__package__).joinpath("tables")
TABLE_FILES: Final = frozenset(each.name.removesuffix(".txt") for each in _FOLDER.iterdir())


@dataclass(frozen=True, slots=True)
class FieldDefinition:
    """One field of a message."""

    number: int
    name: str
    type: str
    modifier: str = ""
    """What stands before the type in the table; a list or map has no other modifier."""
    is_always_shown: bool = False
    """Whether JSON has the field even if it is empty."""


MessageTable = Mapping[str, tuple[FieldDefinition, ...]]


def parse_message_table(text: str) -> MessageTable:
    """Parse a table of messages."""
    found: dict[str, list[FieldDefinition]] = {}
    current: list[FieldDefinition] = []
    for line in filter(None, text.splitlines()):
        if not line.startswith(" "):
            current = found[line] = []
            continue
        number, name, written = line.split()
        bare = written.lstrip("*[]{}+?!")
        modifier = written.removesuffix(bare)
        kept = modifier.removeprefix(REQUIRED) or modifier
        current.append(FieldDefinition(int(number), name, bare, kept, modifier.startswith(REQUIRED)))
    return {name: tuple(fields) for name, fields in found.items()}


@lru_cache(maxsize=64)
def load_table(file: str) -> MessageTable:
    """Load the table of an API group and version, such as `core.v1`."""
    return parse_message_table(_FOLDER.joinpath(f"{file}.txt").read_text())


def find_table_file(api_version: str, kind: str) -> str | None:
    """Find the file with the message of a kind, if there is one."""
    if kind in META_KINDS:
        return META
    group, _, version = api_version.rpartition("/")
    file = f"{group.partition('.')[0] or 'core'}.{version}"
    if file not in TABLE_FILES or (group and "." not in group and file in (META, "core.v1")):
        return None
    return file


def resolve_message(name: str, file: str) -> tuple[str, str]:
    """Return file and name of a type that a table of `file` names."""
    other, _, local = name.rpartition(".")
    return other or file, local
