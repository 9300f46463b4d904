"""A server on a restored store: clients from before the restore relist."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dray.store import Store, open_store
from dray.store.backups import back_up_store, restore_store
from tests.contract.api import Api, path, serving
from tests.contract.documents import config

CONFIGS = path("configmaps")


@asynccontextmanager
async def stored(folder: Path, name: str) -> AsyncIterator[Store]:
    async with await open_store(str(folder / name)) as store:
        yield store


def version(document: dict) -> int:
    return int(document["metadata"]["resourceVersion"])


async def _first_life(api: Api, folder: Path) -> tuple[int, dict]:
    """Objects, a backup, and later writes; the last version that a client saw, and one object of then."""
    await api.create(config("kept"))
    await api.create(config("deleted"))
    await back_up_store(api.store, folder / "copy")
    await api.create(config("later"))
    changed = await api.patch(path("configmaps", "kept"), {"data": {"key": "changed later"}})
    await api.delete(path("configmaps", "deleted"))
    return version(await api.get(CONFIGS)), changed


async def test_clients_from_before_a_restore_relist_and_see_only_later_versions(tmp_path: Path) -> None:
    async with stored(tmp_path, "first.db") as store, serving(store) as api:
        seen, changed = await _first_life(api, tmp_path)
    await restore_store(tmp_path / "copy", str(tmp_path / "second.db"))
    async with stored(tmp_path, "second.db") as store, serving(store) as api:
        async with api.watch(CONFIGS, resourceVersion=seen) as watch:
            event = await watch.event()
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        again = await api.get(CONFIGS)
        assert {"kept", "deleted"} <= {item["metadata"]["name"] for item in again["items"]}
        assert "later" not in {item["metadata"]["name"] for item in again["items"]}
        assert min(map(version, [again, *again["items"]])) > seen, "newer than anything that anybody knows"
        refused = await api.ask("PUT", path("configmaps", "kept"), changed)
        assert refused.code == 409, "who changed it in a past that is not any more reads again"
