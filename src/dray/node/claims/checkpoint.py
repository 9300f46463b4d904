"""Where the agent's record survives: one file, in place before any driver is called.

Theory of operation: `store` returns when a record at least as new as the one given is durable. Writers that
come while a write is under way share the next one, so a hundred pods that start together cost a few writes.

When the file cannot be used, by what is the case:

    absent            the node is new, or somebody deleted the file: the record is made anew from what the
                      API says this node has (its `Preparation`s) and from the pods bound to it; everything
                      those pods use is prepared again, everything else is given back
    torn, foreign,    the same; the file is set aside under another name, for whoever wants to know
    wrong checksum,
    forgotten version
    a later version   the agent does not start: a later program knows more of what is prepared than we can
                      read, and acting on less could give back what is in use
    an earlier copy   cannot be told from the file itself; claims that the API says this node has and the
                      file does not know are added, claims that the file has and the API does not know are
                      prepared again, and pods whose containers run use their claims whatever the file says

Rules for this file: bytes and names of files; what a record means is in `plan`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from dray.durable import CorruptFileError, StateFile, sync_directory
from dray.node.claims.record import ClaimsRecord

VERSION: Final = 1
FILE: Final = StateFile("dray node checkpoint", VERSION)

_READERS: Final[Mapping[int, Callable[[bytes], ClaimsRecord]]] = MappingProxyType(
    {1: lambda content: msgspec.json.decode(content, type=ClaimsRecord)}
)
"""How the content of each version is read."""


@dataclass(frozen=True, slots=True)
class LostCheckpoint:
    """There is no record to go on with."""

    why: str
    """Empty when there never was one, as far as anybody can tell."""


class Checkpoint:
    """The file of one agent."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._latest = ClaimsRecord()
        self._requested = self._durable = 0
        self._writing: asyncio.Task[None] | None = None

    def load(self) -> ClaimsRecord | LostCheckpoint:
        """What the file says. `dray.durable.Newer` when a later program wrote it."""
        try:
            found = FILE.read(self._path)
            if found is None:
                return LostCheckpoint("")
            return self._decode(*found)
        except CorruptFileError as damaged:
            return LostCheckpoint(f"{damaged}; it is kept as `{self._set_aside()}`")

    def _decode(self, version: int, content: bytes) -> ClaimsRecord:
        reader = _READERS.get(version)
        if reader is None:
            raise CorruptFileError(
                f"`{self._path}` has version {version}, which this program does not know any more"
            )
        try:
            return reader(content)
        except msgspec.DecodeError as broken:
            raise CorruptFileError(f"`{self._path}` holds no record: {broken}") from None

    def _set_aside(self) -> Path:
        number = 1
        while (kept := self._path.with_name(f"{self._path.name}.damaged-{number}")).exists():
            number += 1
        self._path.rename(kept)
        sync_directory(kept.parent)
        return kept

    async def store(self, record: ClaimsRecord) -> None:
        """Make a record durable, or a later one; `OSError` when that is not possible."""
        self._latest = record
        self._requested += 1
        mine = self._requested
        while self._durable < mine:
            if self._writing is None or self._writing.done():
                self._writing = asyncio.create_task(self._write())
                self._writing.add_done_callback(_consume_exception)
            # Whoever stops waiting does not stop the write: others wait for it too.
            await asyncio.shield(self._writing)

    async def close(self) -> None:
        """Wait for a write that is under way; the file is nobody's then."""
        if self._writing is not None:
            await asyncio.wait((self._writing,))

    async def _write(self) -> None:
        number, record = self._requested, self._latest
        await asyncio.to_thread(FILE.write, self._path, record)
        self._durable = number


def _consume_exception(task: asyncio.Task[None]) -> None:
    """A failure is told to whoever waits; that nobody does any more is no fault."""
    if not task.cancelled():
        task.exception()
