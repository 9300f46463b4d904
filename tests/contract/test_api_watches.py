"""Watches: how they start, which events they send, and how they end."""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.api import path, serving
from tests.contract.documents import claim, config, device_class, old_claim, pod, resource_slice

CONFIGS = path("configmaps")
WATCH_LIST = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}
END = "k8s.io/initial-events-end"


async def test_a_watch_without_a_revision_starts_with_the_current_state() -> None:
    async with serving() as api:
        await api.create(config("a"))
        async with api.watch(CONFIGS) as watch:
            assert watch.code == 200
            assert await watch.tell(1) == [("ADDED", "a")]
            await api.create(config("b"))
            await api.patch(path("configmaps", "a"), {"data": {"x": "y"}})
            await api.delete(path("configmaps", "b"))
            assert await watch.tell(3) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]


async def test_a_watch_continues_after_a_revision() -> None:
    async with serving() as api:
        made = await api.create(config("a"))
        await api.create(config("b"))
        await api.delete(path("configmaps", "a"))
        async with api.watch(CONFIGS, resourceVersion=made["metadata"]["resourceVersion"]) as watch:
            assert await watch.tell(2) == [("ADDED", "b"), ("DELETED", "a")]


async def test_a_deleted_event_has_the_last_state_and_the_revision_of_the_deletion() -> None:
    async with serving() as api:
        made = await api.create(config("a"))
        listed = await api.get(CONFIGS)
        async with api.watch(CONFIGS, resourceVersion=listed["metadata"]["resourceVersion"]) as watch:
            await api.delete(path("configmaps", "a"))
            event = await watch.event()
        assert event["type"] == "DELETED"
        assert event["object"]["data"] == made["data"]
        assert int(event["object"]["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


async def test_a_watchlist_marks_the_end_of_initial_events() -> None:
    async with serving() as api:
        await api.create(claim("a"))
        await api.create(claim("b"))
        async with api.watch(path("resourceclaims", namespace=""), **WATCH_LIST) as watch:
            assert await watch.tell(2) == [("ADDED", "a"), ("ADDED", "b")]
            mark = await watch.event()
            assert mark["type"] == "BOOKMARK"
            assert (mark["object"]["kind"], mark["object"]["apiVersion"]) == (
                "ResourceClaim",
                "resource.k8s.io/v1",
            )
            assert mark["object"]["metadata"]["annotations"] == {END: "true"}
            revision = mark["object"]["metadata"]["resourceVersion"]
            listed = await api.get(path("resourceclaims"))
            assert revision == listed["metadata"]["resourceVersion"]
            await api.create(claim("c"))
            assert await watch.tell(1) == [("ADDED", "c")]


async def test_a_watchlist_may_start_not_older_than_a_revision() -> None:
    async with serving() as api:
        made = await api.create(config("a"))
        version = made["metadata"]["resourceVersion"]
        async with api.watch(CONFIGS, resourceVersion=version, **WATCH_LIST) as watch:
            assert await watch.tell(1) == [("ADDED", "a")]
            assert (await watch.event())["object"]["metadata"]["annotations"] == {END: "true"}
        without = {**WATCH_LIST, "sendInitialEvents": "false"}
        async with api.watch(CONFIGS, resourceVersion=version, **without) as watch:
            await api.create(config("b"))
            assert await watch.tell(1) == [("ADDED", "b")]


async def test_an_object_that_starts_to_match_is_added_and_one_that_stops_is_deleted() -> None:
    async with serving() as api:
        await api.create(config("a"))
        async with api.watch(CONFIGS, labelSelector="colour=red") as watch:
            where = path("configmaps", "a")
            await api.patch(where, {"metadata": {"labels": {"colour": "red"}}})
            await api.patch(where, {"data": {"x": "1"}})
            await api.patch(where, {"metadata": {"labels": {"colour": "blue"}}})
            await api.patch(where, {"data": {"x": "2"}})
            await api.patch(where, {"metadata": {"labels": {"colour": "red"}}})
            await api.delete(where)
            assert [type_ for type_, _ in await watch.tell(5)] == [
                "ADDED",
                "MODIFIED",
                "DELETED",
                "ADDED",
                "DELETED",
            ]


async def test_a_watch_with_a_field_selector_follows_the_field() -> None:
    async with serving() as api:
        await api.create(pod("p"))
        query = "spec.nodeName=node-a"
        async with api.watch(path("pods", namespace=""), fieldSelector=query) as watch:
            binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "node-a"}}
            await api.create(binding, path("pods", "p", sub="binding"))
            assert await watch.tell(1) == [("ADDED", "p")]
        async with api.watch(path("pods"), fieldSelector="metadata.name=p") as watch:
            assert await watch.tell(1) == [("ADDED", "p")]
            await api.create(pod("q"))
            await api.patch(path("pods", "p"), {"metadata": {"labels": {"a": "b"}}})
            assert await watch.tell(1) == [("MODIFIED", "p")]


async def test_a_watch_does_not_see_other_kinds_and_namespaces() -> None:
    async with serving() as api, api.watch(path("resourceclaims")) as watch:
        await api.create(config("no"))
        await api.create(claim("no", "kube-system"))
        await api.create(device_class("no.example.com"))
        await api.create(claim("yes"))
        assert await watch.tell(1) == [("ADDED", "yes")]


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_a_watch_uses_the_requested_version(version: str) -> None:
    async with serving() as api:
        await api.create(claim("a"))
        async with api.watch(path("resourceclaims", version=version), **WATCH_LIST) as watch:
            first, mark = await watch.event(), await watch.event()
            await api.create(old_claim("b", version), path("resourceclaims", version=version))
            second = await watch.event()
        for event in (first, mark, second):
            assert event["object"]["apiVersion"] == f"resource.k8s.io/{version}"
        asked = second["object"]["spec"]["devices"]["requests"][0]
        assert (asked if version == "v1beta1" else asked["exactly"])["count"] == 2


async def test_idle_watches_get_bookmarks_and_end_at_their_timeout() -> None:
    async with serving() as api:
        await api.create(config("a"))
        query = {"timeoutSeconds": "1", "allowWatchBookmarks": "true"}
        async with api.watch(path("resourceclaims"), **query) as watch:
            events = await watch.everything()
        assert events
        assert {event["type"] for event in events} == {"BOOKMARK"}
        now = (await api.get(CONFIGS))["metadata"]["resourceVersion"]
        assert events[-1]["object"]["metadata"]["resourceVersion"] == now
        async with api.watch(path("resourceclaims"), timeoutSeconds="1") as watch:
            assert await watch.everything() == []


async def test_a_busy_watch_ends_at_its_timeout() -> None:
    async with serving() as api, api.watch(CONFIGS, timeoutSeconds="1") as watch:
        ended = asyncio.create_task(watch.everything())
        for number in range(5):
            await api.create(config(f"c{number}"))
        assert len(await ended) == 5


async def test_a_compacted_revision_cannot_be_watched() -> None:
    async with serving() as api:
        made = await api.create(config("a"))
        await api.create(config("b"))
        await api.store.compact(await api.store.get_revision())
        async with serving(api.store) as fresh:  # the old one still remembers by itself
            async with fresh.watch(CONFIGS, resourceVersion=made["metadata"]["resourceVersion"]) as watch:
                gone = await watch.event()
            assert gone["type"] == "ERROR"
            assert (gone["object"]["code"], gone["object"]["reason"]) == (410, "Expired")


async def test_many_watchers_see_the_same_events() -> None:
    async with serving() as api:
        slices = path("resourceslices")

        async def read_events(number: int) -> list[tuple[str, str]]:
            async with api.watch(slices, resourceVersion="0") as watch:
                ready.release()
                return await watch.tell(20)

        ready = asyncio.Semaphore(0)
        watchers = [asyncio.create_task(read_events(number)) for number in range(20)]
        for _ in watchers:
            await ready.acquire()
        for number in range(20):
            await api.create(resource_slice(f"s{number}", f"node-{number}"))
        answers = await asyncio.gather(*watchers)
        assert all(answer == answers[0] for answer in answers)


async def test_the_deprecated_path_of_watches_works() -> None:
    async with serving() as api:
        await api.create(config("a"))
        request = "/api/v1/watch/namespaces/default/configmaps"
        async with api.watch(request) as watch:
            assert await watch.tell(1) == [("ADDED", "a")]


@pytest.mark.parametrize("seconds", ["-1", "soon", "9" * 30])
async def test_an_invalid_timeout_is_refused_before_the_first_event(seconds: str) -> None:
    async with serving() as api:
        await api.create(config("there"))
        response = await api.ask("GET", CONFIGS, watch="true", timeoutSeconds=seconds)
        assert response.code == 400
        assert response.message == f"timeoutSeconds must be a whole number, not `{seconds}`"
