"""One object in three versions: every verb converts, and events have two groups."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.api import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api, path, serving
from tests.contract.documents import claim, old_claim, resource_slice

OLD = ("v1beta1", "v1beta2")


def _asked(document: dict[str, Any]) -> dict[str, Any]:
    """The fields of the first request, wherever the version has them."""
    asked: dict[str, Any] = document["spec"]["devices"]["requests"][0]
    return asked if document["apiVersion"].endswith("v1beta1") else asked["exactly"]


@pytest.mark.parametrize("version", OLD)
async def test_every_verb_supports_every_version(version: str) -> None:
    async with serving() as api:
        home = path("resourceclaims", version=version)
        one = path("resourceclaims", "a", version=version)
        made = await api.create(old_claim("a", version), home)
        assert made["apiVersion"] == f"resource.k8s.io/{version}"
        assert _asked(made)["count"] == 2
        new = await api.get(path("resourceclaims", "a"))
        assert new["apiVersion"] == "resource.k8s.io/v1"
        assert _asked(new) == {
            "deviceClassName": "gpu.example.com",
            "allocationMode": "ExactCount",
            "count": 2,
        }
        assert await api.get(one) == made
        listed = await api.get(home)
        assert (listed["apiVersion"], listed["items"]) == (f"resource.k8s.io/{version}", [made])
        labelled = {**made, "metadata": {**made["metadata"], "labels": {"a": "b"}}}
        put = await api.put(labelled, one)
        assert (put["apiVersion"], put["metadata"]["labels"]) == (f"resource.k8s.io/{version}", {"a": "b"})
        assert _asked(put) == _asked(made)
        gone = await api.delete(one)
        assert gone["apiVersion"] == f"resource.k8s.io/{version}"


@pytest.mark.parametrize("version", OLD)
@pytest.mark.parametrize("kind", [MERGE, STRATEGIC, JSON_PATCH])
async def test_patches_see_the_version_they_are_written_for(version: str, kind: str) -> None:
    async with serving() as api:
        await api.create(resource_slice("s"))
        where = path("resourceslices", "s", version=version)
        attributes = {"colour": {"string": "red"}}
        device = {"name": "gpu-0"} | (
            {"basic": {"attributes": attributes}} if version == "v1beta1" else {"attributes": attributes}
        )
        patch: Any = {"spec": {"devices": [device]}}
        if kind == JSON_PATCH:
            patch = [{"op": "replace", "path": "/spec/devices", "value": [device]}]
        changed = await api.patch(where, patch, kind)
        assert changed["apiVersion"] == f"resource.k8s.io/{version}"
        new = await api.get(path("resourceslices", "s"))
        assert new["spec"]["devices"][0]["attributes"] == attributes


@pytest.mark.parametrize("version", OLD)
async def test_applies_in_every_version_own_fields_of_one_object(version: str) -> None:
    async with serving() as api:
        where = path("resourceclaims", "a", version=version)
        document = old_claim("a", version)
        made = await api.patch(where, document, APPLY, fieldManager="me")
        assert _asked(made)["count"] == 2
        again = await api.patch(where, document, APPLY, fieldManager="me")
        assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        new = claim("a")
        new["metadata"]["labels"] = {"a": "b"}
        new["spec"] = (await api.get(path("resourceclaims", "a")))["spec"]
        labelled = await api.patch(path("resourceclaims", "a"), new, APPLY, fieldManager="me")
        assert labelled["metadata"]["labels"] == {"a": "b"}
        assert [fields["manager"] for fields in labelled["metadata"]["managedFields"]] == ["me"]


async def test_the_version_in_the_body_must_be_that_of_the_path() -> None:
    async with serving() as api:
        response = await api.ask("POST", path("resourceclaims"), old_claim("a"))
        assert response.code == 400
        assert "resource.k8s.io/v1beta1" in response.message


@pytest.mark.parametrize("version", OLD)
async def test_slices_convert(version: str) -> None:
    async with serving() as api:
        await api.create(resource_slice("s", attributes={"model": {"string": "x"}}))
        old = await api.get(path("resourceslices", "s", version=version))
        device = old["spec"]["devices"][0]
        fields = device["basic"] if version == "v1beta1" else device
        assert fields["attributes"] == {"model": {"string": "x"}}
        del old["metadata"]
        old["metadata"] = {"name": "t"}
        old["spec"]["pool"]["name"] = "other"
        await api.create(old, path("resourceslices", version=version))
        new = await api.get(path("resourceslices", "t"))
        assert new["spec"]["devices"][0] == {"name": "gpu-0", "attributes": {"model": {"string": "x"}}}


def _core_event(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p", "uid": "u"},
        "reason": "Because",
        "message": "it happened",
        "type": "Normal",
        "source": {"component": "tester"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    }


def _new_event(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "default-scheduler",
        "reportingInstance": "default-scheduler-vm",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p", "uid": "u"},
        "note": "no space left",
        "type": "Warning",
        "deprecatedSource": {},
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
    }


EVENTS, NEW_EVENTS = path("events"), path("events", group="events.k8s.io")


async def _both(api: Api) -> None:
    await api.create(_core_event("a"), EVENTS)
    await api.create(_new_event("b"), NEW_EVENTS)


async def test_events_are_served_in_both_groups() -> None:
    async with serving() as api:
        await _both(api)
        assert await api.names(EVENTS) == await api.names(NEW_EVENTS) == ["a", "b"]
        old = (await api.get(EVENTS))["items"][1]
        assert (old["apiVersion"], old["message"]) == ("v1", "no space left")
        assert old["involvedObject"]["name"] == "p"
        assert old["reportingComponent"] == "default-scheduler"
        new = (await api.get(NEW_EVENTS))["items"][0]
        assert (new["apiVersion"], new["note"]) == ("events.k8s.io/v1", "it happened")
        assert new["regarding"]["name"] == "p"
        assert new["deprecatedSource"]["component"] == "tester"
        assert new["deprecatedCount"] == 1


async def test_events_are_selected_by_their_object() -> None:
    async with serving() as api:
        await _both(api)
        chosen = "involvedObject.name=p,involvedObject.namespace=default,involvedObject.uid=u"
        assert await api.names(EVENTS, fieldSelector=chosen) == ["a", "b"]
        assert await api.names(EVENTS, fieldSelector="involvedObject.kind=Node") == []
        assert await api.names(NEW_EVENTS, fieldSelector="regarding.name=p,type=Warning") == ["b"]


async def test_a_series_of_events_is_patched() -> None:
    async with serving() as api:
        await _both(api)
        series = {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}
        where = path("events", "b", group="events.k8s.io")
        changed = await api.patch(where, {"series": series}, STRATEGIC)
        assert changed["series"] == series
        assert (await api.get(path("events", "b")))["series"] == series
        async with api.watch(NEW_EVENTS) as watch:
            assert await watch.tell(2) == [("ADDED", "a"), ("ADDED", "b")]
            await api.delete(path("events", "a"))
            event = await watch.event()
            assert (event["type"], event["object"]["apiVersion"]) == ("DELETED", "events.k8s.io/v1")
