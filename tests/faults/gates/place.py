"""A cluster of processes whose server and scheduler come back with other gates while its pods run on."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from dray.gates import GateSet
from dray.node.claims.checkpoint import Checkpoint
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.e2e.processes import Cluster, Node, Process
from tests.e2e.server import clean_environment, running
from tests.e2e.use_case_cluster import claim, named, request

Document = dict[str, Any]

DRIVER, NODE, ROOT = "all.example.com", "worker", "example.com/root"
STOCK = ("-m", "tests.e2e.programs.stock")
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
PREPARATIONS = "/apis/dray.dev/v1alpha1/preparations"
FEATURES = (
    "DRAPrioritizedList",
    "DRAConsumableCapacity",
    "DRAListTypeAttributes",
    "DRAResourceSlicePriority",
)
EVERYTHING = tuple(gate.name for gate, _ in GateSet.from_defaults())


def off(*gates: str) -> tuple[str, ...]:
    """The option that switches gates off."""
    return ("--feature-gates", ",".join(f"{gate}=false" for gate in gates)) if gates else ()


# --- what there is, and who uses it ---


def _device(name: str, model: str, **more: Any) -> Document:
    attributes = {"model": model, **more.pop("attributes", {})}
    return {"name": name, "attributes": attributes, **more}


_SHARED = {"value": "10Gi", "default": "1Gi", "min": "1Gi", "max": "8Gi", "step": "1Gi"}
POOLS = [
    {
        "slices": [
            {"priority": 1, "devices": [_device("last", "ordered")]},
            {
                "priority": 5,
                "devices": [
                    _device("first", "ordered"),
                    _device("gpu-0", "gpu"),
                    _device("gpu-1", "gpu"),
                    _device("eth0", "nic", shared=True, capacity={"bandwidth": _SHARED}),
                    _device("cpu-0", "cpu", attributes={ROOT: ["r1", "r2"]}),
                    _device("card-0", "card", attributes={ROOT: "r2"}),
                ],
            },
        ]
    }
]
MODELS = ("ordered", "gpu", "nic", "cpu", "card", "never")


def _class(model: str) -> Document:
    expression = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].model == "{model}"'
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": model},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def either(name: str) -> Document:
    choices = [{"name": each, "deviceClassName": each} for each in ("never", "gpu")]
    return claim(name, {"name": "dev", "firstAvailable": choices})


def share(name: str) -> Document:
    return claim(name, request("dev", "nic", capacity={"requests": {"bandwidth": "2Gi"}}))


def aligned(name: str) -> Document:
    near = {"requests": ["dev", "card"], "matchAttribute": ROOT}
    return claim(name, request("dev", "cpu"), request("card", "card"), constraints=[near])


def ordered(name: str) -> Document:
    return claim(name, request("dev", "ordered"))


USED = {"either": either, "share": share, "aligned": aligned, "ordered": ordered}
"""A claim of each feature; each is used by a pod of the same name."""
GOT = {"either": "gpu-0", "share": "eth0", "aligned": "cpu-0", "ordered": "first"}


def pod(name: str, script: str, **spec: Any) -> Document:
    container: Document = {"name": "c", "image": "none:1", "command": ["sh", "-euc", script]}
    if "resourceClaims" in spec:
        container["resources"] = {"claims": [{"name": each["name"]} for each in spec["resourceClaims"]]}
    more = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, **spec}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **more},
    }


def using(name: str) -> Document:
    """A pod that runs on with what it got."""
    script = "echo pid=$$$$ got=$ALL_DEV_DEVICES; exec sleep 3600"
    return pod(name, script, resourceClaims=[named(name)])


# --- what must stay as it is ---


@dataclass(frozen=True)
class Seen:
    """Everything about pods that run and what was given to them, where it can be seen."""

    claims: dict[str, str] = field(default_factory=dict)
    preparations: dict[str, str] = field(default_factory=dict)
    pods: dict[str, object] = field(default_factory=dict)
    processes: dict[str, str] = field(default_factory=dict)
    """When the processes of containers started, by their numbers."""
    files: dict[str, bytes] = field(default_factory=dict)
    """CDI files, what the driver wrote down, and what the agent did."""

    @property
    def on_node(self) -> Seen:
        """What can be seen while the API does not show claims."""
        return replace(self, claims={}, preparations={})


class Place:
    """The cluster, and the ways in which it is disturbed."""

    def __init__(self, folder: Path, kubectl: str, home: Path, stack: ExitStack) -> None:
        self._folder, self._serving = folder, ExitStack()
        stack.callback(self._serving.close)
        server = self._serving.enter_context(running(folder))
        self._port = server.url.rsplit(":", 1)[1].rstrip("/")
        self.cluster = Cluster(folder, server, stack)
        self.kubectl = Kubectl(kubectl, clean_environment(home, server.kubeconfig), "default")
        self._scheduler = self.cluster.service("scheduler", "dray:scheduler")
        self.cluster.service("controller", "dray:controller")
        self.node: Node = self.cluster.node(NODE)
        told = json.dumps({"driver": DRIVER, "pools": POOLS})
        self.driver: Process = self.cluster.kit_driver(self.node, DRIVER, STOCK, STOCK=told)
        self._pids: dict[str, str] = {}

    def furnish(self) -> None:
        """A pod for each feature, and a look at what it got."""
        self.kubectl("create", "-f", "-", given=[_class(model) for model in MODELS])
        for name, wanted in USED.items():
            self.kubectl("create", "-f", "-", given=[wanted(name), using(name)])
        for name, device in GOT.items():
            self.told(name, device)

    def told(self, name: str, device: str) -> None:
        """Wait until a pod says that it has a device."""
        line = f"got={device}"
        until(lambda: line in self._log(name), lambda: self.kubectl("describe", "pod", name).out)
        self._pids[name] = self._log(name).split()[0].removeprefix("pid=")

    def _log(self, name: str) -> str:
        if self.kubectl.get("pod", name)["status"]["phase"] != "Running":
            return ""
        return self.kubectl("logs", name).out

    # --- disturbing it ---

    def server(self, *gates: str) -> None:
        """The server goes, and comes back without these gates."""
        self._serving.close()
        options = ("--port", self._port, *off(*gates))
        self._serving.enter_context(running(self._folder, *options))

    def gone(self) -> None:
        """The server goes."""
        self._serving.close()

    def scheduler(self, *gates: str) -> None:
        self._scheduler.stop()
        self._scheduler = self.cluster.service("scheduler", "dray:scheduler", *off(*gates))

    def agent(self, how: signal.Signals = signal.SIGKILL) -> None:
        self.node.agent.stop(how)
        self.node.agent.start()

    def plugin(self) -> None:
        """The driver goes and comes back."""
        self.driver.stop(signal.SIGKILL)
        self.driver.ready = "serving"  # where claims are switched off it serves, and cannot publish
        self.driver.start()

    # --- looking at it ---

    def works(self, name: str = "plain") -> None:
        """A pod that asks for nothing comes, runs and goes: everybody is awake."""
        self.kubectl("create", "-f", "-", given=pod(name, "echo well"))
        self.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}", "--timeout=50s")
        self.kubectl("delete", "pod", name, "--timeout=50s")

    def seen(self, *, claims: bool = True) -> Seen:
        """What there is to see now."""
        root = self.node.root
        folders = (root / "cdi", root / "plugins" / DRIVER / "state" / "prepared")
        files = {
            str(each.relative_to(root)): each.read_bytes() for folder in folders for each in folder.iterdir()
        }
        return Seen(
            claims=self._raw(CLAIMS) if claims else {},
            preparations=self._raw(PREPARATIONS) if claims else {},
            pods=self._pods(),
            processes={pid: _started(pid) for pid in self._pids.values()},
            files=files | {"checkpoint": msgspec.json.encode(Checkpoint(root / "checkpoint").load())},
        )

    def forget(self, name: str) -> None:
        """A pod is deleted, and its claim with it."""
        self.kubectl("delete", "pod", name, "--timeout=50s")
        self.kubectl("delete", "resourceclaim", name, "--timeout=50s")
        assert _started(self._pids.pop(name)) == ""

    def _raw(self, where: str) -> dict[str, str]:
        """Objects as the server writes them, fields in its order."""
        items = self.kubectl("get", "--raw", where).document["items"]
        return {item["metadata"]["name"]: json.dumps(item) for item in items}

    def _pods(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for each in self.kubectl.get("pods")["items"]:
            (container,) = each["status"]["containerStatuses"]
            found[each["metadata"]["name"]] = (
                each["metadata"]["uid"],
                each["spec"],
                each["status"]["phase"],
                {key: container[key] for key in ("containerID", "restartCount", "state")},
            )
        return found


def _started(pid: str) -> str:
    """When a process started; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except FileNotFoundError:
        return ""


@contextmanager
def placed(folder: Path, kubectl: str, home: Path) -> Iterator[Place]:
    """A cluster for as long as the block lasts."""
    with ExitStack() as stack:
        yield Place(folder, kubectl, home, stack)
