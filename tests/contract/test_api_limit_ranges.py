"""Limit ranges: the resources that pods get from them, and what they refuse, in the words of Kubernetes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.contract.api import Api, path, serving

CLAIMS = path("persistentvolumeclaims")
CONTAINER = {
    "type": "Container",
    "max": {"cpu": "2"},
    "min": {"memory": "8Mi"},
    "default": {"memory": "1Gi"},
    "defaultRequest": {"cpu": "100m"},
    "maxLimitRequestRatio": {"memory": "4"},
}
POD = {"type": "Pod", "max": {"cpu": "3"}, "min": {"memory": "16Mi"}}
CLAIM = {"type": "PersistentVolumeClaim", "max": {"storage": "2Gi"}, "min": {"storage": "1Gi"}}


@asynccontextmanager
async def limited() -> AsyncIterator[Api]:
    """A server whose default namespace has limits."""
    async with serving() as api:
        kind = {"apiVersion": "v1", "kind": "LimitRange"}
        for name, items in (("pods", [CONTAINER, POD]), ("claims", [CLAIM])):
            await api.create(
                {**kind, "metadata": {"name": name}, "spec": {"limits": items}}, path("limitranges")
            )
        yield api


def pod(*resources: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    lists = {"containers": resources, "initContainers": init}
    spec = {
        field: [
            {"name": f"{field[0]}{index}", "image": "x", "resources": each}
            for index, each in enumerate(given)
        ]
        for field, given in lists.items()
        if given
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def claim(storage: str) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "v"}, "spec": spec}


async def test_containers_get_the_defaults_of_a_limit_range() -> None:
    async with limited() as api:
        created = await api.create(pod({}, {"limits": {"cpu": "1"}}, init=({},)))
    spec, filled = created["spec"], {"cpu": "2", "memory": "1Gi"}
    asked = {"cpu": "100m", "memory": "1Gi"}
    assert [each["resources"] for each in spec["initContainers"] + spec["containers"]] == [
        {"limits": filled, "requests": asked},
        {"limits": filled, "requests": asked},
        {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}},
    ]
    assert created["status"]["qosClass"] == "Burstable"
    assert created["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu, memory request for container c0; cpu, memory limit for container c0; "
        "memory request for container c1; memory limit for container c1; "
        "cpu, memory request for init container i0; cpu, memory limit for init container i0"
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            pod({"limits": {"cpu": "3", "memory": "1Mi"}}),
            "[minimum memory usage per Container is 8Mi, but request is 1Mi, "
            "maximum cpu usage per Container is 2, but limit is 3, "
            "minimum memory usage per Pod is 16Mi, but request is 1Mi]",
        ),
        (
            pod({"limits": {"cpu": "2"}}, {"limits": {"cpu": "2"}}),
            "maximum cpu usage per Pod is 3, but limit is 4",
        ),
        (
            pod({"limits": {"memory": "100Mi"}, "requests": {"memory": "16Mi"}}),
            "memory max limit to request ratio per Container is 4, but provided ratio is 6.250000",
        ),
        (claim("3Gi"), "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"),
        (claim("3Mi"), "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 3Mi"),
    ],
)
async def test_what_is_beyond_the_limits_is_refused(given: dict[str, Any], why: str) -> None:
    where = CLAIMS if given["kind"] != "Pod" else path("pods")
    async with limited() as api:
        answer = await api.ask("POST", where, given)
        plural, name = where.rpartition("/")[2], given["metadata"]["name"]
        assert (answer.code, answer.message) == (403, f'{plural} "{name}" is forbidden: {why}')


async def test_a_claim_cannot_grow_beyond_the_limits_and_other_namespaces_have_none() -> None:
    async with limited() as api:
        created = await api.create(claim("2Gi"), CLAIMS)
        created["spec"]["resources"]["requests"]["storage"] = "5Gi"
        assert (await api.ask("PUT", f"{CLAIMS}/v", created)).code == 403
        await api.create(claim("5Gi"), path("persistentvolumeclaims", namespace="kube-system"))
