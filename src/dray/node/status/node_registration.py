"""The Node object of an agent: created or adopted, kept up to date, with a heartbeat lease.

Theory of operation: the agent creates the object if it does not exist; an existing one it adopts, changing
only what a node owns: labels that describe it, the fingerprint of its certificate, its status. Labels of
others stay. The agent writes the status when it changes and every few minutes; the heartbeat is a lease,
which costs the server less. `node_readiness` decides the Ready condition; until then it stays as it is.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from dray import __version__
from dray.api.codec import decode_projection
from dray.api.core import Node
from dray.api.preparation import ACCOUNTED_ANNOTATION, NO_RESTORE
from dray.client.client import Client
from dray.client.errors import AlreadyExistsError, InvalidObjectError, NotFoundError
from dray.client.informers.informer import Informer, InformerOptions
from dray.client.leases import Heartbeat, HeartbeatOptions
from dray.client.object_refs import get_kind, get_uid
from dray.client.patches import MergePatch, StrategicMergePatch
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff
from dray.clock import format_timestamp
from dray.durable import read_boot_id
from dray.errors import InputError
from dray.telemetry.logs import StructuredLogger

NODE: Final = get_kind("Node")
CERTIFICATE_ANNOTATION: Final = "dray.dev/serving-certificate"
"""The SHA-256 fingerprints of the agent's serving certificate and, while it is renewed, of the one before;
the server accepts no other.
"""
LEASE_NAMESPACE: Final = "kube-node-lease"
REFRESH_SECONDS: Final = 300.0
_WRITE_TIMEOUT_SECONDS: Final = 2.0
_MIN_WRITE_INTERVAL: Final = 2.0
"""Limits the rate of writes when another client keeps writing the opposite."""

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
_PRESSURE_CONDITIONS: Final = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)

Document = dict[str, Any]


@dataclass(frozen=True)
class NodeDescription:
    """The properties of a node that its agent publishes."""

    name: str
    address: str = "127.0.0.1"
    port: int = 0
    """The port of its agent's endpoint; 0 when it has none."""
    fingerprints: tuple[str, ...] = ()
    runtime: str = "process"
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)
    """Overrides the capacity of the machine."""
    max_pods: int = 110

    @property
    def all_labels(self) -> dict[str, str]:
        machine = platform.machine()
        return {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": platform.system().lower(),
            "kubernetes.io/arch": _ARCHITECTURES.get(machine, machine),
            **self.labels,
        }

    @property
    def annotations(self) -> dict[str, str]:
        if not self.fingerprints:
            return {}
        return {CERTIFICATE_ANNOTATION: ",".join(f"sha256:{each}" for each in self.fingerprints)}


class NodeRegistration:
    """Registers a node and keeps its object up to date."""

    def __init__(self, client: Client, description: NodeDescription, log: StructuredLogger) -> None:
        self._client = client
        self._description = description
        self._log = log
        self._time_source = client.options.time_source
        self._observed: Document = _build_node(description)
        self._ready: tuple[bool, str] | None = None
        """Whether pods can run, and why not; None before the first decision."""
        self._changed = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []
        self._relist_listeners: list[Callable[[], None]] = []
        self._list_count = 0
        self.registered = asyncio.Event()
        """Set when the node is registered."""

    @property
    def node(self) -> Node:
        """The node as last observed."""
        node: Node = decode_projection(NODE, self._observed)
        return node

    async def set_ready(self, ready: bool, why: str = "") -> None:
        """Set the Ready condition: at once, or as soon as the server accepts it."""
        if self._ready == (ready, why):
            return
        self._ready = (ready, why)
        try:
            async with asyncio.timeout(_WRITE_TIMEOUT_SECONDS):
                await self._write_status()
        except (*CALL_ERRORS, TimeoutError):
            self._changed.set()

    async def publish_fingerprints(self, fingerprints: tuple[str, ...]) -> None:
        """Publish the fingerprints of the serving certificate; raises `CALL_ERRORS`."""
        self._description = replace(self._description, fingerprints=fingerprints)
        patch = MergePatch({"metadata": {"annotations": self._description.annotations}})
        self._observed = await self._client.patch(NODE, self._description.name, patch)

    async def run(self) -> None:
        """Register the node and keep its object up to date, until cancelled."""
        await self.register()
        options = HeartbeatOptions(self._description.name, get_owner_reference=self._build_owner_reference)
        heartbeat = Heartbeat(self._client, self._description.name, LEASE_NAMESPACE, options)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(heartbeat.run())
            tasks.create_task(self._sync_status())
            tasks.create_task(self._watch_node())

    async def _watch_node(self) -> None:
        """Observe changes of the object by other clients: labels, annotations, conditions, deletion."""
        options = InformerOptions(max_backoff=10.0)
        own = f"metadata.name={self._description.name}"
        informer: Informer[Document] = Informer(self._client, NODE, field_selector=own, options=options)

        def observe(node: Document) -> None:
            self._observe(node)
            if self._list_count != informer.stats.lists:
                self._list_count = informer.stats.lists
                for on_relist in self._relist_listeners:
                    on_relist()

        informer.listen(observe, lambda _before, node: observe(node), lambda _node: self._changed.set())
        await informer.run()

    def _observe(self, node: Document) -> None:
        self._observed = node
        conditions = (node.get("status") or {}).get("conditions") or ()
        if self._ready is not None:
            status = "True" if self._ready[0] else "False"
            if any(one.get("type") == "Ready" and one.get("status") != status for one in conditions):
                self._changed.set()
        for on_change in self._listeners:
            on_change()

    def add_listener(
        self, on_change: Callable[[], None], on_relist: Callable[[], None] | None = None
    ) -> None:
        """Call `on_change` when the object changes, and `on_relist` when it changes with a new list.

        The server may have been restored before a new list.
        """
        self._listeners.append(on_change)
        if on_relist is not None:
            self._relist_listeners.append(on_relist)

    async def register(self) -> None:
        """Create or adopt the node, retrying; raises `InputError` when the server never accepts it."""
        backoff = Backoff(self._time_source, initial=0.2, maximum=10.0)
        while True:
            try:
                await self._create_or_adopt()
                break
            except InvalidObjectError as error:
                # No retry can succeed.
                raise InputError(f"node `{self._description.name}` cannot be registered: {error}") from None
            except CALL_ERRORS as error:
                self._log.warning(
                    "the node cannot be registered yet", node=self._description.name, error=error
                )
                await backoff.wait()
        self.registered.set()

    async def _create_or_adopt(self) -> None:
        description = self._description
        try:
            self._observed = await self._client.create(_build_node(description))
        except AlreadyExistsError:
            metadata = {"labels": description.all_labels, "annotations": description.annotations}
            patch = MergePatch({"metadata": metadata})
            self._observed = await self._client.patch(NODE, description.name, patch)
        await self._write_status()

    async def _sync_status(self) -> None:
        while True:
            try:
                async with asyncio.timeout(REFRESH_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            try:
                await self._write_status()
            except NotFoundError:
                self._log.warning(
                    "the Node object was deleted; registering again", node=self._description.name
                )
                await self.register()
            except CALL_ERRORS as error:
                self._log.warning(
                    "the node's status could not be written", node=self._description.name, error=error
                )
                self._changed.set()
            await self._time_source.sleep(_MIN_WRITE_INTERVAL)

    async def _write_status(self) -> None:
        now = format_timestamp(self._time_source.clock.now())
        status = build_node_status(self._description, self._observed, self._ready, now)
        patch = StrategicMergePatch({"status": status})
        self._observed = await self._client.patch(NODE, self._description.name, patch, subresource="status")

    def _build_owner_reference(self) -> Document:
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "name": self._description.name,
            "uid": get_uid(self._observed),
        }


def _build_node(description: NodeDescription) -> Document:
    metadata: Document = {
        "name": description.name,
        "labels": description.all_labels,
        "annotations": {ACCOUNTED_ANNOTATION: NO_RESTORE, **description.annotations},
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}}


def build_node_status(
    description: NodeDescription, observed: Document, ready: tuple[bool, str] | None, now: str
) -> Document:
    """Build the status of a node from its description and its previous conditions."""
    capacity = {**read_machine_capacity(), "pods": str(description.max_pods), **description.capacity}
    status: Document = {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": _build_conditions(observed, ready, now),
        "addresses": [
            {"type": "InternalIP", "address": description.address},
            {"type": "Hostname", "address": description.name},
        ],
        "nodeInfo": _build_node_info(description.runtime),
    }
    if description.port:
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": description.port}}
    return status


def _build_conditions(observed: Document, ready: tuple[bool, str] | None, now: str) -> list[Document]:
    before = {one.get("type"): one for one in (observed.get("status") or {}).get("conditions") or ()}
    rows = [(name, False, reason, message) for name, reason, message in _PRESSURE_CONDITIONS]
    if ready is not None:
        is_ready, why = ready
        reason = "KubeletReady" if is_ready else "KubeletNotReady"
        rows.append(("Ready", is_ready, reason, why or "the agent takes pods"))
    return [
        {
            "type": name,
            "status": "True" if holds else "False",
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": _get_transition_time(before.get(name), "True" if holds else "False", now),
        }
        for name, holds, reason, message in rows
    ]


def _get_transition_time(before: Mapping[str, Any] | None, status: str, now: str) -> str:
    if before is None or before.get("status") != status:
        return now
    return str(before.get("lastTransitionTime") or now)


def read_machine_capacity() -> dict[str, str]:
    """Read the capacity of the machine."""
    capacity = {"cpu": str(os.cpu_count() or 1)}
    for line in _read_text("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            capacity["memory"] = f"{line.split()[1]}Ki"
    space = os.statvfs("/")
    capacity["ephemeral-storage"] = f"{space.f_blocks * space.f_frsize // 1024}Ki"
    return capacity


def _build_node_info(runtime: str) -> dict[str, str]:
    release = dict(line.partition("=")[::2] for line in _read_text("/etc/os-release").splitlines())
    machine = platform.machine()
    return {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "bootID": read_boot_id(),
        "containerRuntimeVersion": f"{runtime}://{__version__}",
        "kernelVersion": platform.release(),
        "kubeProxyVersion": "",
        "kubeletVersion": f"v{__version__}",
        "machineID": _read_text("/etc/machine-id").strip(),
        "operatingSystem": platform.system().lower(),
        "osImage": release.get("PRETTY_NAME", "").strip('"') or "unknown",
        "systemUUID": "",
    }


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""
