"""An image for containers, made of the busybox of this machine, so that no registry is needed."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest

IMAGE = "test.dray.invalid/busybox:1"
NO_BUSYBOX = "NO BUSYBOX: no image for containers can be made; put a static `busybox` on PATH"

_APPLETS = (
    "sh",
    "sleep",
    "cat",
    "ls",
    "env",
    "echo",
    "test",
    "touch",
    "true",
    "false",
    "date",
    "kill",
    "sync",
)


def require_busybox() -> Path:
    found = shutil.which("busybox")
    if found is None:
        pytest.skip(NO_BUSYBOX)
    return Path(found)


def write_image(file: Path, busybox: Path) -> Path:
    """Write an archive as `docker save` would; without a command of its own a container of it sleeps."""
    layer = _build_layer(busybox)
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    contents = {"config.json": config, "manifest.json": manifest}
    with tarfile.open(file, "w") as archive:
        _add_file(archive, "layer.tar", layer)
        for name, document in contents.items():
            _add_file(archive, name, json.dumps(document).encode())
    return file


def _build_layer(busybox: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for folder in ("bin", "tmp", "dev", "proc", "sys", "etc"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        _add_file(archive, "bin/busybox", busybox.read_bytes(), mode=0o755)
        for applet in _APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
    return packed.getvalue()


def _add_file(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
