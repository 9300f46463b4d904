"""Cache of the CDI specs of a node: finds devices in them and collects their container edits.

Theory of operation: the directories are scanned when devices are looked up, and a file is read again only
when it has changed. A later directory overrides an earlier one; inside a directory two files must not
describe the same device. An unusable file is reported once and skipped; the error for a missing device names
the skipped files. The edits of a whole spec apply once, before those of its first device.

Rules for this file: a user who can write a CDI file can run programs as root (hooks). So only regular files
are read, never through a link, owned by root or this user, and not world-writable. Device names are compared
and never turned into paths.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from dray.errors import DrayError, InputError
from dray.manifests import ManifestSource, read_documents
from dray.wire.cdi import (
    CdiSpec,
    CdiSpecError,
    ContainerEdits,
    QualifiedDeviceName,
    parse_qualified_name,
    parse_spec,
)

DEFAULT_DIRECTORIES: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
MAX_FILE_BYTES: Final = 4 * 1024 * 1024
"""Limit of the size of a file."""
MAX_FILES: Final = 10_000
"""Limit of the files read in one directory."""
_SUFFIXES: Final = (".json", ".yaml")


class CdiDeviceError(DrayError):
    """A CDI device of a container was not found; names the device and the searched directories."""


class _FileStamp(NamedTuple):
    """Detects a changed file."""

    modified: int
    size: int
    inode: int


class _CachedSpec(NamedTuple):
    """A file as last read: either a spec or a problem."""

    stamp: _FileStamp
    spec: CdiSpec | None
    problem: str = ""


class _UnusableError(Exception):
    """A file or directory that must not be read."""


_DeviceIndex = dict[QualifiedDeviceName, list[Path]]


class CdiSpecCache:
    """The CDI directories of a node, in order of rising precedence."""

    def __init__(
        self,
        directories: Sequence[Path] = DEFAULT_DIRECTORIES,
        on_problem: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._directories = tuple(directories)
        self._on_problem = on_problem
        self._files: dict[Path, _CachedSpec] = {}
        self._problems: dict[Path, str] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        """The unusable files and directories of the last scan."""
        return tuple(f"{path}: {problem}" for path, problem in sorted(self._problems.items()))

    def collect_edits(self, names: Sequence[str]) -> ContainerEdits:
        """Collect the edits of devices, in their order; raises `CdiDeviceError` when one is not found."""
        if not names:
            return ContainerEdits()
        indexes = self._scan()
        edits, seen = ContainerEdits(), set[Path]()
        for name in dict.fromkeys(names):
            device, path = self._find_device(name, indexes)
            spec = self._files[path].spec
            assert spec is not None
            if path not in seen:
                seen.add(path)
                edits |= spec.container_edits
            edits |= next(each.container_edits for each in spec.devices if each.name == device.name)
        return edits

    def list_devices(self) -> dict[str, tuple[Path, ...]]:
        """List the files that describe each device, by its qualified name."""
        found: dict[str, tuple[Path, ...]] = {}
        for index in self._scan():
            for device, paths in index.items():
                found[str(device)] = (*found.get(str(device), ()), *paths)
        return found

    def _find_device(self, name: str, indexes: Sequence[_DeviceIndex]) -> tuple[QualifiedDeviceName, Path]:
        try:
            device = parse_qualified_name(name)
        except ValueError as error:
            raise CdiDeviceError(str(error)) from None
        for index in reversed(indexes):
            paths = index.get(device, [])
            if len(paths) == 1:
                return device, paths[0]
            if paths:
                both = " and ".join(f"`{path}`" for path in paths)
                raise CdiDeviceError(
                    f"CDI device `{device}` is described twice, in {both}: remove one of them"
                )
        searched = ", ".join(f"`{directory}`" for directory in self._directories) or "no directory"
        skipped = "".join(f"; skipped {problem}" for problem in self.problems[:3])
        raise CdiDeviceError(f"CDI device `{device}` is not described in any file of {searched}{skipped}")

    def _scan(self) -> list[_DeviceIndex]:
        reported, self._problems = self._problems, {}
        files: dict[Path, _CachedSpec] = {}
        indexes = []
        for directory in self._directories:
            index: _DeviceIndex = {}
            for path, file in self._read_directory(directory):
                files[path] = file
                if file.spec is None:
                    self._problems[path] = file.problem
                    continue
                for device in file.spec.devices:
                    index.setdefault(QualifiedDeviceName(file.spec.kind, device.name), []).append(path)
            indexes.append(index)
        self._files = files
        for path, problem in self._problems.items():
            if reported.get(path) != problem:
                self._on_problem(f"{path}: {problem}")
        return indexes

    def _read_directory(self, directory: Path) -> Iterator[tuple[Path, _CachedSpec]]:
        try:
            _check_permissions(os.stat(directory))
            names = sorted(name for name in os.listdir(directory) if _is_spec(name))
        except FileNotFoundError:
            return
        except (OSError, _UnusableError) as error:
            self._problems[directory] = _describe_error(error)
            return
        if len(names) > MAX_FILES:
            self._problems[directory] = f"has {len(names)} files; only the first {MAX_FILES} are read"
        for name in names[:MAX_FILES]:
            path = directory / name
            file = self._read_file(path)
            if file is not None:
                yield path, file

    def _read_file(self, path: Path) -> _CachedSpec | None:
        """Return a file, from the cache if it has not changed; None when it was deleted meanwhile."""
        try:
            stamp = _build_stamp(os.lstat(path))
        except OSError:
            return None
        cached = self._files.get(path)
        if cached is not None and cached.stamp == stamp:
            return cached
        try:
            content, stamp = _read_content(path)
        except FileNotFoundError:
            return None
        except (OSError, _UnusableError) as error:
            return _CachedSpec(stamp, None, _describe_error(error))
        try:
            return _CachedSpec(stamp, _parse_spec(path, content))
        except (CdiSpecError, InputError) as error:
            return _CachedSpec(stamp, None, str(error))


def _is_spec(name: str) -> bool:
    return name.endswith(_SUFFIXES) and not name.startswith(".")


def _build_stamp(status: os.stat_result) -> _FileStamp:
    return _FileStamp(status.st_mtime_ns, status.st_size, status.st_ino)


def _describe_error(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _check_permissions(status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise _UnusableError(f"belongs to user {status.st_uid}, who could run programs as root with it")
    if status.st_mode & stat.S_IWOTH:
        raise _UnusableError("is world-writable, so any user could run programs as root with it")


def _read_content(path: Path) -> tuple[bytes, _FileStamp]:
    try:
        # Without blocking: opening a pipe without a writer would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            raise _UnusableError("is a symbolic link; put the file itself here") from None
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _UnusableError("is not a regular file")
        _check_permissions(status)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_FILE_BYTES:
        raise _UnusableError(f"is larger than {MAX_FILE_BYTES} bytes")
    return content, _build_stamp(status)


def _parse_spec(path: Path, content: bytes) -> CdiSpec:
    if path.suffix == ".json":
        return parse_spec(content)
    documents = [document.value for document in read_documents(ManifestSource.decode(path.name, content))]
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise CdiSpecError((f"expected one CDI spec, found {len(documents)} documents",))
    return parse_spec(msgspec.json.encode(documents[0]))
