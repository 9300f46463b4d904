"""Backups over the wire: `GET /dray/backup` answers a copy of everything at one revision."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

from dray.server.http.endpoints import Page
from dray.server.http.requests import Answer, Request
from dray.store import Store
from dray.store.backups import backup

BACKUP: Final = "/dray/backup"
REVISION: Final = "dray-revision"
"""The header that says at which revision a copy was made."""
_PART: Final = 1 << 20


class Backups:
    """Answers with copies of the store."""

    def __init__(self, store: Store, directory: Path) -> None:
        """`directory` is private and has room for a copy."""
        self._store = store
        self._directory = directory

    def pages(self) -> Mapping[tuple[str, str], Page]:
        """Every page by method and path."""
        return {("get", BACKUP): self._copy}

    async def _copy(self, request: Request) -> Answer:
        folder = Path(tempfile.mkdtemp(prefix="backup-", dir=self._directory))
        try:
            copy = folder / "copy"
            revision = await backup(self._store, copy)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        headers = [(REVISION, str(revision))]
        return Answer(200, _parts(copy), "application/octet-stream", headers)


async def _parts(copy: Path) -> AsyncIterator[bytes]:
    """A file in parts; it is gone when it was read."""
    try:
        with copy.open("rb") as file:
            while part := await asyncio.to_thread(file.read, _PART):
                yield part
    finally:
        shutil.rmtree(copy.parent, ignore_errors=True)
