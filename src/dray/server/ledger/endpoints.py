"""Endpoints for administrators: ledger report and repair, backups, and the quarantine after a restore.

`GET /dray/ledger` compares the ledger with the claims and answers a report; `?entries=true` adds the holders
of every device, `?node=NAME` only those of devices prepared on that node. `POST /dray/ledger/repair` rewrites
the rows that differ. `GET /dray/backup` answers a copy of the store at one revision.

`GET /dray/restored` answers the last restore of the store; every authenticated client may read it, and node
agents compare it with their records. `GET /dray/restored/nodes` lists the nodes that have not reported yet,
and `POST /dray/restored/settle` ends the quarantine. RBAC rules on these paths decide who may call the rest.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

from dray.api.preparation import RESTORED_PATH
from dray.server.http.endpoints import Endpoint
from dray.server.http.requests import ApiRequest, ApiResponse, build_json_response
from dray.server.ledger.reconciliation import audit_cached_ledger, list_held_devices, repair_ledger
from dray.server.ledger.restore_quarantine import RestoreQuarantine
from dray.server.watch.cache import WatchCache
from dray.store import Store
from dray.store.backups import back_up_store

LEDGER_PATH: Final = "/dray/ledger"
REPAIR_PATH: Final = "/dray/ledger/repair"
BACKUP_PATH: Final = "/dray/backup"
NODES_PATH: Final = f"{RESTORED_PATH}/nodes"
SETTLE_PATH: Final = f"{RESTORED_PATH}/settle"

REVISION_HEADER: Final = "dray-revision"
"""The header with the revision of a backup."""
_CHUNK_BYTES: Final = 1 << 20


class AdministrationEndpoints:
    """Answers requests of administrators about the ledger, backups and restores."""

    def __init__(
        self, store: Store, cache: WatchCache, quarantine: RestoreQuarantine, backup_directory: Path
    ) -> None:
        """`backup_directory` is private and has enough space for a copy of the store."""
        self._store = store
        self._cache = cache
        self._quarantine = quarantine
        self._backup_directory = backup_directory

    def build_endpoints(self) -> Mapping[tuple[str, str], Endpoint]:
        """The endpoints by method and path."""
        return {
            ("get", LEDGER_PATH): self._answer_report,
            ("post", REPAIR_PATH): self._answer_repair,
            ("get", BACKUP_PATH): self._answer_backup,
            ("get", RESTORED_PATH): self._answer_restored,
            ("get", NODES_PATH): self._answer_nodes,
            ("post", SETTLE_PATH): self._answer_settle,
        }

    async def _answer_report(self, request: ApiRequest) -> ApiResponse:
        query = request.call.query
        document = (await audit_cached_ledger(self._cache)).to_document()
        node = query.get("node", "")
        if node or query.get("entries") == "true":
            document["entries"] = list_held_devices(self._cache, node)
        return build_json_response(document)

    async def _answer_repair(self, request: ApiRequest) -> ApiResponse:
        return build_json_response((await repair_ledger(self._store, self._cache)).to_document())

    async def _answer_backup(self, request: ApiRequest) -> ApiResponse:
        folder = Path(tempfile.mkdtemp(prefix="backup-", dir=self._backup_directory))
        try:
            copy = folder / "copy"
            revision = await back_up_store(self._store, copy)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        headers = [(REVISION_HEADER, str(revision))]
        return ApiResponse(200, _stream_file(copy), "application/octet-stream", headers)

    async def _answer_restored(self, request: ApiRequest) -> ApiResponse:
        await self._cache.wait_until_fresh()
        return build_json_response(self._quarantine.build_summary())

    async def _answer_nodes(self, request: ApiRequest) -> ApiResponse:
        await self._cache.wait_until_fresh()
        return build_json_response(self._quarantine.build_node_summary())

    async def _answer_settle(self, request: ApiRequest) -> ApiResponse:
        await self._quarantine.settle(self._store)
        return build_json_response(self._quarantine.build_node_summary())


async def _stream_file(backup_file: Path) -> AsyncIterator[bytes]:
    """Stream a file in chunks, and delete it with its directory afterwards."""
    try:
        with backup_file.open("rb") as file:
            while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
                yield chunk
    finally:
        shutil.rmtree(backup_file.parent, ignore_errors=True)
