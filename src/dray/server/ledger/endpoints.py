"""The ledger as pages of the server, for administrators and `dray doctor ledger`.

`GET /dray/ledger` compares ledger and claims and answers a report; with `?entries=true` it also lists who
holds which device, with `?node=NAME` only what is in the hands of that node. `POST /dray/ledger/repair`
writes anew what differs. Who may do so is decided by rights on these paths, like on any other path that is
no resource.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dray.server.http.endpoints import Page
from dray.server.http.requests import Answer, Request, json_answer
from dray.server.ledger.reconciliation import audit, entries, repair
from dray.server.watch.cache import Cache
from dray.store import Store

LEDGER: Final = "/dray/ledger"
REPAIR: Final = "/dray/ledger/repair"


class LedgerPages:
    """Answers for the ledger."""

    def __init__(self, store: Store, cache: Cache) -> None:
        self._store = store
        self._cache = cache

    def pages(self) -> Mapping[tuple[str, str], Page]:
        """Every page by method and path."""
        return {("get", LEDGER): self._report, ("post", REPAIR): self._repair}

    async def _report(self, request: Request) -> Answer:
        query = request.call.query
        document = (await audit(self._cache)).document()
        node = query.get("node", "")
        if node or query.get("entries") == "true":
            document["entries"] = entries(self._cache, node)
        return json_answer(document)

    async def _repair(self, request: Request) -> Answer:
        return json_answer((await repair(self._store, self._cache)).document())
