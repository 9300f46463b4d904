"""Two API servers on one etcd: one history for both, and one holder for each device."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.contract.api import Api, path, serving
from tests.contract.backends import numbers
from tests.contract.documents import allocation, claim, config, namespace, owner, pod, resource_slice

WATCH_LIST = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


@asynccontextmanager
async def _one(etcd: tuple[str, ...], prefix: bytes) -> AsyncIterator[Api]:
    from dray.store.etcd.store import EtcdStore

    store = await EtcdStore.open(etcd, prefix=prefix, timeout=20)
    try:
        async with serving(store) as api:
            yield api
    finally:
        await store.close()


@asynccontextmanager
async def _two(etcd: tuple[str, ...], prefix: bytes = b"") -> AsyncIterator[tuple[Api, Api]]:
    place = prefix or f"/two-{next(numbers)}/".encode()
    async with _one(etcd, place) as here, _one(etcd, place) as there:
        yield here, there


async def test_a_write_through_one_is_read_through_the_other_at_once(etcd: tuple[str, ...]) -> None:
    async with _two(etcd) as (here, there):
        for number in range(20):
            made = await here.create(config(f"c{number}"))
            assert await there.get(path("configmaps", f"c{number}")) == made
            changed = await there.patch(path("configmaps", f"c{number}"), {"data": {"n": str(number)}})
            assert await here.get(path("configmaps", f"c{number}")) == changed
        assert await here.get(path("configmaps")) == await there.get(path("configmaps"))


async def test_watchers_of_one_see_writes_through_the_other(etcd: tuple[str, ...]) -> None:
    async with _two(etcd) as (here, there), there.watch(path("resourceclaims"), **WATCH_LIST) as watch:
        assert (await watch.event())["type"] == "BOOKMARK"
        await here.create(claim("a"))
        await here.patch(path("resourceclaims", "a"), {"metadata": {"labels": {"x": "y"}}})
        await here.delete(path("resourceclaims", "a"))
        assert await watch.tell(3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_watch_continues_at_the_other_server(etcd: tuple[str, ...]) -> None:
    async with _two(etcd) as (here, there):
        await here.create(config("a"))
        async with here.watch(path("configmaps")) as watch:
            event = await watch.event()
        await here.create(config("b"))
        version = event["object"]["metadata"]["resourceVersion"]
        async with there.watch(path("configmaps"), resourceVersion=version) as watch:
            assert await watch.tell(1) == [("ADDED", "b")]


async def test_a_list_continues_at_the_other_server(etcd: tuple[str, ...]) -> None:
    async with _two(etcd) as (here, there):
        for number in range(5):
            await here.create(config(f"c{number}"))
        page = await here.get(path("configmaps"), limit=2)
        await there.delete(path("configmaps", "c3"))
        rest = await there.get(path("configmaps"), continue_=page["metadata"]["continue"])
        assert [item["metadata"]["name"] for item in rest["items"]] == ["c2", "c3", "c4"]
        assert rest["metadata"]["resourceVersion"] == page["metadata"]["resourceVersion"]


async def test_one_of_two_creates_wins(etcd: tuple[str, ...]) -> None:
    async with _two(etcd) as (here, there):
        for number in range(10):
            answers = await asyncio.gather(
                *(api.ask("POST", path("configmaps"), config(f"c{number}")) for api in (here, there))
            )
            assert sorted(response.code for response in answers) == [201, 409]


async def test_a_device_is_allocated_once_through_both_servers(etcd: tuple[str, ...]) -> None:
    async with _two(etcd) as (here, there):
        await here.create(resource_slice("s", devices=8))
        for number in range(16):
            await here.create(claim(f"c{number}"))
        for device in range(8):
            tries = [
                api.ask(
                    "PATCH",
                    path("resourceclaims", f"c{2 * device + side}", sub="status"),
                    {"status": {"allocation": allocation(f"gpu-{device}")}},
                    headers={"content-type": "application/merge-patch+json"},
                )
                for side, api in enumerate((here, there))
            ]
            answers = await asyncio.gather(*tries)
            assert sorted(response.code for response in answers) == [200, 409], [s.document for s in answers]
            (refused,) = (response for response in answers if response.code == 409)
            assert f"gpu-{device}" in refused.message


async def test_dependents_and_namespaces_are_collected_once(etcd: tuple[str, ...]) -> None:
    async with _two(etcd) as (here, there):
        await here.create(namespace("n"))
        parent = await here.create(pod("p", "n"))
        await there.create(claim("c", "n", ownerReferences=[owner(parent, controller=True)]))
        await there.delete(path("pods", "p", namespace="n"))
        await here.gone(path("resourceclaims", "c", namespace="n"))
        await there.create(config("m", "n"))
        await here.delete(path("namespaces", "n"))
        await there.gone(path("namespaces", "n"))
        assert await here.names(path("configmaps", namespace="n")) == []


async def test_a_server_that_starts_later_has_all_objects(etcd: tuple[str, ...]) -> None:
    place = b"/later/"
    async with _two(etcd, place) as (here, there):
        await here.create(resource_slice("s"))
        await here.create(claim("c"))
        where = path("resourceclaims", "c", sub="status")
        await there.patch(where, {"status": {"allocation": allocation()}})
        async with _one(etcd, place) as later:
            known = await here.get(path("resourceclaims", "c"))
            assert await later.get(path("resourceclaims", "c")) == known
