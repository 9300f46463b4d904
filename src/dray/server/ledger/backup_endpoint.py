"""Backups over the wire: `GET /dray/backup` answers a copy of everything at one revision."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

from dray.server.http.endpoints import Endpoint
from dray.server.http.requests import ApiRequest, ApiResponse
from dray.store import Store
from dray.store.backups import back_up_store

BACKUP_PATH: Final = "/dray/backup"
REVISION_HEADER: Final = "dray-revision"
"""The header that says at which revision a copy was made."""
_CHUNK_BYTES: Final = 1 << 20


class BackupEndpoint:
    """Answers with copies of the store."""

    def __init__(self, store: Store, directory: Path) -> None:
        """`directory` is private and has room for a copy."""
        self._store = store
        self._directory = directory

    def build_endpoints(self) -> Mapping[tuple[str, str], Endpoint]:
        """Every page by method and path."""
        return {("get", BACKUP_PATH): self._answer_backup}

    async def _answer_backup(self, request: ApiRequest) -> ApiResponse:
        folder = Path(tempfile.mkdtemp(prefix="backup-", dir=self._directory))
        try:
            copy = folder / "copy"
            revision = await back_up_store(self._store, copy)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        headers = [(REVISION_HEADER, str(revision))]
        return ApiResponse(200, _stream_file(copy), "application/octet-stream", headers)


async def _stream_file(backup_file: Path) -> AsyncIterator[bytes]:
    """A file in parts; it is gone when it was read."""
    try:
        with backup_file.open("rb") as file:
            while part := await asyncio.to_thread(file.read, _CHUNK_BYTES):
                yield part
    finally:
        shutil.rmtree(backup_file.parent, ignore_errors=True)
