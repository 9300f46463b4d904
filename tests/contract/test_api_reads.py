"""Get and list: selectors, pages of one revision, and freshness."""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.api import Api, path, serving
from tests.contract.documents import claim, config, node, pod, resource_slice
from tests.contract.shapes import differences
from tests.unit.server.samples import sample

CONFIGS = path("configmaps")


async def _some(api: Api, count: int = 7) -> list[str]:
    for number in range(count):
        colour = "red" if number % 2 else "blue"
        await api.create(config(f"c{number}", labels={"colour": colour, "number": str(number)}))
    return [f"c{number}" for number in range(count)]


async def test_what_was_written_is_read_at_once() -> None:
    async with serving() as api:
        made = await api.create(config("a"))
        assert await api.get(path("configmaps", "a")) == made
        assert await api.get(path("configmaps", "a"), resourceVersion="0") == made
        listed = await api.get(CONFIGS)
        assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
        assert listed["items"] == [made]
        assert int(listed["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])


async def test_lists_are_scoped_by_namespace() -> None:
    async with serving() as api:
        await api.create(claim("a"))
        await api.create(claim("b", "kube-system"))
        assert await api.names(path("resourceclaims")) == ["a"]
        assert await api.names(path("resourceclaims", namespace="kube-system")) == ["b"]
        assert await api.names(path("resourceclaims", namespace="")) == ["a", "b"]
        assert await api.names(path("resourceclaims", namespace="nowhere")) == []


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"labelSelector": "colour=red"}, [1, 3, 5]),
        ({"labelSelector": "colour!=red"}, [0, 2, 4, 6]),
        ({"labelSelector": "colour in (blue,green),number notin (0, 2)"}, [4, 6]),
        ({"labelSelector": "!colour"}, []),
        ({"labelSelector": "number>4"}, [5, 6]),
        ({"fieldSelector": "metadata.name=c3"}, [3]),
        ({"fieldSelector": "metadata.name!=c3", "labelSelector": "colour=red"}, [1, 5]),
        ({"fieldSelector": "metadata.namespace=kube-system"}, []),
        ({"fieldSelector": "metadata.name=c3,metadata.namespace=default"}, [3]),
    ],
    ids=str,
)
async def test_selectors_filter_lists(query: dict[str, str], found: list[int]) -> None:
    async with serving() as api:
        await _some(api)
        assert await api.names(CONFIGS, **query) == [f"c{number}" for number in found]


async def test_kinds_have_their_own_selectable_fields() -> None:
    async with serving() as api:
        await api.create(resource_slice("s1", "node-a"))
        await api.create(resource_slice("s2", "node-b"))
        slices = path("resourceslices")
        assert await api.names(slices, fieldSelector="spec.nodeName=node-b") == ["s2"]
        assert await api.names(slices, fieldSelector="spec.driver=gpu.example.com") == ["s1", "s2"]
        assert await api.names(slices, fieldSelector="spec.driver=other.example.com") == []
        for version in ("v1beta1", "v1beta2"):
            old = path("resourceslices", version=version)
            assert await api.names(old, fieldSelector="spec.nodeName=node-a") == ["s1"]
        await api.create(pod("p"))
        pods, ended = path("pods"), "status.phase!=Succeeded,status.phase!=Failed"
        assert await api.names(pods, fieldSelector=ended) == ["p"]
        await api.patch(path("pods", "p", sub="status"), {"status": {"phase": "Succeeded"}})
        assert await api.names(pods, fieldSelector=ended) == []
        assert await api.names(pods, fieldSelector="spec.nodeName=") == ["p"]
        await api.create(node("node-a"))
        assert await api.names(path("nodes"), fieldSelector="spec.unschedulable!=true") == ["node-a"]


async def test_all_pages_of_a_list_show_one_revision() -> None:
    async with serving() as api:
        names = await _some(api)
        page = await api.get(CONFIGS, limit=3)
        assert page["metadata"]["remainingItemCount"] == 4
        await api.delete(path("configmaps", "c4"))
        await api.create(config("c3-new"))
        await api.patch(path("configmaps", "c5"), {"data": {"key": "changed"}})
        found = list(page["items"])
        moments = {page["metadata"]["resourceVersion"]}
        while page["metadata"].get("continue"):
            page = await api.get(CONFIGS, limit=3, continue_=page["metadata"]["continue"])
            moments.add(page["metadata"]["resourceVersion"])
            found += page["items"]
        assert [item["metadata"]["name"] for item in found] == names
        assert len(moments) == 1
        assert found[5]["data"] == {"key": "value"}
        assert "c3-new" in await api.names(CONFIGS)


async def test_pages_are_consistent_under_concurrent_writes() -> None:
    async with serving() as api:
        await _some(api, 20)
        stop = asyncio.Event()

        async def write(number: int) -> None:
            turn = 0
            while not stop.is_set():
                name = f"w{number}-{turn % 5}"
                if (await api.ask("POST", CONFIGS, config(name))).code != 201:
                    await api.ask("DELETE", path("configmaps", name))
                turn += 1
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            for number in range(4):
                tasks.create_task(write(number))
            for _ in range(10):
                whole = await api.get(CONFIGS)
                moment = whole["metadata"]["resourceVersion"]
                found = await _in_pages(api, moment)
                assert found == whole["items"]
            stop.set()


async def _in_pages(api: Api, moment: str) -> list[object]:
    page = await api.get(CONFIGS, limit=3, resourceVersion=moment, resourceVersionMatch="Exact")
    found = list(page["items"])
    while page["metadata"].get("continue"):
        page = await api.get(CONFIGS, limit=3, continue_=page["metadata"]["continue"])
        assert page["metadata"]["resourceVersion"] == moment
        found += page["items"]
    return found


async def test_pages_with_selectors_have_no_remaining_count() -> None:
    async with serving() as api:
        await _some(api)
        page = await api.get(CONFIGS, limit=2, labelSelector="colour=blue")
        assert [item["metadata"]["name"] for item in page["items"]] == ["c0", "c2"]
        assert "remainingItemCount" not in page["metadata"]
        token = page["metadata"]["continue"]
        rest = await api.get(CONFIGS, limit=2, labelSelector="colour=blue", continue_=token)
        assert [item["metadata"]["name"] for item in rest["items"]] == ["c4", "c6"]
        assert "continue" not in rest["metadata"]


async def test_a_first_page_has_the_form_of_a_recorded_one(pytestconfig: pytest.Config) -> None:
    recorded = sample(pytestconfig, "list_limit1_meta.json")
    async with serving() as api:
        for name in ("a", "b", "c"):
            await api.create(pod(name))
        page = await api.get(path("pods"), limit=1)
    assert differences({**page, "items": len(page["items"])}, recorded) == []
    assert page["metadata"]["remainingItemCount"] == recorded["metadata"]["remainingItemCount"]


async def test_a_page_of_a_compacted_revision_is_gone() -> None:
    async with serving() as api:
        await _some(api)
        page = await api.get(CONFIGS, limit=2)
        await api.create(config("later"))
        await api.store.compact(await api.store.get_revision())
        response = await api.ask("GET", CONFIGS, limit=2, continue_=page["metadata"]["continue"])
        assert (response.code, response.reason) == (410, "Expired")
        past = await api.ask("GET", CONFIGS, resourceVersion="3", resourceVersionMatch="Exact")
        assert (past.code, past.reason) == (410, "Expired")


async def test_a_list_at_an_exact_revision() -> None:
    async with serving() as api:
        made = await api.create(config("a"))
        moment = made["metadata"]["resourceVersion"]
        await api.create(config("b"))
        await api.delete(path("configmaps", "a"))
        listed = await api.get(CONFIGS, resourceVersion=moment, resourceVersionMatch="Exact")
        assert listed["items"] == [made]
        assert listed["metadata"]["resourceVersion"] == moment
        assert await api.names(CONFIGS) == ["b"]  # the others may show any moment since, so ask this first
        assert await api.names(CONFIGS, resourceVersion=moment, resourceVersionMatch="NotOlderThan") == ["b"]
        assert await api.names(CONFIGS, resourceVersion=moment) == ["b"]
        assert await api.names(CONFIGS, resourceVersion="0") == ["b"]


async def test_a_revision_that_is_not_reached_is_refused(pytestconfig: pytest.Config) -> None:
    recorded = sample(pytestconfig, "err_504_toolarge.json")
    async with serving() as api:
        questions: list[dict] = [{}, {"resourceVersionMatch": "Exact"}]
        for asked in questions:
            response = await api.ask("GET", CONFIGS, resourceVersion="99999999", **asked)
            assert response.code == 504
            assert differences(response.document, recorded) == []
            assert response.message.startswith("Timeout: Too large resource version: 99999999, current: ")


async def test_a_read_waits_for_a_later_revision() -> None:
    async with serving() as api:
        now = int((await api.get(CONFIGS))["metadata"]["resourceVersion"])
        reading = asyncio.create_task(api.names(CONFIGS, resourceVersion=str(now + 1)))
        await asyncio.sleep(0.02)
        await api.create(config("a"))
        assert await reading == ["a"]


async def test_a_status_can_be_read_by_itself() -> None:
    async with serving() as api:
        made = await api.create(claim("a"))
        assert await api.get(path("resourceclaims", "a", sub="status")) == made


async def test_trailing_slashes_and_missing_content_types_are_accepted() -> None:
    async with serving() as api:
        assert (await api.get("/version/"))["major"] == (await api.get("/version"))["major"]
        assert (await api.get("/apis/"))["kind"] == "APIGroupList"
        assert (await api.get("/api/"))["kind"] == "APIVersions"
        response = await api.ask("POST", CONFIGS, config("a"), headers={"content-type": ""})
        assert response.code == 201


async def test_health_is_text() -> None:
    async with serving() as api:
        for where in ("/healthz", "/livez", "/readyz", "/readyz/ping"):
            response = await api.ask("GET", where)
            assert (response.code, response.document) == (200, "ok")
        assert "[+]ping ok" in (await api.ask("GET", "/readyz", verbose="")).document


async def test_services_are_selected_by_address_and_type() -> None:
    """Kubelets list services that have an address."""
    service = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}], "clusterIP": "None"}}
    async with serving() as api:
        await api.create({**service, "metadata": {"name": "headless", "namespace": "default"}})
        for selector, names in (("spec.clusterIP=None", ["headless"]), ("spec.clusterIP!=None", [])):
            assert await api.names(path("services"), fieldSelector=selector) == names
        assert await api.names(path("services"), fieldSelector="spec.type=ClusterIP") == ["headless"]


KUBELET_READS = (
    ("/api/v1/nodes", "metadata.name=n"),
    ("/api/v1/pods", "spec.nodeName=n"),
    ("/api/v1/services", "spec.clusterIP!=None"),
    ("/apis/certificates.k8s.io/v1/podcertificaterequests", "spec.nodeName=n"),
    ("/apis/node.k8s.io/v1/runtimeclasses", ""),
    ("/apis/storage.k8s.io/v1/csidrivers", ""),
)


@pytest.mark.parametrize(("where", "selector"), KUBELET_READS)
async def test_a_kubelet_lists_what_it_watches(where: str, selector: str) -> None:
    async with serving() as api:
        kubelet = api.as_user("system:node:n", "system:nodes")
        query = {"fieldSelector": selector} if selector else {}
        assert (await kubelet.get(where, **query))["items"] == []
        if selector.endswith("=n"):
            others = await kubelet.ask("GET", where, fieldSelector=selector[:-1] + "other")
            assert others.code == 403
