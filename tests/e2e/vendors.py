"""A cluster for use cases of the classic path: nodes, drivers of two parts, pods that check what they got."""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.contract.classic import classic_claim
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.e2e.processes import Cluster, Node, Process, cluster
from tests.e2e.server import clean_environment

CLAIMS = "resourceclaims.cdi.k8s.io"
_numbers = itertools.count(1)

Document = dict[str, Any]


@dataclass(frozen=True)
class Vendor:
    """A driver that somebody sells: the program of both parts, and what it finds in its environment."""

    name: str
    program: Sequence[str]
    """What Python runs: a module, or a file."""
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    """Options of the controller."""


@dataclass(frozen=True)
class Place:
    """A cluster of processes, and a namespace in it."""

    cluster: Cluster
    nodes: Mapping[str, Node]
    kubectl: Kubectl
    services: Mapping[str, Process]
    """The scheduler and the controller."""
    parts: dict[tuple[str, str], Process] = field(default_factory=dict)
    """Those of drivers, by the driver's name and the node's."""

    # --- drivers ---

    def installs(self, vendor: Vendor, *nodes: str) -> None:
        """Start the controller of a driver and its parts on nodes, each with the rights of its role."""
        parts = [partial(self._on_node, vendor, self.nodes[node]) for node in nodes]
        at_once(partial(self._allocating, vendor), *parts)

    def _allocating(self, vendor: Vendor) -> None:
        name = vendor.name
        account = self.cluster.credentials(name, f"dray:driver:{name}", "dray:classic-drivers")
        command = (*vendor.program, "controller", *vendor.options)
        self._part(vendor, "controller", command, "allocating", KUBECONFIG=str(account))

    def _on_node(self, vendor: Vendor, node: Node) -> None:
        groups = (f"dray:driver:{vendor.name}", "dray:classic-drivers", f"dray:on-node:{node.name}")
        places = {
            "NODE_NAME": node.name,
            "DRAY_PLUGINS": str(node.root / "plugins"),
            "DRAY_PLUGINS_REGISTRY": str(node.root / "plugins_registry"),
            "DRAY_CDI_DIR": str(node.root / "cdi"),
            "KUBECONFIG": str(self.cluster.credentials(vendor.name, *groups)),
        }
        self._part(vendor, node.name, vendor.program, "serving", **places)

    def _part(self, vendor: Vendor, part: str, command: Sequence[str], ready: str, **given: str) -> None:
        words = [f"{name}={value}" for name, value in {**vendor.environment, **given}.items()]
        log = self.cluster.folder / f"{vendor.name}-{part}.log"
        process = Process(["env", *words, sys.executable, *command], log, ready)
        self.parts[vendor.name, part] = self.cluster._started(process)

    # --- what people do ---

    def apart(self) -> Place:
        """The same cluster, with a namespace that nobody else uses."""
        name = f"case-{next(_numbers)}"
        self.kubectl("create", "namespace", name)
        kubectl = Kubectl(self.kubectl.program, self.kubectl.environment, name)
        return replace(self, kubectl=kubectl)

    def makes(self, *documents: Document) -> None:
        self.kubectl("create", "-f", "-", given=list(documents))

    def claim(self, name: str, of: str, mode: str = "Delayed", **parameters: Any) -> None:
        document = classic_claim(name, mode, self.kubectl.namespace, **parameters)
        document["spec"]["resourceClassName"] = of
        self.makes(document)

    # --- what came of it ---

    def seen(self) -> str:
        """Everything that helps to understand what is not as it should be."""
        logs = sorted(self.cluster.folder.glob("*.log"))
        said = [f"--- {log.name}\n{log.read_text()[-1500:]}" for log in logs]
        there = self.kubectl("get", f"pods,{CLAIMS},events", "-o", "wide").out
        return "\n".join([there, self.kubectl("get", CLAIMS, "-o", "yaml").out, *said])

    def phase(self, pod: str) -> str:
        return str(self.kubectl.get("pod", pod)["status"].get("phase"))

    def node_of(self, pod: str) -> str:
        return str(self.kubectl.get("pod", pod)["spec"].get("nodeName", ""))

    def runs(self, pod: str) -> str:
        """The node of a pod that has begun to run."""
        until(lambda: self.phase(pod) == "Running", self.seen)
        return self.node_of(pod)

    def succeeds(self, pod: str) -> str:
        """What a pod said that ended well: its command checked what it got."""
        until(lambda: self.phase(pod) in ("Succeeded", "Failed"), self.seen)
        assert self.phase(pod) == "Succeeded", self.kubectl("logs", pod, "--all-containers").out + self.seen()
        return self.kubectl("logs", pod, "--all-containers").out

    def told(self, about: str, words: str) -> None:
        """Wait until an event says something."""

        def said() -> str:
            events = self.kubectl.get("events", f"--field-selector=involvedObject.name={about}")
            return "\n".join(event["message"] for event in events["items"])

        until(lambda: words in said(), lambda: said() + self.seen())

    def status(self, claim: str) -> Document:
        found: Document = self.kubectl.get(CLAIMS, claim)["status"]
        return found

    def without_claims(self) -> None:
        """Wait until no claim is left."""
        until(lambda: self.kubectl.get(CLAIMS)["items"] == [], self.seen)


def inline(of: str, entry: str = "res", **parameters: Any) -> Document:
    """An entry for a claim of the pod's own."""
    return {"name": entry, "template": {"spec": {"resourceClassName": of, "parameters": parameters}}}


def named(claim: str, entry: str = "res") -> Document:
    return {"name": entry, "resourceClaimName": claim}


def container(script: str, *entries: str, name: str = "c") -> Document:
    """A container that runs a script; a step that fails ends it."""
    claims = [{"name": entry} for entry in entries]
    command = ["sh", "-ec", script]
    return {"name": name, "image": "none", "command": command, "resources": {"claims": claims}}


def pod(name: str, entries: Sequence[Document], *containers: Document, node: str = "") -> Document:
    spec: Document = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "resourceClaims": list(entries),
        "containers": list(containers),
    }
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@contextmanager
def vendors_place(folder: Path, home: Path, program: str, *nodes: str) -> Iterator[Place]:
    """Server, scheduler, controller and agents of nodes, each in a process of its own."""
    with cluster(folder) as started:
        kubectl = Kubectl(program, clean_environment(home, started.server.kubeconfig), "default")
        names = ("scheduler", "controller")
        services = [partial(started.service, name, f"dray:{name}") for name in names]
        agents = [partial(started.node, name, "--label", "fabric=main") for name in nodes]
        scheduler, controller, *made = at_once(*services, *agents)
        on = dict(zip(nodes, made, strict=True))
        yield Place(started, on, kubectl, {"scheduler": scheduler, "controller": controller})


def at_once(*starts: Callable[[], Any]) -> list[Any]:
    """Start several processes together: each waits for its own, and there are two cores."""
    with ThreadPoolExecutor(len(starts)) as threads:
        return [each.result() for each in [threads.submit(start) for start in starts]]


@contextmanager
def folder_of_vendor() -> Iterator[Path]:
    """A folder that stands for what only the driver can reach."""
    made = Path(tempfile.mkdtemp(prefix="dray-"))
    try:
        yield made
    finally:
        shutil.rmtree(made)
