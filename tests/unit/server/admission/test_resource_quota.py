"""Quotas: limits hold under concurrency, and the usage is always correct."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dray.server.admission.resource_quota import ResourceQuotaAdmission
from dray.server.http.errors import ApiStatusError
from tests.unit.server.registries import CLAIMS, CONFIGS, PODS, QUOTAS, World, claim, world

COUNT = "count/resourceclaims.resource.k8s.io"
DEVICES = "gpu.deviceclass.resource.k8s.io/devices"


@asynccontextmanager
async def limited(*, keeping: bool = True) -> AsyncIterator[World]:
    """A world with quotas that are recounted in the background, as in a server."""
    async with world(lambda cache: [ResourceQuotaAdmission(cache)]) as there:
        rule = there.rules[0]
        assert isinstance(rule, ResourceQuotaAdmission)
        task = asyncio.create_task(rule.run_recounts(there.store)) if keeping else None
        yield there
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def quota(name: str = "q", namespace: str = "default", **hard: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace, "labels": {"keep": "me"}},
        "spec": {"hard": hard, "novelty": [1]},
    }


def config(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


def pod(name: str, phase: str = "Running") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"phase": phase}}


async def refused(doing: Any) -> str:
    with pytest.raises(ApiStatusError) as failure:
        await doing
    assert failure.value.code == 403
    assert failure.value.reason == "Forbidden"
    return failure.value.message


async def status(there: World, name: str = "q") -> dict[str, Any]:
    """The status of a quota, once it has the usage."""
    for _ in range(200):
        await there.caught_up()
        held = there.cache.get(QUOTAS, "default", name)
        assert held is not None
        found: dict[str, Any] = held.document.get("status") or {}
        if found.get("hard") == held.document["spec"]["hard"]:
            return found
        await asyncio.sleep(0.005)
    raise AssertionError("nobody counted")


def test_an_exceeded_quota_is_refused_in_the_words_of_kubernetes():
    async def scenario() -> None:
        async with limited() as there:
            await there.put(quota(**{COUNT: "2"}))
            await there.claim("a")
            await there.claim("b")
            assert await refused(there.claim("c")) == (
                'resourceclaims.resource.k8s.io "c" is forbidden: exceeded quota: q, '
                f"requested: {COUNT}=1, used: {COUNT}=2, limited: {COUNT}=2; "
                "delete what is not needed, or raise spec.hard of resourcequota default/q"
            )
            assert await status(there) == {"hard": {COUNT: "2"}, "used": {COUNT: "2"}}
            await there.delete(CLAIMS, "default", "a")
            assert (await status(there))["used"] == {COUNT: "1"}
            await there.claim("c")

    asyncio.run(scenario())


def test_a_new_quota_counts_what_is_there_and_leaves_the_rest_of_its_document_alone():
    async def scenario() -> None:
        async with limited() as there:
            await there.claim("a")
            await there.put(config("x"))
            await there.put(quota(**{COUNT: "5", "configmaps": "9", "requests.cpu": "4"}))
            assert await status(there) == {
                "hard": {COUNT: "5", "configmaps": "9", "requests.cpu": "4"},
                "used": {COUNT: "1", "configmaps": "1"},
            }
            held = there.cache.get(QUOTAS, "default", "q")
            assert held is not None
            assert held.document["spec"]["novelty"] == [1]
            assert held.document["metadata"]["labels"] == {"keep": "me"}

    asyncio.run(scenario())


def test_new_limits_are_recounted():
    async def scenario() -> None:
        async with limited() as there:
            await there.put(quota(**{COUNT: "5"}))
            await there.claim("a")

            def more(document: dict[str, Any]) -> None:
                document["spec"]["hard"] = {COUNT: "1", DEVICES: "3"}

            await there.change(QUOTAS, "default", "q", more)
            assert await status(there) == {
                "hard": {COUNT: "1", DEVICES: "3"},
                "used": {COUNT: "1", DEVICES: "1"},
            }
            assert "exceeded quota" in await refused(there.claim("b"))

    asyncio.run(scenario())


def test_a_limit_holds_before_the_first_recount():
    async def scenario() -> None:
        async with limited(keeping=False) as there:
            await there.claim("a")
            await there.put(quota(**{COUNT: "1"}))
            assert f"used: {COUNT}=1" in await refused(there.claim("b"))

    asyncio.run(scenario())


@pytest.mark.req("K4816-077")
def test_a_claim_is_refused_when_any_alternative_exceeds_the_limit():
    async def scenario() -> None:
        async with limited() as there:
            await there.put(quota(**{DEVICES: "3"}))
            exact = {"allocationMode": "ExactCount"}
            alternatives = [
                {"name": "cheap", "deviceClassName": "other", "count": 1} | exact,
                {"name": "dear", "deviceClassName": "gpu", "count": 4} | exact,
            ]
            requests = [{"name": "r", "firstAvailable": alternatives}]
            assert f"requested: {DEVICES}=4" in await refused(there.put(claim("a", requests=requests)))
            alternatives[1]["count"] = 3
            await there.put(claim("a", requests=requests))
            assert (await status(there))["used"] == {DEVICES: "3"}
            everything = [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]
            assert f"requested: {DEVICES}=32" in await refused(there.put(claim("b", requests=everything)))

    asyncio.run(scenario())


def test_templates_count_as_objects_and_not_as_devices():
    async def scenario() -> None:
        async with limited() as there:
            await there.put(quota(**{DEVICES: "0", "count/resourceclaimtemplates.resource.k8s.io": "1"}))
            spec = {"spec": claim("x")["spec"]}
            template = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "spec": spec}
            await there.put(template | {"metadata": {"name": "t", "namespace": "default"}})
            assert "count/resourceclaimtemplates.resource.k8s.io=1" in await refused(
                there.put(template | {"metadata": {"name": "u", "namespace": "default"}})
            )
            assert f"requested: {DEVICES}=1" in await refused(there.claim("made-from-it"))

    asyncio.run(scenario())


def test_finished_pods_release_quota_and_restarted_pods_are_charged():
    async def scenario() -> None:
        async with limited() as there:
            await there.put(quota(pods="1"))
            await there.put(pod("a"))
            assert "exceeded quota: q, requested: pods=1" in await refused(there.put(pod("b")))
            await there.put(pod("a", "Succeeded"))
            await there.put(pod("b"))
            assert "exceeded quota" in await refused(there.put(pod("a", "Running")))
            assert (await status(there))["used"] == {"pods": "1"}
            await there.delete(PODS, "default", "b")
            assert (await status(there))["used"] == {"pods": "0"}

    asyncio.run(scenario())


def test_all_quotas_of_the_namespace_apply_and_no_others():
    async def scenario() -> None:
        async with limited() as there:
            await there.put(quota("one", **{COUNT: "5"}))
            await there.put(quota("two", **{COUNT: "1"}))
            await there.put(quota("far", "elsewhere", **{COUNT: "0"}))
            await there.claim("a")
            assert "exceeded quota: two" in await refused(there.claim("b"))
            assert (await status(there, "one"))["used"] == {COUNT: "1"}
            await there.delete(QUOTAS, "default", "two")
            await there.claim("b")

    asyncio.run(scenario())


def test_names_and_scopes_that_limit_nothing_are_warned_about():
    async def scenario() -> None:
        async with limited() as there:
            written = await there.put(quota(**{"requests.cpu": "1", COUNT: "1"}))
            assert [text.partition(";")[0] for text in written.warnings] == [
                'spec.hard["requests.cpu"]: is not counted and limits nothing'
            ]
            scoped = quota("scoped", pods="0")
            scoped["spec"]["scopes"] = ["BestEffort"]
            written = await there.put(scoped)
            assert len(written.warnings) == 1
            await there.put(pod("a"))

    asyncio.run(scenario())


def test_concurrent_creates_never_exceed_the_limit():
    async def scenario() -> None:
        async with limited() as there:
            await there.put(quota(configmaps="7"))
            outcomes = await asyncio.gather(
                *(there.put(config(f"c{i}")) for i in range(32)), return_exceptions=True
            )
            assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) == 7
            assert (await status(there))["used"] == {"configmaps": "7"}
            await asyncio.gather(
                *(there.delete(CONFIGS, "default", held.name) for held in there.cache.list_objects(CONFIGS))
            )
            assert (await status(there))["used"] == {"configmaps": "0"}

    asyncio.run(scenario())


def test_a_quota_created_concurrently_counts_everything():
    """Creates that were reviewed before the quota existed are reviewed again when they commit after it."""

    async def scenario() -> None:
        for limit in range(4):
            async with limited() as there:
                steps = [there.put(config(f"c{i}")) for i in range(8)]
                steps.insert(4, there.put(quota(configmaps=str(limit))))
                await asyncio.gather(*steps, return_exceptions=True)
                used = (await status(there))["used"]["configmaps"]
                assert int(used) == len(there.cache.list_objects(CONFIGS))
                if there.cache.list_objects(CONFIGS):
                    await there.delete(CONFIGS, "default", there.cache.list_objects(CONFIGS)[0].name)
                    used = (await status(there))["used"]["configmaps"]
                    assert int(used) == len(there.cache.list_objects(CONFIGS))

    asyncio.run(scenario())


def test_namespaces_without_quotas_have_no_state() -> None:
    async def run() -> None:
        async with limited(keeping=False) as there:
            rule = there.rules[0]
            assert isinstance(rule, ResourceQuotaAdmission)
            await there.put(quota(namespace="short"))
            await there.caught_up()
            assert list(rule._quota_keys) == ["short"]
            await there.delete(QUOTAS, "short", "q")
            await there.caught_up()
            assert not rule._quota_keys

    asyncio.run(run())
