"""Unix sockets: paths that fit, gRPC targets, and private directories.

Theory of operation: the address of a Unix socket has at most 107 bytes. A name that would not fit is replaced
by a digest of it, so that the path is the same at every start; a directory that is too long even for that is
an error.
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
"""Longest path of a socket, on Linux."""
_DIGEST_LENGTH: Final = 16


def build_socket_path(directory: Path, name: str) -> Path:
    """Return the path of a socket of this name, or of a digest of the name when it would be too long."""
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
    """Return the target for a gRPC channel or server."""
    return f"unix:{path}"


def open_channel(path: Path | str) -> Any:
    """Open a channel to the socket at a path. It connects on use and reconnects."""
    options = (
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # A proxy in the environment does not lead to a socket of this machine.
        ("grpc.enable_http_proxy", 0),
        ("grpc.default_authority", "localhost"),
    )
    return grpc.aio.insecure_channel(format_grpc_target(path), options=options)


def make_private_directory(directory: Path) -> None:
    """Create a directory, and its missing parents, for this user alone."""
    for each in (*reversed(directory.parents), directory):
        each.mkdir(mode=0o700, exist_ok=True)


def secure_socket_directory(directory: Path) -> None:
    """Create a directory for sockets that only its owner may enter; refuse one that another user owns."""
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
