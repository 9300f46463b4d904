"""Malformed objects and bodies that once broke the server; each gets a response, and the server continues."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dray.store.errors import StoreError
from dray.store.memory import MemoryStore
from tests.contract.api import SOON, Api, path, serving
from tests.contract.documents import config, namespace, pod

NAMESPACES = "/api/v1/namespaces"
LEAVING = b"/registry/core/namespaces/leaving"

LONG = 10**18
"""More seconds than any calendar has."""


class Moody(MemoryStore):
    """A store that does not say where it stands a few times, once the namespace is marked."""

    moods = 0

    async def get_revision(self) -> int:
        found = await self.get(LEAVING)
        if self.moods and found is not None and b"deletionTimestamp" in found.value:
            self.moods -= 1
            raise StoreError("the store is in a mood")
        return await super().get_revision()


async def on_node(api: Api, name: str, **spec: Any) -> dict[str, Any]:
    """A pod that is bound to a node."""
    document = pod(name)
    return dict(await api.create({**document, "spec": {**document["spec"], "nodeName": "n", **spec}}))


async def test_a_pod_may_take_longer_than_the_calendar_to_end() -> None:
    async with serving() as api:
        await on_node(api, "p", terminationGracePeriodSeconds=LONG)
        await api.delete(path("pods", "p"))
        await on_node(api, "q")
        await api.delete(path("pods", "q"), gracePeriodSeconds=LONG)
        for name in ("p", "q"):
            assert (await api.get(path("pods", name)))["metadata"]["deletionTimestamp"] > "2090"
            await api.delete(path("pods", name), gracePeriodSeconds=0)


@pytest.mark.parametrize("seconds", ["soon", [], 1.5, 2**70])
async def test_a_time_of_grace_is_a_number(seconds: Any) -> None:
    async with serving() as api:
        document = pod("p")
        document["spec"]["terminationGracePeriodSeconds"] = seconds
        said = await api.ask("POST", path("pods"), document)
        assert said.code == 400
        assert "spec.terminationGracePeriodSeconds" in said.message


async def test_garbage_that_takes_long_to_end_is_collected() -> None:
    """The collector met the same fault, and the server ended with it."""
    dead = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "no-such-uid"}
    async with serving() as api:
        document = pod("p", ownerReferences=[dead])
        document["spec"] |= {"nodeName": "n", "terminationGracePeriodSeconds": LONG}
        await api.create(document)
        await api.until(path("pods", "p"), lambda said: "deletionTimestamp" in said.document["metadata"])
        await api.create(config("still-there"))


async def test_a_store_that_fails_does_not_end_the_collector() -> None:
    """A namespace is emptied; while the collector looks whether it is empty, the store does not answer."""
    store = Moody()
    async with serving(store) as api:
        await api.create(namespace("leaving"), NAMESPACES)
        store.moods = 3
        await api.delete(f"{NAMESPACES}/leaving")
        async with asyncio.timeout(SOON):
            while await store.get(LEAVING) is not None:
                await asyncio.sleep(0.005)
        assert store.moods == 0
        await api.create(config("still-there"))
    await store.close()


@pytest.mark.parametrize(
    ("binding", "named"),
    [
        ({"target": {"name": "n"}, "metadata": [1]}, "metadata"),
        ({"target": {"name": "n"}, "metadata": {"annotations": [1]}}, "annotations"),
        ({"target": {"name": "n"}, "metadata": {"annotations": {"a": 5}}}, "annotations"),
        ({"target": {"name": ["n"]}}, "target"),
        ({"target": "n"}, "target"),
        ({"target": {"kind": "Pod", "name": "n"}}, "target"),
    ],
)
async def test_a_binding_of_another_form_is_refused(binding: Any, named: str) -> None:
    async with serving() as api:
        await api.create(pod("p"))
        said = await api.ask("POST", path("pods", "p", sub="binding"), binding)
        assert said.code == 400
        assert named in said.message
        assert "nodeName" not in (await api.get(path("pods", "p")))["spec"]


@pytest.mark.parametrize(
    "wish",
    [
        {"preconditions": 5},
        {"gracePeriodSeconds": "soon"},
        {"propagationPolicy": "Sideways"},
        {"orphanDependents": 5},
    ],
)
async def test_an_eviction_is_as_strict_as_a_delete(wish: Any) -> None:
    code = 422 if "propagationPolicy" in wish else 400
    eviction = {"metadata": {"name": "p"}, "deleteOptions": wish}
    async with serving() as api:
        await on_node(api, "p")
        for said in (
            await api.ask("DELETE", path("pods", "p"), wish),
            await api.ask("POST", path("pods", "p", sub="eviction"), eviction),
        ):
            assert said.code == code
            assert next(iter(wish)) in said.message
        assert "deletionTimestamp" not in (await api.get(path("pods", "p")))["metadata"]


@pytest.mark.parametrize(
    "strange",
    [{"status": {"disruptionsAllowed": "none"}}, {"status": 5}, {"spec": 5}, {"spec": {"selector": 5}}],
)
async def test_a_strange_budget_protects_no_pod(strange: Any) -> None:
    metadata = {"name": "b", "namespace": "default"}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata}
    async with serving() as api:
        await api.plant({**budget, "spec": {"selector": {}}, **strange})
        await api.create(pod("p"))
        eviction = {"metadata": {"name": "p"}}
        assert (await api.ask("POST", path("pods", "p", sub="eviction"), eviction)).code == 201


async def test_what_cannot_be_read_is_not_chosen_and_hides_nothing() -> None:
    """One object of another form made every list with this selector fail."""
    requests = path("certificatesigningrequests", group="certificates.k8s.io", namespace="")
    signing = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    events = {"apiVersion": "v1", "kind": "Event"}
    async with serving() as api:
        async with api.watch(requests, fieldSelector="spec.signerName=me") as watch:
            for position, spec in enumerate(("text", [1], {"signerName": [1]}, {"signerName": "me"})):
                name = f"s{position}"
                await api.plant({**signing, "metadata": {"name": name}, "spec": spec})
            assert await watch.tell(1) == [("ADDED", "s3")]
        assert await api.names(requests, fieldSelector="spec.signerName=me") == ["s3"]
        assert await api.names(requests, fieldSelector="spec.signerName!=me") == ["s0", "s1", "s2"]
        for position, regarding in enumerate((5, {"name": 7}, {"name": "p"})):
            metadata = {"name": f"e{position}", "namespace": "default"}
            await api.plant({**events, "metadata": metadata, "involvedObject": regarding})
        assert await api.names(path("events"), fieldSelector="involvedObject.name=p") == ["e2"]
