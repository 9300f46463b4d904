"""Example nodes and devices as objects: what `dray up` creates for simulated nodes, and the classes for all.

Theory of operation: the objects are a pure function of the number of nodes. Every node is ready and has
capacity; it has four GPUs in two groups (each group on a PCIe root of its own, with a network card that pods
share by bandwidth). Two of three nodes have big GPUs, the third has small ones, so that choices make a
difference. Only missing objects are created: what a user changed or an earlier start created stays as it is.
Slices belong to their node and are deleted with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from dray.api.core import Node
from dray.api.resource import DeviceClass, ResourceSlice
from dray.client.client import Client
from dray.client.errors import AlreadyExistsError, InvalidObjectError
from dray.telemetry.logs import StructuredLogger

Document = dict[str, Any]

GPU_DRIVER, NIC_DRIVER = "gpu.example.com", "nic.example.com"
SIMULATED_LABEL: Final = "dray.dev/simulated"
"""The label of nodes whose pods are deleted at once, because nothing runs them."""
NODE_PREFIX, SIMULATED_PREFIX = "node", "sim"
"""Prefixes of node names: with an agent and drivers, and simulated ones."""

_RESOURCE_API: Final = "resource.k8s.io/v1"
NODE_CAPACITY: Final = {"cpu": "32", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110"}
_GPUS_PER_NODE: Final = 4
_MAX_CONCURRENT_WRITES: Final = 32
_NODES_PER_RACK: Final = 4
_MODELS: Final = (("a100", "80Gi"), ("a100", "80Gi"), ("v100", "32Gi"))
_PCIE_ROOTS: Final = ("pci0000:01", "pci0000:02")
_PCIE_ROOT_ATTRIBUTE: Final = "resource.kubernetes.io/pcieRoot"
_SELECTORS: Final = {
    "gpu": (f'device.driver == "{GPU_DRIVER}"',),
    "big-gpu": (
        f'device.driver == "{GPU_DRIVER}"',
        f'device.capacity["{GPU_DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0',
    ),
    "shared-nic": (f'device.driver == "{NIC_DRIVER}"',),
}


def format_node_name(number: int, prefix: str = NODE_PREFIX) -> str:
    """Return the name of a node."""
    return f"{prefix}-{number}"


def build_labels(number: int, prefix: str = NODE_PREFIX) -> dict[str, str]:
    """Build the labels of a node."""
    return {
        "kubernetes.io/hostname": format_node_name(number, prefix),
        "kubernetes.io/os": "linux",
        "example.com/rack": f"rack-{number // _NODES_PER_RACK}",
    }


def build_device_classes() -> Iterator[Document]:
    """Build the device classes for the example devices."""
    for name, expressions in _SELECTORS.items():
        selectors = [{"cel": {"expression": expression}} for expression in expressions]
        yield {
            "apiVersion": _RESOURCE_API,
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {"selectors": selectors},
        }


def build_node(number: int, prefix: str = NODE_PREFIX) -> Document:
    """Build a node that is ready and has capacity. One without the simulated prefix has no agent."""
    agents = "with-agent" if prefix == SIMULATED_PREFIX else "true"
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Simulated",
        "message": "pods are scheduled here, and nothing runs them",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": format_node_name(number, prefix),
            "labels": {**build_labels(number, prefix), SIMULATED_LABEL: agents},
        },
        "status": {
            "capacity": dict(NODE_CAPACITY),
            "allocatable": dict(NODE_CAPACITY),
            "conditions": [ready],
            "nodeInfo": {"kubeletVersion": "simulated"},
        },
    }


def build_slices(number: int, owner: Document | None = None, prefix: str = NODE_PREFIX) -> Iterator[Document]:
    """Build the slices that the drivers of a node publish."""
    node = format_node_name(number, prefix)
    for driver, short, devices in (
        (GPU_DRIVER, "gpu", _build_gpus(number)),
        (NIC_DRIVER, "nic", _build_nics()),
    ):
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


def _build_gpus(number: int) -> list[Document]:
    model, memory = _MODELS[number % len(_MODELS)]
    return [
        {
            "name": f"gpu-{i}",
            "attributes": {
                "model": {"string": model},
                "driverVersion": {"version": "550.54.15"},
                _PCIE_ROOT_ATTRIBUTE: {"string": _PCIE_ROOTS[i * len(_PCIE_ROOTS) // _GPUS_PER_NODE]},
            },
            "capacity": {"memory": {"value": memory}},
        }
        for i in range(_GPUS_PER_NODE)
    ]


def _build_nics() -> list[Document]:
    policy = {"default": "100M", "validRange": {"min": "100M", "step": "100M"}}
    return [
        {
            "name": f"eth{i}",
            "allowMultipleAllocations": True,
            "attributes": {"interfaceName": {"string": f"eth{i}"}, _PCIE_ROOT_ATTRIBUTE: {"string": root}},
            "capacity": {"bandwidth": {"value": "10G", "requestPolicy": policy}},
        }
        for i, root in enumerate(_PCIE_ROOTS)
    ]


async def create_device_classes(client: Client, log: StructuredLogger) -> None:
    """Create the missing device classes; none on a server that does not serve them."""
    if not await client.serves(DeviceClass):
        return
    existing = await _list_names(client, DeviceClass)
    for document in build_device_classes():
        await _create_if_missing(client, document, existing, log)


async def create_nodes(
    client: Client,
    count: int,
    log: StructuredLogger,
    stop: asyncio.Event | None = None,
    prefix: str = NODE_PREFIX,
) -> int:
    """Create the missing nodes with classes and devices; return how many nodes were created.

    It ends early when `stop` is set.
    """
    if not count:
        return 0
    known = {found.metadata.name: found.metadata.uid for found in (await client.list(Node)).items}
    publishes = await client.serves(ResourceSlice)
    published = await _list_names(client, ResourceSlice) if publishes else set()
    await create_device_classes(client, log)
    numbers = iter(range(count))

    async def run_worker() -> None:
        for number in numbers:
            if stop is not None and stop.is_set():
                return
            name = format_node_name(number, prefix)
            uid = known.get(name) or (await client.create(build_node(number, prefix)))["metadata"]["uid"]
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
            for document in build_slices(number, owner, prefix) if publishes else ():
                await _create_if_missing(client, document, published, log)

    # Writes that come together are committed together.
    async with asyncio.TaskGroup() as tasks:
        for _ in range(_MAX_CONCURRENT_WRITES):
            tasks.create_task(run_worker())
    return sum(format_node_name(number, prefix) not in known for number in range(count))


async def _list_names(client: Client, kind: Any) -> set[str]:
    return {found.metadata.name for found in (await client.list(kind)).items}


async def _create_if_missing(
    client: Client, document: Document, present: set[str], log: StructuredLogger
) -> None:
    name = document["metadata"]["name"]
    if name in present:
        return
    try:
        await client.create(document)
    except AlreadyExistsError:
        return
    except InvalidObjectError as refused:
        # A gate that is off may leave an object empty; the other objects are created all the same.
        log.warning("cannot create an example object", kind=document["kind"], name=name, error=refused)
