"""Every state that claims had, read from etcd: the API server keeps too little history for it.

The API servers of these campaigns store JSON and never compact, so that etcd has each revision.
"""

from __future__ import annotations

from contextlib import aclosing

from dray.api.json_text import read_json
from dray.store.etcd.store import EtcdStore
from tests.faults.ledger.checker import Judge
from tests.kubernetes.control_plane import ApiServerOptions

PREFIX = b"/registry/resourceclaims/"
KEEP_HISTORY = ApiServerOptions(
    flags=("--storage-media-type=application/json", "--etcd-compaction-interval=0")
)


async def judge_history(endpoint: str) -> Judge:
    """Go through all revisions up to now."""
    judge = Judge()
    async with await EtcdStore.open([endpoint], prefix=PREFIX, timeout=30) as store:
        last = await store.get_revision()
        async with aclosing(store.watch(b"", 0, bookmarks=0.1)) as batches:
            async for batch in batches:
                for event in batch.events:
                    if event.entry is not None:
                        judge.claim("MODIFIED", read_json(event.entry.value))
                    elif event.previous is not None:
                        judge.claim("DELETED", read_json(event.previous.value))
                if batch.revision >= last:
                    break
    return judge
