"""Nodes with example devices, as objects: what `dray up` makes for simulated nodes, and the classes for all.

Theory of operation: a fleet is a pure function of the number of its nodes. Every node is ready and has room;
it has four GPUs in two groups (each group on a PCIe root of its own, with a network card that pods share by
bandwidth). Two of three nodes have big GPUs, the third has small ones, so that choices make a difference.
Only what is absent is created: what somebody changed or a second start finds stays as it is. Slices belong to
their node and go with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from dray.api.core import Node
from dray.api.resource import DeviceClass, ResourceSlice
from dray.client.client import Client
from dray.client.errors import AlreadyExists, Invalid
from dray.telemetry.logs import Log

Document = dict[str, Any]

GPU, NIC = "gpu.example.com", "nic.example.com"
SIMULATED: Final = "dray.dev/simulated"
"""The label of nodes whose pods may go at once, because nothing runs them."""
NAME, SIMULATED_NAME = "node", "sim"
"""What nodes are called: with an agent and drivers, and simulated ones."""

_RESOURCE_API: Final = "resource.k8s.io/v1"
ROOM: Final = {"cpu": "32", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110"}
_GPUS: Final = 4
_AT_ONCE: Final = 32
_NODES_PER_RACK: Final = 4
_MODELS: Final = (("a100", "80Gi"), ("a100", "80Gi"), ("v100", "32Gi"))
_ROOTS: Final = ("pci0000:01", "pci0000:02")
_ROOT: Final = "resource.kubernetes.io/pcieRoot"
_SELECTORS: Final = {
    "gpu": (f'device.driver == "{GPU}"',),
    "big-gpu": (
        f'device.driver == "{GPU}"',
        f'device.capacity["{GPU}"].memory.compareTo(quantity("80Gi")) >= 0',
    ),
    "shared-nic": (f'device.driver == "{NIC}"',),
}


def name(number: int, kind: str = NAME) -> str:
    """The name of a node."""
    return f"{kind}-{number}"


def labels(number: int, kind: str = NAME) -> dict[str, str]:
    """What is said about a node besides its name."""
    return {
        "kubernetes.io/hostname": name(number, kind),
        "kubernetes.io/os": "linux",
        "example.com/rack": f"rack-{number // _NODES_PER_RACK}",
    }


def classes() -> Iterator[Document]:
    """The device classes for the devices of a fleet."""
    for name, expressions in _SELECTORS.items():
        selectors = [{"cel": {"expression": expression}} for expression in expressions]
        yield {
            "apiVersion": _RESOURCE_API,
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {"selectors": selectors},
        }


def node(number: int, kind: str = NAME) -> Document:
    """A node that is ready and has room. One that is not called simulated has no agent either."""
    agents = "with-agent" if kind == SIMULATED_NAME else "true"
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Simulated",
        "message": "pods are scheduled here, and nothing runs them",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name(number, kind), "labels": {**labels(number, kind), SIMULATED: agents}},
        "status": {
            "capacity": dict(ROOM),
            "allocatable": dict(ROOM),
            "conditions": [ready],
            "nodeInfo": {"kubeletVersion": "simulated"},
        },
    }


def slices(number: int, owner: Document | None = None, kind: str = NAME) -> Iterator[Document]:
    """What the drivers of a node publish."""
    node = name(number, kind)
    for driver, short, devices in ((GPU, "gpu", _gpus(number)), (NIC, "nic", _cards())):
        metadata: Document = {"name": f"{node}-{short}"}
        if owner is not None:
            metadata["ownerReferences"] = [owner]
        yield {
            "apiVersion": _RESOURCE_API,
            "kind": "ResourceSlice",
            "metadata": metadata,
            "spec": {
                "driver": driver,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": devices,
            },
        }


def _gpus(number: int) -> list[Document]:
    model, memory = _MODELS[number % len(_MODELS)]
    return [
        {
            "name": f"gpu-{i}",
            "attributes": {
                "model": {"string": model},
                "driverVersion": {"version": "550.54.15"},
                _ROOT: {"string": _ROOTS[i * len(_ROOTS) // _GPUS]},
            },
            "capacity": {"memory": {"value": memory}},
        }
        for i in range(_GPUS)
    ]


def _cards() -> list[Document]:
    policy = {"default": "100M", "validRange": {"min": "100M", "step": "100M"}}
    return [
        {
            "name": f"eth{i}",
            "allowMultipleAllocations": True,
            "attributes": {"interfaceName": {"string": f"eth{i}"}, _ROOT: {"string": root}},
            "capacity": {"bandwidth": {"value": "10G", "requestPolicy": policy}},
        }
        for i, root in enumerate(_ROOTS)
    ]


async def classify(client: Client, log: Log) -> None:
    """Make the device classes that are not there yet; a server without the feature gets none."""
    if not await client.serves(DeviceClass):
        return
    have = await _present(client, DeviceClass)
    for document in classes():
        await _made(client, document, have, log)


async def settle(
    client: Client, count: int, log: Log, stop: asyncio.Event | None = None, kind: str = NAME
) -> int:
    """Make the nodes of a fleet that are not there yet, with classes and devices; how many were made.

    It ends early when somebody wants to stop.
    """
    if not count:
        return 0
    known = {found.metadata.name: found.metadata.uid for found in (await client.list(Node)).items}
    publishes = await client.serves(ResourceSlice)
    published = await _present(client, ResourceSlice) if publishes else set()
    await classify(client, log)
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            if stop is not None and stop.is_set():
                return
            called = name(number, kind)
            uid = known.get(called) or (await client.create(node(number, kind)))["metadata"]["uid"]
            owner = {"apiVersion": "v1", "kind": "Node", "name": called, "uid": uid}
            for document in slices(number, owner, kind) if publishes else ():
                await _made(client, document, published, log)

    # Writes that come together are committed together.
    async with asyncio.TaskGroup() as tasks:
        for _ in range(_AT_ONCE):
            tasks.create_task(work())
    return sum(name(number, kind) not in known for number in range(count))


async def _present(client: Client, kind: Any) -> set[str]:
    return {found.metadata.name for found in (await client.list(kind)).items}


async def _made(client: Client, document: Document, present: set[str], log: Log) -> None:
    called = document["metadata"]["name"]
    if called in present:
        return
    try:
        await client.create(document)
    except AlreadyExists:
        return
    except Invalid as refused:
        # A gate that is off may leave nothing of an object; the rest of the fleet is there all the same.
        log.warning("cannot make an example", kind=document["kind"], name=called, error=refused)
