"""Objects that an older release stored without defaults: they are read, completed and updated."""

from __future__ import annotations

from typing import Any

from dray.api.json_text import write_json
from dray.store import Put, Store
from dray.store.memory import MemoryStore
from tests.contract.api import Api, path, serving
from tests.contract.documents import pod

SETS = "/apis/apps/v1/namespaces/default/statefulsets"
OLD = {"creationTimestamp": "2026-01-01T00:00:00Z", "generation": 3, "namespace": "default"}


def stateful_set(**more: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {**OLD, "name": "old", "uid": "set-uid"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template, **more},
    }


async def store_document(store: Store, key: str, document: dict[str, Any]) -> None:
    await store.txn([], [Put(key.encode(), write_json(document))])


async def test_a_workload_without_defaults_is_completed_when_the_server_starts() -> None:
    store = MemoryStore()
    await store_document(store, "/registry/apps/statefulsets/default/old", stateful_set())
    async with serving(store) as api:
        found = await api.get(f"{SETS}/old")
        assert found["spec"]["revisionHistoryLimit"] == 10
        assert found["spec"]["template"]["spec"]["restartPolicy"] == "Always"
        assert (found["metadata"]["generation"], found["metadata"]["uid"]) == (3, "set-uid")
    async with serving(store) as api:
        assert await api.get(f"{SETS}/old") == found


async def test_defaults_that_an_update_adds_are_no_change_of_the_pod() -> None:
    store = MemoryStore()
    old = pod("old")
    old["metadata"] = {**old["metadata"], **OLD, "uid": "pod-uid"}
    old["spec"]["tolerations"] = [{"operator": "Exists"}]
    old["spec"]["containers"][0]["ports"] = [{"containerPort": 80}]
    await store_document(store, "/registry/core/pods/default/old", old)
    async with serving(store) as api:
        await _label(api)
        found = await api.get(path("pods", "old"))
        assert found["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
        assert (found["metadata"]["generation"], found["metadata"]["labels"]) == (3, {"new": "label"})
        (entry,) = found["metadata"]["managedFields"]
        assert list(entry["fieldsV1"]) == ["f:metadata"], "the client set a label, not the defaults"


async def _label(api: Api) -> None:
    found = await api.get(path("pods", "old"))
    found["metadata"]["labels"] = {"new": "label"}
    await api.put(found, path("pods", "old"))
