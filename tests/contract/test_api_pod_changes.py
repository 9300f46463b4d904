"""Changes of pods through the API: the pod itself, its status, `resize` and `ephemeralcontainers`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.api import MERGE, STRATEGIC, Api, ServerResponse, path, serving
from tests.unit.api.validation.pods.pod_cases import ChangedPodCase, build_pod, load_changed_pods

CASES = load_changed_pods()
POD = path("pods", "thing")


def list_causes(answer: ServerResponse) -> list[str]:
    causes = answer.document.get("details", {}).get("causes", ()) if answer.code >= 400 else ()
    return sorted(f"{cause['reason'].removeprefix('FieldValue')} {cause['field']}" for cause in causes)


async def _change(api: Api, case: ChangedPodCase) -> ServerResponse:
    stored = await api.create(case.pod)
    if case.ephemeral:
        stored["spec"]["ephemeralContainers"] = case.ephemeral
        stored = await api.put(stored, path("pods", "thing", sub="ephemeralcontainers"))
    if case.status:
        stored["status"].update(case.status)
        stored = await api.put(stored, path("pods", "thing", sub="status"))
    return await api.ask("PUT", path("pods", "thing", sub=case.subresource), case.apply(stored))


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
async def test_a_change_is_refused_for_the_causes_of_kubernetes(case: ChangedPodCase) -> None:
    async with serving() as api:
        answer = await _change(api, case)
        assert list_causes(answer) == case.causes, answer.document
        assert answer.code == (422 if case.causes else 200)


async def test_a_resize_changes_resources_and_nothing_else() -> None:
    async with serving() as api:
        await api.create(build_pod(container={"resources": {"requests": {"cpu": "1"}}}))
        before = await api.get(path("pods", "thing", sub="resize"))
        patch: dict[str, Any] = {
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "nodeName": "somewhere",
                "containers": [{"name": "main", "image": "other", "resources": {"requests": {"cpu": "2"}}}],
            },
        }
        after = await api.patch(path("pods", "thing", sub="resize"), patch, STRATEGIC)
        assert after["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2"}
        assert after["spec"]["containers"][0]["image"] == "web:1"
        assert after["metadata"].get("labels") is None
        assert after["spec"].get("nodeName") is None
        assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1


async def test_a_debug_container_is_added_and_never_removed() -> None:
    async with serving() as api:
        await api.create(build_pod())
        where = path("pods", "thing", sub="ephemeralcontainers")
        added = {"name": "debug", "image": "busybox", "stdin": True, "tty": True}
        after = await api.patch(where, {"spec": {"ephemeralContainers": [added]}}, STRATEGIC)
        (debug,) = after["spec"]["ephemeralContainers"]
        assert debug == {
            **added,
            "imagePullPolicy": "Always",
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "resources": {},
        }
        assert after["metadata"]["generation"] == 2
        answer = await api.ask(
            "PATCH", where, {"spec": {"ephemeralContainers": []}}, headers={"content-type": MERGE}
        )
        assert list_causes(answer) == ["Forbidden spec.ephemeralContainers"]


@pytest.mark.parametrize("sub", ["resize", "ephemeralcontainers"])
async def test_subresources_of_pods_are_read_and_changed_and_never_created(sub: str) -> None:
    async with serving() as api:
        await api.create(build_pod())
        assert (await api.get(path("pods", "thing", sub=sub)))["kind"] == "Pod"
        assert (await api.ask("POST", path("pods", "thing", sub=sub), build_pod())).code == 405
        assert (await api.ask("DELETE", path("pods", "thing", sub=sub))).code == 405
        assert (await api.ask("GET", path("pods", "absent", sub=sub))).code == 404
        listed = {row["name"]: row for row in (await api.get("/api/v1"))["resources"]}
        assert listed[f"pods/{sub}"]["verbs"] == ["get", "patch", "update"]
        assert listed[f"pods/{sub}"]["kind"] == "Pod"


async def test_a_status_keeps_what_its_writer_does_not_know() -> None:
    async with serving() as api:
        await api.create(
            build_pod(spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]})
        )
        where = path("pods", "thing", sub="status")
        claims = [{"name": "gpu", "resourceClaimName": "thing-gpu"}]
        await api.patch(where, {"status": {"resourceClaimStatuses": claims, "observedGeneration": 1}})
        stored = await api.get(POD)
        stored["status"] = {"phase": "Running", "podIP": "10.0.0.1"}
        status = (await api.put(stored, where))["status"]
        assert status["qosClass"] == "BestEffort"
        assert status["resourceClaimStatuses"] == claims
        assert status["observedGeneration"] == 1
        assert status["podIPs"] == [{"ip": "10.0.0.1"}]
