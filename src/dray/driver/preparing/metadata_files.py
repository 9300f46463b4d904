"""Device metadata files of a driver on its node: one per request of a prepared claim.

Theory of operation: the CDI file of a claim mounts its metadata files into containers. They are written
before the CDI file and removed after it, so a container never starts without them. A change replaces a file:
containers that run keep what they have, and those that start later get the new one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from dray.durable import Durability, remove_file, write_file_atomically
from dray.wire.device_metadata import MetadataFile, decode_metadata, encode_metadata

_FILE_MODE: Final = 0o644


class MetadataFiles:
    """The metadata files of one driver, in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()  # a change must not write a file again that is being removed

    def get_path(self, key: str, request: str) -> Path:
        """Return the path of a file; `key` is the claim's uid in a form that is safe in a path."""
        return self._directory / f"{key}_{request}.json"

    def write(self, key: str, request: str, content: MetadataFile) -> Path:
        """Write the file of a request."""
        path = self.get_path(key, request)
        with self._lock:
            self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._write(path, content)
        return path

    def change(self, key: str, request: str, edit: Callable[[MetadataFile], MetadataFile]) -> bool:
        """Change the file of a request, and return whether there is one."""
        path = self.get_path(key, request)
        with self._lock:
            try:
                before = decode_metadata(path.read_bytes())
            except FileNotFoundError:
                return False
            after = edit(before)
            claim = msgspec.structs.replace(after.metadata, generation=before.metadata.generation + 1)
            self._write(path, msgspec.structs.replace(after, metadata=claim))
        return True

    def remove(self, key: str) -> None:
        """Remove the files of a claim."""
        with self._lock:
            for path in self._directory.glob(f"{key}_*.json"):
                remove_file(path, Durability.THIS_BOOT)

    def find_stray_files(self, owned_keys: set[str]) -> Iterator[Path]:
        """Yield files that belong to none of these claims, partly written ones included."""
        for path in sorted(self._directory.glob("*")) if self._directory.is_dir() else ():
            if path.name.startswith(".") or path.name.rpartition("_")[0] not in owned_keys:
                yield path

    def _write(self, path: Path, content: MetadataFile) -> None:
        write_file_atomically(path, encode_metadata(content), _FILE_MODE, durability=Durability.THIS_BOOT)
