"""Locks per claim, across the tasks of a process and the processes of one driver on a node.

Theory of operation: during a rolling update two processes of a driver share a node and its store of prepared
claims. One may still be busy with a claim when the agent calls the other for the same claim; without a lock
it could write "prepared" after the other has unprepared the claim. A lock is an flock on a file that exists
only while the lock is held, and the kernel releases it when a process ends. A process that locks a file that
was removed meanwhile tries again.

Rules for this file: only the uids of claims are used.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from dray.driver.preparing.cdi_files import sanitize_uid
from dray.durable import FileLock
from dray.wire.unix_sockets import secure_socket_directory

POLL_SECONDS: Final = 0.1
"""How often to retry a lock that another process holds."""


class ClaimFileLocks:
    """The locks of one driver, as files in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        secure_socket_directory(directory)

    @asynccontextmanager
    async def acquire(self, uid: str, on_wait: Callable[[], None]) -> AsyncIterator[None]:
        """Hold the lock of a claim; `on_wait` is called once when another process holds it."""
        async with self._locks.setdefault(uid, asyncio.Lock()):
            path = self._directory / f"{sanitize_uid(uid)}.lock"
            while (lock := await asyncio.to_thread(FileLock.try_acquire, path)) is None:
                on_wait()
                on_wait = _do_nothing
                await asyncio.sleep(POLL_SECONDS)
            try:
                yield
            finally:
                # When the process ends, a method of the author may still run; the lock stays as long.
                if not _is_cancelling():
                    _release_lock(path, lock)

    def remove_stale(self) -> None:
        """Remove the lock files of processes that were killed."""
        for path in self._directory.iterdir():
            lock = FileLock.try_acquire(path)
            if lock is not None:
                _release_lock(path, lock)


def _is_cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _do_nothing() -> None:
    return None


def _release_lock(path: Path, lock: FileLock) -> None:
    path.unlink(missing_ok=True)
    lock.release()
