"""Watches and informers against a real server, over both transports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, asynccontextmanager

import pytest

from dray.api.resource import ResourceClaim
from dray.client.client import DeleteOptions
from dray.client.errors import ResourceExpiredError
from dray.client.informers.informer import Informer, InformerOptions
from dray.client.informers.watch_stream import WatchRequest, watch_in_batches
from dray.client.object_refs import ObjectSelector, get_kind
from dray.client.patches import MergePatch
from dray.client.response_decoding import Bookmark
from dray.store import open_store
from tests.contract.servers import reaching, way
from tests.contract.test_client_verbs import claim, pod

__all__ = ["way"]

CLAIM, POD = get_kind("ResourceClaim.resource.k8s.io"), get_kind("Pod")


@asynccontextmanager
async def informed(client, kind, **more):
    """A running informer that has seen everything once, and what its listeners were told."""
    informer = Informer(client, kind, **more)
    told: list[tuple[str, str]] = []

    def note(what: str) -> Callable[..., None]:
        def called(*objects) -> None:
            told.append((what, _name(objects[-1])))

        return called

    informer.listen(note("added"), note("updated"), note("deleted"))
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(informer.run())
        await informer.wait_for_sync()
        try:
            yield informer, told
        finally:
            run.cancel()


def _name(obj) -> str:
    return obj["metadata"]["name"] if isinstance(obj, dict) else obj.metadata.name


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("initial_events", [False, True])
async def test_an_informer_follows_what_happens(way, tmp_path, initial_events):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        before = await client.create(claim("before"))
        ways = InformerOptions(send_initial_events=initial_events)
        async with informed(client, ResourceClaim, options=ways) as (informer, told):
            assert informer.list_all() == [before]
            made = await client.create(claim("a"))
            changed = await client.patch(
                ResourceClaim, "a", MergePatch({"metadata": {"labels": {"x": "y"}}}), "default"
            )
            await until(lambda: informer.get("a", "default") == changed)
            await client.delete(ResourceClaim, "a", "default")
            await until(lambda: informer.get("a", "default") is None)
            assert made != changed
            assert told == [("added", "before"), ("added", "a"), ("updated", "a"), ("deleted", "a")]
            assert informer.stats.lists == (0 if initial_events else 1)
            assert informer.stats.failures == 0


async def test_an_informer_sees_what_was_chosen(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
        for name in ("p", "q"):
            await client.create(pod(name))
        async with informed(client, POD, namespace="default", field_selector="spec.nodeName=n") as (
            informer,
            told,
        ):
            assert informer.list_all() == []
            await client.bind("p", "default", "n")
            await until(lambda: len(informer) == 1)
            await client.delete(POD, "p", "default", DeleteOptions(grace_seconds=0))
            await until(lambda: len(informer) == 0)
            assert [name for _, name in told] == ["p"] * len(told)
            assert told[0][0] == "added"
            assert told[-1][0] == "deleted"


async def test_an_informer_pages_through_a_long_list(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        for number in range(12):
            await client.create(claim(f"c{number}"))
        async with informed(client, ResourceClaim, options=InformerOptions(page_size=5)) as (informer, _):
            assert len(informer) == 12


async def test_open_objects_are_kept_whole(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        async with informed(client, POD) as (informer, _):
            made = await client.create(pod("p"))
            await until(lambda: informer.get("p", "default") is not None)
            assert informer.get("p", "default") == made
            assert made["spec"]["subdomain"] == "kept"


async def test_a_watch_ends_when_its_time_is_up(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        here = (await client.list(ResourceClaim)).resource_version
        await client.create(claim("a"))
        await client.create(claim("b", x="y"))
        span = WatchRequest(
            CLAIM, selector=ObjectSelector(labels="x=y"), resource_version=here, timeout_seconds=1
        )
        async with aclosing(watch_in_batches(client, span)) as batches:
            seen = [event async for batch in batches for event in batch]
        events = [event for event in seen if not isinstance(event, Bookmark)]
        assert [(event.type, event.object.metadata.name) for event in events] == [("ADDED", "b")]


async def test_a_version_that_expired_is_reported(way, tmp_path):
    address = str(tmp_path / "store.db")
    async with reaching(way, tmp_path, store=address) as reach:
        client = reach.client()
        for number in range(5):
            await client.create(claim(f"c{number}"))
    async with await open_store(address) as store:
        await store.compact(await store.get_revision())
    async with reaching(way, tmp_path, store=address) as reach:
        with pytest.raises(ResourceExpiredError):
            async with aclosing(
                watch_in_batches(reach.client(), WatchRequest(CLAIM, resource_version="2"))
            ) as batches:
                await anext(batches)


async def test_an_informer_outlives_its_server(tmp_path):
    address = str(tmp_path / "store.db")
    quick = InformerOptions(initial_backoff=0.02, max_backoff=0.1)
    async with reaching("http", tmp_path, store=address) as reach:
        port = int(reach.server.url.rpartition(":")[2])
        client = reach.client()
        await client.create(claim("a"))
        informer = Informer(client, ResourceClaim, options=quick)
        told: list[str] = []
        informer.listen(
            added=lambda new: told.append(f"+{new.metadata.name}"),
            deleted=lambda old: told.append(f"-{old.metadata.name}"),
        )
        run = asyncio.create_task(informer.run())
        await informer.wait_for_sync()
    async with reaching("in-process", tmp_path, store=address) as reach:  # at another port
        await reach.client().create(claim("b"))
        await reach.client().delete(ResourceClaim, "a", "default")
    await asyncio.sleep(0.05)
    async with reaching("http", tmp_path, port=port, store=address):
        await until(lambda: informer.get("b", "default") is not None and len(informer) == 1)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await client.close()
    assert told == ["+a", "+b", "-a"]
    assert informer.stats.lists == 1
    assert informer.stats.failures >= 1
