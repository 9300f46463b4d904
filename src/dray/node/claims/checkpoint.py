"""The checkpoint file of the agent's claims, written before any driver is called.

Theory of operation: `store` returns when a record at least as new as the one given is durable. Callers that
come during a write share the next one, so a hundred pods that start together cost a few writes.

What happens when the file cannot be used:

    absent            the node is new, or the file was deleted: the record is rebuilt from the `Preparation`s
                      of this node in the API and from the pods bound to it; everything those pods use is
                      prepared again, everything else is released
    torn, foreign,    the same; the file is renamed and kept for inspection
    wrong checksum,
    unsupported
    old version
    a later version   the agent does not start: a later program recorded more than this one can read, and
                      acting on less could release claims in use
    an earlier copy   cannot be detected from the file itself; claims that only the API knows are added,
                      claims that only the file knows are prepared again, and pods with running containers
                      use their claims whatever the file says

Rules for this file: bytes and file names only; the meaning of a record is in `plan`.
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
"""Decoders by version of the file."""


@dataclass(frozen=True, slots=True)
class LostCheckpoint:
    """No usable record was found."""

    why: str
    """Empty when there is no file."""


class Checkpoint:
    """The checkpoint file of one agent."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._latest = ClaimsRecord()
        self._requested = self._durable = 0
        self._writing: asyncio.Task[None] | None = None

    def load(self) -> ClaimsRecord | LostCheckpoint:
        """Read the file; raises `dray.durable.UnsupportedVersionError` when a later program wrote it."""
        try:
            found = FILE.read(self._path)
            if found is None:
                return LostCheckpoint("")
            return self._decode(*found)
        except CorruptFileError as error:
            return LostCheckpoint(f"{error}; it is kept as `{self._set_aside()}`")

    def _decode(self, version: int, content: bytes) -> ClaimsRecord:
        reader = _READERS.get(version)
        if reader is None:
            raise CorruptFileError(
                f"`{self._path}` has version {version}, which this program does not support any more"
            )
        try:
            return reader(content)
        except msgspec.DecodeError as error:
            raise CorruptFileError(f"`{self._path}` holds no record: {error}") from None

    def _set_aside(self) -> Path:
        number = 1
        while (kept := self._path.with_name(f"{self._path.name}.damaged-{number}")).exists():
            number += 1
        self._path.rename(kept)
        sync_directory(kept.parent)
        return kept

    async def store(self, record: ClaimsRecord) -> None:
        """Make a record or a later one durable; raises `OSError` when that is not possible."""
        self._latest = record
        self._requested += 1
        number = self._requested
        while self._durable < number:
            if self._writing is None or self._writing.done():
                self._writing = asyncio.create_task(self._write())
                self._writing.add_done_callback(_consume_exception)
            # A cancelled caller must not cancel the write: others wait for it too.
            await asyncio.shield(self._writing)

    async def close(self) -> None:
        """Wait for a write in progress; the file is free afterwards."""
        if self._writing is not None:
            await asyncio.wait((self._writing,))

    async def _write(self) -> None:
        number, record = self._requested, self._latest
        await asyncio.to_thread(FILE.write, self._path, record)
        self._durable = number


def _consume_exception(task: asyncio.Task[None]) -> None:
    """Retrieve the exception of a write: callers get it, and when none waits any more it is no error."""
    if not task.cancelled():
        task.exception()
