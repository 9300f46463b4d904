"""The ledger as pages of the server, for administrators and `dray doctor ledger`.

`GET /dray/ledger` compares ledger and claims and answers a report; with `?entries=true` it also lists who
holds which device, with `?node=NAME` only what is in the hands of that node. `POST /dray/ledger/repair`
writes anew what differs. Who may do so is decided by rights on these paths, like on any other path that is
no resource.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dray.server.http.endpoints import Endpoint
from dray.server.http.requests import ApiRequest, ApiResponse, build_json_response
from dray.server.ledger.reconciliation import audit_cached_ledger, list_held_devices, repair_ledger
from dray.server.watch.cache import WatchCache
from dray.store import Store

LEDGER_PATH: Final = "/dray/ledger"
REPAIR_PATH: Final = "/dray/ledger/repair"


class LedgerEndpoints:
    """Answers for the ledger."""

    def __init__(self, store: Store, cache: WatchCache) -> None:
        self._store = store
        self._cache = cache

    def build_endpoints(self) -> Mapping[tuple[str, str], Endpoint]:
        """Every page by method and path."""
        return {("get", LEDGER_PATH): self._answer_report, ("post", REPAIR_PATH): self._answer_repair}

    async def _answer_report(self, request: ApiRequest) -> ApiResponse:
        query = request.call.query
        document = (await audit_cached_ledger(self._cache)).to_document()
        node = query.get("node", "")
        if node or query.get("entries") == "true":
            document["entries"] = list_held_devices(self._cache, node)
        return build_json_response(document)

    async def _answer_repair(self, request: ApiRequest) -> ApiResponse:
        return build_json_response((await repair_ledger(self._store, self._cache)).to_document())
