"""A disk under the audit log that can be full."""

from __future__ import annotations

import asyncio
import errno

from dray.server.audit.log_file import AuditLogFile


class Disk:
    """A disk that can be full."""

    def __init__(self, monkeypatch) -> None:
        self.full = False
        real = AuditLogFile.append

        def append(file, bodies):
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(file, bodies)

        monkeypatch.setattr(AuditLogFile, "append", append)


async def until(condition) -> None:
    while not condition():
        await asyncio.sleep(0.01)
