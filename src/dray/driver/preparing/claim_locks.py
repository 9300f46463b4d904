"""One at a time per claim: in this process, and in any other of the same driver on the node.

Theory of operation: during a rolling update two processes of a driver share a node and its book. One may
still be busy with a claim when the agent asks the other about the same claim; without turns it could write
"prepared" after the other has given the claim back. A turn is a lock on a file that is there only while
somebody works, and the system takes it from a process that ends. Whoever gets the lock of a file that was
removed meanwhile tries again.

Rules for this file: it knows nothing of claims but their uids.
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
"""How often to look whether another process has finished."""


class ClaimLocks:
    """The turns of one driver, as files in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        secure_socket_directory(directory)

    @asynccontextmanager
    async def acquire(self, uid: str, on_wait: Callable[[], None]) -> AsyncIterator[None]:
        """While it is our turn with a claim; `on_wait` is called when another process has it."""
        async with self._locks.setdefault(uid, asyncio.Lock()):
            path = self._directory / f"{sanitize_uid(uid)}.lock"
            while (held := await asyncio.to_thread(FileLock.try_acquire, path)) is None:
                on_wait()
                on_wait = _do_nothing
                await asyncio.sleep(POLL_SECONDS)
            try:
                yield
            finally:
                # When the process ends, a method of the author may still be at work: so long it is ours.
                if not _is_cancelling():
                    _release_lock(path, held)

    def remove_stale(self) -> None:
        """Remove what processes left that were killed."""
        for path in self._directory.iterdir():
            held = FileLock.try_acquire(path)
            if held is not None:
                _release_lock(path, held)


def _is_cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _do_nothing() -> None:
    return None


def _release_lock(path: Path, lock: FileLock) -> None:
    path.unlink(missing_ok=True)
    lock.release()
