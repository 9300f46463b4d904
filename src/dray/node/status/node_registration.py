"""The node's own object: registered or adopted, kept up to date, with a sign of life beside it.

Theory of operation: the object is made if it is not there; one that is there is adopted, and only what a node
answers for is changed: labels that say what it is, the fingerprint of its certificate, its status. Labels
that others set stay. The status is written when something in it changes and every few minutes besides; that
the node lives is told by its lease, which costs the server less. Whether pods can run is told when somebody
says it (see `fitness`); until then what was said before stays.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dray import __version__
from dray.api.codec import view_of
from dray.api.core import Node
from dray.api.preparation import ACCOUNTED, NO_RESTORE
from dray.client.client import Client
from dray.client.errors import AlreadyExists, Invalid, NotFound
from dray.client.informers.informer import Informer, Ways
from dray.client.leases import Heartbeat, Pulse
from dray.client.object_refs import kind_called, uid_of
from dray.client.patches import MergePatch, StrategicPatch
from dray.client.rest_client import TROUBLE
from dray.client.timing import Backoff
from dray.clock import timestamp
from dray.durable import boot_id
from dray.errors import InputError
from dray.telemetry.logs import Log

NODE: Final = kind_called("Node")
CERTIFICATE: Final = "dray.dev/serving-certificate"
"""The SHA-256 of the certificate that the agent shows; the server connects to nothing that shows another."""
LEASES: Final = "kube-node-lease"
REFRESH_SECONDS: Final = 300.0
_AT_ONCE_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 2.0
"""Between two writes, so that nobody who says the opposite makes it a race."""

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
_PRESSURES: Final = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)

Document = dict[str, Any]


@dataclass(frozen=True)
class Facts:
    """What a node says about itself."""

    name: str
    address: str = "127.0.0.1"
    port: int = 0
    """Where its agent answers; 0 when it does not."""
    fingerprint: str = ""
    runtime: str = "process"
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)
    """In place of what the machine has."""
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
        return {CERTIFICATE: f"sha256:{self.fingerprint}"} if self.fingerprint else {}


class Board:
    """Where a node is announced."""

    def __init__(self, client: Client, facts: Facts, log: Log) -> None:
        self._client = client
        self._facts = facts
        self._log = log
        self._tempo = client.habits.tempo
        self._known: Document = _bare(facts)
        self._ready: tuple[bool, str] | None = None
        """Whether pods can run, and why not; None while nobody has said."""
        self._changed = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []
        self._readers: list[Callable[[], None]] = []
        self._lists = 0
        self.registered = asyncio.Event()
        """Set when the server knows the node."""

    @property
    def node(self) -> Node:
        """The node as the server last told it."""
        seen: Node = view_of(NODE, self._known)
        return seen

    async def say_ready(self, ready: bool, why: str = "") -> None:
        """Say whether pods can run here: at once if the server takes it, and else as soon as it does."""
        if self._ready == (ready, why):
            return
        self._ready = (ready, why)
        try:
            async with asyncio.timeout(_AT_ONCE_SECONDS):
                await self._write()
        except (*TROUBLE, TimeoutError):
            self._changed.set()

    async def run(self) -> None:
        """Announce the node and keep it so, until cancelled."""
        await self.register()
        pulse = Pulse(self._facts.name, owner=self._owner)
        heartbeat = Heartbeat(self._client, self._facts.name, LEASES, pulse)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(heartbeat.run())
            tasks.create_task(self._keep())
            tasks.create_task(self._followed())

    async def _followed(self) -> None:
        """See what others write on the node: labels and annotations, or that it is lost."""
        ways = Ways(longest_wait=10.0)
        own = f"metadata.name={self._facts.name}"
        informer: Informer[Document] = Informer(self._client, NODE, field_selector=own, ways=ways)

        def see(node: Document) -> None:
            self._see(node)
            if self._lists != informer.counts.lists:
                self._lists = informer.counts.lists
                for told in self._readers:
                    told()

        informer.listen(see, lambda _before, now: see(now), lambda _gone: self._changed.set())
        await informer.run()

    def _see(self, node: Document) -> None:
        self._known = node
        conditions = (node.get("status") or {}).get("conditions") or ()
        if self._ready is not None:
            said = "True" if self._ready[0] else "False"
            if any(one.get("type") == "Ready" and one.get("status") != said for one in conditions):
                self._changed.set()
        for told in self._listeners:
            told()

    def listen(self, changed: Callable[[], None], read_anew: Callable[[], None] | None = None) -> None:
        """Be told when somebody has written on the node, and when it differs after all was read anew.

        The server may have another past then.
        """
        self._listeners.append(changed)
        if read_anew is not None:
            self._readers.append(read_anew)

    async def register(self) -> None:
        """Make the node or adopt it, however long the server takes; `InputError` when it never will."""
        backoff = Backoff(self._tempo, first=0.2, longest=10.0)
        while True:
            try:
                await self._adopt()
                break
            except Invalid as refused:
                # Nothing that could happen would change it.
                raise InputError(f"node `{self._facts.name}` cannot be registered: {refused}") from None
            except TROUBLE as trouble:
                self._log.warning("the node cannot be registered yet", node=self._facts.name, error=trouble)
                await backoff.wait()
        self.registered.set()

    async def _adopt(self) -> None:
        facts = self._facts
        try:
            self._known = await self._client.create(_bare(facts))
        except AlreadyExists:
            marks = {"labels": facts.all_labels, "annotations": facts.annotations}
            self._known = await self._client.patch(NODE, facts.name, MergePatch({"metadata": marks}))
        await self._write()

    async def _keep(self) -> None:
        while True:
            try:
                async with asyncio.timeout(REFRESH_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            try:
                await self._write()
            except NotFound:
                self._log.warning("the node's object is gone; registering it anew", node=self._facts.name)
                await self.register()
            except TROUBLE as trouble:
                self._log.warning("the node's status is not written", node=self._facts.name, error=trouble)
                self._changed.set()
            await self._tempo.sleep(_PAUSE_SECONDS)

    async def _write(self) -> None:
        now = timestamp(self._tempo.clock.now())
        status = node_status(self._facts, self._known, self._ready, now)
        patch = StrategicPatch({"status": status})
        self._known = await self._client.patch(NODE, self._facts.name, patch, subresource="status")

    def _owner(self) -> Document:
        return {"apiVersion": "v1", "kind": "Node", "name": self._facts.name, "uid": uid_of(self._known)}


def _bare(facts: Facts) -> Document:
    notes = {ACCOUNTED: NO_RESTORE, **facts.annotations}
    metadata: Document = {"name": facts.name, "labels": facts.all_labels, "annotations": notes}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}}


def node_status(facts: Facts, known: Document, ready: tuple[bool, str] | None, now: str) -> Document:
    """The status of a node, from what it is and what it said before."""
    capacity = {**machine_capacity(), "pods": str(facts.max_pods), **facts.capacity}
    status: Document = {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": _conditions(known, ready, now),
        "addresses": [
            {"type": "InternalIP", "address": facts.address},
            {"type": "Hostname", "address": facts.name},
        ],
        "nodeInfo": _about(facts.runtime),
    }
    if facts.port:
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": facts.port}}
    return status


def _conditions(known: Document, ready: tuple[bool, str] | None, now: str) -> list[Document]:
    before = {one.get("type"): one for one in (known.get("status") or {}).get("conditions") or ()}
    rows = [(name, False, reason, message) for name, reason, message in _PRESSURES]
    if ready is not None:
        well, why = ready
        word = "KubeletReady" if well else "KubeletNotReady"
        rows.append(("Ready", well, word, why or "the agent takes pods"))
    return [
        {
            "type": name,
            "status": "True" if holds else "False",
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": _since(before.get(name), "True" if holds else "False", now),
        }
        for name, holds, reason, message in rows
    ]


def _since(before: Mapping[str, Any] | None, status: str, now: str) -> str:
    if before is None or before.get("status") != status:
        return now
    return str(before.get("lastTransitionTime") or now)


def machine_capacity() -> dict[str, str]:
    """What the machine has, as far as it tells."""
    capacity = {"cpu": str(os.cpu_count() or 1)}
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            capacity["memory"] = f"{line.split()[1]}Ki"
    space = os.statvfs("/")
    capacity["ephemeral-storage"] = f"{space.f_blocks * space.f_frsize // 1024}Ki"
    return capacity


def _about(runtime: str) -> dict[str, str]:
    release = dict(line.partition("=")[::2] for line in _read("/etc/os-release").splitlines())
    machine = platform.machine()
    return {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "bootID": boot_id(),
        "containerRuntimeVersion": f"{runtime}://{__version__}",
        "kernelVersion": platform.release(),
        "kubeProxyVersion": "",
        "kubeletVersion": f"v{__version__}",
        "machineID": _read("/etc/machine-id").strip(),
        "operatingSystem": platform.system().lower(),
        "osImage": release.get("PRETTY_NAME", "").strip('"') or "unknown",
        "systemUUID": "",
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""
