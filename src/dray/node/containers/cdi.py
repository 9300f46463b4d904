"""The CDI files of a node: which device is described where, and what it changes in a container.

Theory of operation: directories are looked through when devices are asked for, and a file is read again only
when it has changed. A later directory goes before an earlier one; inside a directory two files must not
describe the same device. A file that cannot be used is told once and passed over; when a device is missing,
what was passed over is part of the answer. The edits of a whole spec come once, before those of its first
device.

Rules for this file: whoever can write a CDI file runs programs as root (hooks). So only regular files are
read, never through a link, of root or our own user, and not where everybody may write. Names of devices are
compared and never made into paths.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from dray.errors import DrayError, InputError
from dray.manifests import Source, read
from dray.wire.cdi import BadSpec, Edits, Qualified, Spec, qualified, read_spec

DIRECTORIES: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
LARGEST: Final = 4 * 1024 * 1024
"""Bytes of a file that is read."""
MOST: Final = 10_000
"""Files of a directory that are looked at."""
_SUFFIXES: Final = (".json", ".yaml")


class NoSuchEdits(DrayError):  # noqa: N818 - what is the case
    """Devices that a container was promised cannot be given to it; says which, and where was looked."""


class _Stamp(NamedTuple):
    """By what a changed file is told."""

    modified: int
    size: int
    inode: int


class _File(NamedTuple):
    """A file as it was last read; either a spec or what is wrong."""

    stamp: _Stamp
    spec: Spec | None
    problem: str = ""


class _Unusable(Exception):  # noqa: N818 - what is the case
    """A file or directory that is not looked into."""


_Shelf = dict[Qualified, list[Path]]


class CdiFiles:
    """The directories of a node, in order of rising precedence."""

    def __init__(
        self, directories: Sequence[Path] = DIRECTORIES, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self._directories = tuple(directories)
        self._tell = tell
        self._files: dict[Path, _File] = {}
        self._problems: dict[Path, str] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be used when the directories were last looked through."""
        return tuple(f"{path}: {problem}" for path, problem in sorted(self._problems.items()))

    def edits(self, names: Sequence[str]) -> Edits:
        """What devices change in a container, in their order; `NoSuchEdits` when one is not described."""
        if not names:
            return Edits()
        shelves = self._look()
        edits, seen = Edits(), set[Path]()
        for name in dict.fromkeys(names):
            device, path = self._find(name, shelves)
            spec = self._files[path].spec
            assert spec is not None
            if path not in seen:
                seen.add(path)
                edits |= spec.container_edits
            edits |= next(each.container_edits for each in spec.devices if each.name == device.name)
        return edits

    def _find(self, name: str, shelves: Sequence[_Shelf]) -> tuple[Qualified, Path]:
        try:
            device = qualified(name)
        except ValueError as wrong:
            raise NoSuchEdits(str(wrong)) from None
        for shelf in reversed(shelves):
            paths = shelf.get(device, [])
            if len(paths) == 1:
                return device, paths[0]
            if paths:
                both = " and ".join(f"`{path}`" for path in paths)
                raise NoSuchEdits(f"CDI device `{device}` is described twice, in {both}: remove one of them")
        looked = ", ".join(f"`{directory}`" for directory in self._directories) or "no directory"
        passed = "".join(f"; passed over {problem}" for problem in self.problems[:3])
        raise NoSuchEdits(f"CDI device `{device}` is not described in any file of {looked}{passed}")

    def _look(self) -> list[_Shelf]:
        before, self._problems = self._problems, {}
        files: dict[Path, _File] = {}
        shelves = []
        for directory in self._directories:
            shelf: _Shelf = {}
            for path, file in self._read_all(directory):
                files[path] = file
                if file.spec is None:
                    self._problems[path] = file.problem
                    continue
                for device in file.spec.devices:
                    shelf.setdefault(Qualified(file.spec.kind, device.name), []).append(path)
            shelves.append(shelf)
        self._files = files
        for path, problem in self._problems.items():
            if before.get(path) != problem:
                self._tell(f"{path}: {problem}")
        return shelves

    def _read_all(self, directory: Path) -> Iterator[tuple[Path, _File]]:
        try:
            _usable(os.stat(directory))
            names = sorted(name for name in os.listdir(directory) if _is_spec(name))
        except FileNotFoundError:
            return
        except (OSError, _Unusable) as failed:
            self._problems[directory] = _words(failed)
            return
        if len(names) > MOST:
            self._problems[directory] = f"has {len(names)} files; only the first {MOST} are looked at"
        for name in names[:MOST]:
            path = directory / name
            file = self._read(path)
            if file is not None:
                yield path, file

    def _read(self, path: Path) -> _File | None:
        """A file, as it is kept if it has not changed; None when it has gone in the meantime."""
        try:
            stamp = _stamp(os.lstat(path))
        except OSError:
            return None
        kept = self._files.get(path)
        if kept is not None and kept.stamp == stamp:
            return kept
        try:
            content, stamp = _content(path)
        except FileNotFoundError:
            return None
        except (OSError, _Unusable) as failed:
            return _File(stamp, None, _words(failed))
        try:
            return _File(stamp, _spec(path, content))
        except (BadSpec, InputError) as broken:
            return _File(stamp, None, str(broken))


def _is_spec(name: str) -> bool:
    return name.endswith(_SUFFIXES) and not name.startswith(".")


def _stamp(status: os.stat_result) -> _Stamp:
    return _Stamp(status.st_mtime_ns, status.st_size, status.st_ino)


def _words(failed: Exception) -> str:
    return (failed.strerror or str(failed)) if isinstance(failed, OSError) else str(failed)


def _usable(status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise _Unusable(f"belongs to user {status.st_uid}, who could run programs as root with it")
    if status.st_mode & stat.S_IWOTH:
        raise _Unusable("everybody may write it, and could run programs as root with it")


def _content(path: Path) -> tuple[bytes, _Stamp]:
    try:
        # Without blocking: a pipe that nobody writes to would hold us up for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            raise _Unusable("is a symbolic link; put the file itself here") from None
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _Unusable("is not a regular file")
        _usable(status)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(LARGEST + 1)
    finally:
        os.close(descriptor)
    if len(content) > LARGEST:
        raise _Unusable(f"is larger than {LARGEST} bytes")
    return content, _stamp(status)


def _spec(path: Path, content: bytes) -> Spec:
    if path.suffix == ".json":
        return read_spec(content)
    documents = [document.value for document in read(Source.decode(path.name, content))]
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise BadSpec((f"expected one CDI spec, found {len(documents)} documents",))
    return read_spec(msgspec.json.encode(documents[0]))
