"""Sockets in directories: paths that fit, addresses for gRPC, sockets that nobody else can touch.

Theory of operation: the address of a unix socket holds 107 bytes. A name that would not fit gives way to a
digest of it, so that it stays the same at every start; a directory that leaves no room for that is told as
what it is.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Any, Final

import grpc.aio

from dray.errors import InputError

MAX_SOCKET_PATH_BYTES: Final = 107
"""Bytes of a socket's path, on Linux."""
_DIGEST_LENGTH: Final = 16


def build_socket_path(directory: Path, name: str) -> Path:
    """The path of a socket of this name, or of a digest of the name when it would be too long."""
    path = directory / name
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    stem, dot, ending = name.rpartition(".")
    digest = hashlib.sha256((stem or name).encode()).hexdigest()[:_DIGEST_LENGTH]
    path = directory / (f"{digest}{dot}{ending}" if stem else digest)
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise InputError(
            f"the path of a socket may have {MAX_SOCKET_PATH_BYTES} bytes, `{path}` has "
            f"{len(os.fsencode(path))}; "
            "choose a shorter directory"
        )
    return path


def format_grpc_target(path: Path | str) -> str:
    """The target for a gRPC channel or server."""
    return f"unix:{path}"


def open_channel(path: Path | str) -> Any:
    """A channel to the socket at a path. It connects when it is used, again and again."""
    options = (
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # A proxy in the environment is no way to a socket of this machine.
        ("grpc.enable_http_proxy", 0),
        ("grpc.default_authority", "localhost"),
    )
    return grpc.aio.insecure_channel(format_grpc_target(path), options=options)


def make_private_directory(directory: Path) -> None:
    """Make a directory, and whatever is missing above it, for nobody but this user."""
    for each in (*reversed(directory.parents), directory):
        each.mkdir(mode=0o700, exist_ok=True)


def secure_socket_directory(directory: Path) -> None:
    """Make a directory for sockets that only its owner enters; refuse one that somebody else owns."""
    try:
        make_private_directory(directory)
        seen = directory.lstat()
    except OSError as refused:
        raise InputError(
            f"cannot make the directory `{directory}`: `{refused.filename}`: {refused.strerror}; "
            "choose another place, or run as a user who may write there"
        ) from None
    if stat.S_ISLNK(seen.st_mode) or not stat.S_ISDIR(seen.st_mode):
        raise InputError(f"`{directory}` must be a directory of its own, not a link or a file")
    if seen.st_uid != os.geteuid():
        raise InputError(f"`{directory}` belongs to user {seen.st_uid}, not to this one ({os.geteuid()})")
    if seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InputError(f"`{directory}` may be written to by others; `chmod go-w` it, or choose another one")


def remove_stale_socket(path: Path) -> None:
    """Remove a socket that an earlier process left; anything else at its path stays and is an error."""
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(seen.st_mode):
        raise InputError(f"`{path}` is in the way and is not a socket; remove it")
    try:
        path.unlink()
    except OSError as refused:
        raise InputError(f"the old socket `{path}` cannot be removed: {refused.strerror}") from None
