"""Classic claims against a server in this process: documents, clients, a driver that runs beside the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from dray.api.classic import ClassicResourceClaim
from dray.client.client import Client
from tests.contract.api import SOON, Api, path
from tests.e2e.classic_driver import Controller, Ways
from tests.support.in_process_transport import InProcessTransport

DRIVER = "acme.example.com"
CLAIMS = path("resourceclaims", group="cdi.k8s.io", version="v1alpha1")
CLASSES = path("resourceclasses", group="cdi.k8s.io", version="v1alpha1", namespace="")


def classic_class(name: str = "acme", driver: str = DRIVER, **parameters: Any) -> dict[str, Any]:
    return {
        "apiVersion": "cdi.k8s.io/v1alpha1",
        "kind": "ResourceClass",
        "metadata": {"name": name},
        "driverName": driver,
        "parameters": parameters,
    }


def classic_claim(
    name: str, mode: str = "Delayed", namespace: str = "default", **parameters: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "cdi.k8s.io/v1alpha1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"resourceClassName": "acme", "allocationMode": mode, "parameters": parameters},
    }


def client_of(api: Api, user: str = "admin", *groups: str) -> Client:
    """A client of the administrator, or of somebody else."""
    return Client(
        InProcessTransport(api.app, user, (*(groups or ("system:masters",)), "system:authenticated"))
    )


async def read(api: Api, name: str) -> ClassicResourceClaim:
    """A claim as it is now."""
    return await client_of(api).get(ClassicResourceClaim, name, "default")


async def until(api: Api, name: str, is_so: Callable[[ClassicResourceClaim], bool]) -> ClassicResourceClaim:
    """Wait until a claim is as it should be."""
    end = asyncio.get_running_loop().time() + SOON
    while not is_so(claim := await read(api, name)):
        assert asyncio.get_running_loop().time() < end, f"{name} stays as it is: {claim}"
        await asyncio.sleep(0.005)
    return claim


def in_phase(phase: str) -> Callable[[ClassicResourceClaim], bool]:
    return lambda claim: claim.status.phase == phase


@asynccontextmanager
async def driving(api: Api, capacity: Mapping[str, int], *, everywhere: bool = False) -> AsyncIterator[None]:
    """A driver beside the test, with the rights of one and no more; it is killed at the end."""
    client = client_of(api, "acme", f"dray:driver:{DRIVER}", "classic-drivers")
    task = asyncio.create_task(Controller(client, Ways(DRIVER, capacity, everywhere)).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def admit_driver(api: Api) -> None:
    """Give drivers their role."""
    await api.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "classic-drivers"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "dray:classic-driver",
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "classic-drivers"}
            ],
        },
        path("clusterrolebindings", group="rbac.authorization.k8s.io", namespace=""),
    )
