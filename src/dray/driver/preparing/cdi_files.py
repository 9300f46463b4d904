"""CDI files of a driver: one per prepared claim, with names that cannot lead out of the directory.

Theory of operation: the kind is `<driver>/claim`. A CDI device stands for one device of a claim and is named
by the claim's uid and a number, so that names never clash, not even between shares of one device. The file
name contains the driver and the uid; a uid that is not safe in a path, or for a container runtime, is
replaced by its digest. A file describes devices in this boot of the machine and is written again after the
next, so it need not survive a loss of power.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from dray.driver.base import Ready
from dray.driver.preparing.claim_conversion import PrepareRefusedError
from dray.driver.preparing.metadata_files import MetadataFiles
from dray.durable import Durability, remove_file, write_file_atomically
from dray.wire.cdi import (
    CdiDevice,
    CdiSpec,
    CdiSpecError,
    ContainerEdits,
    DeviceNode,
    Mount,
    parse_qualified_name,
    parse_spec,
    serialize_spec,
)
from dray.wire.device_metadata import CONTAINER_DIR

_SAFE_UID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?")
_DIGEST_LENGTH: Final = 32


def sanitize_uid(uid: str) -> str:
    """Return a uid as part of a file name and of a device name: unchanged when safe, else a digest."""
    if _SAFE_UID.fullmatch(uid):
        return uid
    return f"x-{hashlib.sha256(uid.encode('utf-8', 'surrogatepass')).hexdigest()[:_DIGEST_LENGTH]}"


def compute_digest(content: bytes | None) -> str:
    """Return the digest of a file's content; empty when there is no file."""
    return "" if content is None else hashlib.sha256(content).hexdigest()[:_DIGEST_LENGTH]


class ClaimCdiFiles:
    """The CDI files of one driver, in a directory that container runtimes read."""

    def __init__(self, directory: Path, driver: str, metadata_files: MetadataFiles | None = None) -> None:
        self._directory = directory
        self._driver = driver
        self._metadata_files = metadata_files

    def get_path(self, uid: str) -> Path:
        """Return the path of a claim's file."""
        return self._directory / f"{self._driver}_{sanitize_uid(uid)}.json"

    def is_intact(self, uid: str, digest: str) -> bool:
        """Whether a claim's file has this digest, and the metadata files that it mounts exist.

        True without a digest, since there was no file then.
        """
        if not digest:
            return True
        try:
            content = self.get_path(uid).read_bytes()
        except OSError:
            return False
        return compute_digest(content) == digest and all(map(Path.is_file, _find_metadata_files(content)))

    def build_device_names(self, uid: str, ready: Sequence[Ready]) -> tuple[tuple[str, ...], ...]:
        """Return the CDI names for each device: that of the claim's file if it has edits, and `Ready.cdi`."""
        return tuple(
            ((f"{self._driver}/claim={sanitize_uid(uid)}-{position}",) if _build_edits(each) else ())
            + tuple(each.cdi)
            for position, each in enumerate(ready)
        )

    def render_spec(self, uid: str, ready: Sequence[Ready]) -> bytes | None:
        """Render the file of a claim; None when containers need no edits.

        Raises `PrepareRefusedError` when the result would be no valid CDI file.
        """
        devices = tuple(
            CdiDevice(name=f"{sanitize_uid(uid)}-{position}", container_edits=edits)
            for position, each in enumerate(ready)
            if (edits := _build_edits(each))
        )
        for each in ready:
            for name in each.cdi:
                _check_device_name(name)
        if not devices:
            return None
        try:
            return serialize_spec(CdiSpec(kind=f"{self._driver}/claim", devices=devices))
        except CdiSpecError as broken:
            raise PrepareRefusedError(
                f"what the driver wants in containers is no CDI spec: {broken}"
            ) from None

    def write(self, uid: str, content: bytes | None) -> None:
        """Write the file of a claim, or remove it when there is no content."""
        if content is None:
            self.remove(uid)
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        write_file_atomically(self.get_path(uid), content, 0o644, durability=Durability.THIS_BOOT)

    def remove(self, uid: str) -> None:
        """Remove the file of a claim, and then the metadata files that it mounts."""
        if self._directory.is_dir():
            remove_file(self.get_path(uid), Durability.THIS_BOOT)
        if self._metadata_files is not None:
            self._metadata_files.remove(sanitize_uid(uid))

    def find_stray_files(self, owned: set[str]) -> Iterator[Path]:
        """Yield files of this driver that belong to none of these claims, partly written ones included."""
        if self._metadata_files is not None:
            yield from self._metadata_files.find_stray_files(set(map(sanitize_uid, owned)))
        if not self._directory.is_dir():
            return
        owned_names = {self.get_path(uid).name for uid in owned}
        for path in sorted(self._directory.iterdir()):
            name = path.name.removeprefix(".")
            is_of_driver = name.startswith(f"{self._driver}_") and ".json" in name
            if is_of_driver and path.name not in owned_names:
                yield path


def _find_metadata_files(content: bytes) -> Iterator[Path]:
    if str(CONTAINER_DIR).encode() not in content:
        return
    for each in parse_spec(content).devices:
        for mount in each.container_edits.mounts:
            if PurePosixPath(mount.container_path).is_relative_to(CONTAINER_DIR):
                yield Path(mount.host_path)


def _check_device_name(name: str) -> None:
    try:
        parse_qualified_name(name)
    except ValueError as wrong:
        raise PrepareRefusedError(str(wrong)) from None


def _build_edits(ready: Ready) -> ContainerEdits:
    return ContainerEdits(
        env=tuple(f"{name}={value}" for name, value in ready.env.items()),
        mounts=tuple(_parse_mount(each) if isinstance(each, str) else each for each in ready.mounts),
        device_nodes=tuple(
            each if isinstance(each, DeviceNode) else DeviceNode(path=os.fspath(each))
            for each in ready.device_nodes
        ),
        hooks=tuple(ready.hooks),
    )


def _parse_mount(text: str) -> Mount:
    host, _, rest = text.partition(":")
    container, _, options = rest.partition(":")
    if not host or not container:
        raise PrepareRefusedError(
            f"a mount is written as `host:container` or `host:container:options`, not `{text}`"
        )
    return Mount(
        host_path=host,
        container_path=container,
        options=(*filter(None, (options or "rw").split(",")), "bind"),
    )
