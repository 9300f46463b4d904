"""`dray up` in a process of its own, and shorthands for the kubectl calls of use cases."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import SOON, ended, until
from tests.e2e.server import clean_environment, command

HERE = Path(__file__).parent
USE_CASES = HERE / "use_cases"
SEEDS = HERE.parent.parent / "examples" / "seeds"
"""Seconds in which whatever a cluster does by itself is done."""
EVERYWHERE = ("nodes", "resourceslices", "deviceclasses")
"""What belongs to no namespace, and would be seen by the next use case."""

_numbers = itertools.count(1)

Document = dict[str, Any]


@contextmanager
def upped(folder: Path, *options: str) -> Iterator[Path]:
    """The kubeconfig of a cluster without nodes that runs while the block lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    data, log = folder / "data", folder / "up.log"
    arguments = command("up", "--nodes", "0", "--data-dir", str(data), "--port", "0", *options)
    with log.open("ab") as lines:
        said = log.read_text().count("use it with")
        process = subprocess.Popen(arguments, stdout=lines, stderr=lines, stdin=subprocess.DEVNULL)
    try:
        until(
            lambda: log.read_text().count("use it with") > said or process.poll() is not None, log.read_text
        )
        assert process.poll() is None, f"the cluster did not start:\n{log.read_text()}"
        yield data / "admin.kubeconfig"
        assert process.poll() is None, f"the cluster ended by itself:\n{log.read_text()}"
    finally:
        ended(process)
    text = log.read_text()
    assert " ERROR " not in text, text


def template(name: str, entry: str = "devices") -> Document:
    """A pod's entry for a claim of its own."""
    return {"name": entry, "resourceClaimTemplateName": name}


def named(claim: str, entry: str = "devices") -> Document:
    """A pod's entry for a claim that others may use, too."""
    return {"name": entry, "resourceClaimName": claim}


def claim(name: str, *requests: Document, **devices: Any) -> Document:
    """A claim; a request is for one device when it has only a class."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": list(requests), **devices}},
    }


def request(name: str, device_class: str, **exactly: Any) -> Document:
    return {"name": name, "exactly": {"deviceClassName": device_class, **exactly}}


def pod(name: str, *entries: Document, **spec: Any) -> Document:
    claims = [{"name": entry["name"]} for entry in entries]
    container = {"name": "c", "image": "pause:3", "resources": {"claims": claims}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "resourceClaims": list(entries), **spec},
    }


def node(name: str, **labels: str) -> Document:
    resources = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {"capacity": resources, "allocatable": resources},
    }


def fabric(driver: str, *devices: str) -> Document:
    """Devices that every node reaches."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "fabric"},
        "spec": {
            "driver": driver,
            "allNodes": True,
            "pool": {"name": "fabric", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": name} for name in devices],
        },
    }


@dataclass(frozen=True)
class Stage:
    """A namespace of a running cluster."""

    kubectl: Kubectl
    others: list[Stage] = field(default_factory=list)

    @classmethod
    def opened(cls, program: str, home: Path, kubeconfig: Path, **labels: str) -> Stage:
        """A stage that nobody else uses."""
        name = f"case-{next(_numbers)}"
        kubectl = Kubectl(program, clean_environment(home, kubeconfig), name)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        kubectl("create", "-f", "-", given=namespace)
        return cls(kubectl)

    def beside(self, **labels: str) -> Stage:
        """Another namespace of the same cluster."""
        home, kubeconfig = (Path(self.kubectl.environment[name]) for name in ("HOME", "KUBECONFIG"))
        other = Stage.opened(self.kubectl.program, home, kubeconfig, **labels)
        self.others.append(other)
        return other

    def cleared(self) -> None:
        """Remove what other use cases would see."""
        for stage in (self, *self.others):
            stage.kubectl("delete", "pods", "--all", "--grace-period=0", "--force")
        self.kubectl("delete", ",".join(EVERYWHERE), "--all")

    def scenery(self, *files: Path | str) -> None:
        """Apply manifests, those of use cases by name."""
        paths = [USE_CASES / f"{file}.yaml" if isinstance(file, str) else file for file in files]
        self.kubectl("apply", *[word for path in paths for word in ("-f", str(path))])

    def make(self, *documents: Document) -> None:
        self.kubectl("create", "-f", "-", given=list(documents))

    def ends(self, *pods: str) -> None:
        """Pods end at once: there is nobody who runs them."""
        self.kubectl("delete", "pod", *pods, "--grace-period=0", "--force")

    # --- what came of it ---

    def bound(self, name: str) -> str:
        """The node of a pod, as soon as it has one."""
        where = "jsonpath={.spec.nodeName}"
        wait = ("wait", f"--for={where}", f"pod/{name}", f"--timeout={SOON:g}s", "-o", where)
        return self.kubectl(*wait).out

    def pending(self, name: str) -> str:
        """Why a pod has no node, as soon as its condition and an event of it say the same."""
        found: list[str] = []

        def is_told() -> bool:
            document = self.kubectl.get("pod", name)
            assert "nodeName" not in document["spec"], document["spec"]["nodeName"]
            conditions = document["status"].get("conditions", [])
            why = [each["message"] for each in conditions if each["type"] == "PodScheduled"]
            found[:] = why
            return bool(why) and why[0] in self.events(name)

        until(is_told, lambda: (found, self.events(name)))
        return found[0]

    def until_pending_says(self, name: str, words: str) -> str:
        """Why a pod has no node, as soon as these words are in it."""
        until(lambda: words in self.pending(name), lambda: self.pending(name))
        return self.pending(name)

    def events(self, name: str) -> list[str]:
        found = self.kubectl.get("events", f"--field-selector=involvedObject.name={name}")["items"]
        return [event["message"] for event in found]

    def claim(self, name: str) -> Document:
        found: Document = self.kubectl.get("resourceclaims.resource.k8s.io", name)
        return found

    def claims(self) -> list[Document]:
        found: list[Document] = self.kubectl.get("resourceclaims.resource.k8s.io")["items"]
        return found

    def claim_of(self, name: str, entry: str = "devices") -> str:
        """The name of the claim that was made for a pod."""
        statuses = self.kubectl.get("pod", name)["status"]["resourceClaimStatuses"]
        return next(str(status["resourceClaimName"]) for status in statuses if status["name"] == entry)

    def results(self, claim: str) -> list[Document]:
        found: list[Document] = self.claim(claim)["status"]["allocation"]["devices"]["results"]
        return found

    def devices(self, claim: str) -> list[str]:
        """What a claim has: request, pool and device of each."""
        return [" ".join((each["request"], each["pool"], each["device"])) for each in self.results(claim)]

    def got(self, name: str, entry: str = "devices") -> list[str]:
        """What a pod's own claim has."""
        return self.devices(self.claim_of(name, entry))

    def users(self, claim: str) -> list[str]:
        return sorted(user["name"] for user in self.claim(claim)["status"].get("reservedFor", []))

    def until_free(self, claim: str) -> None:
        """Wait until a claim has no devices and no users."""
        until(
            lambda: not {"allocation", "reservedFor"} & set(self.claim(claim).get("status", {})),
            lambda: self.claim(claim),
        )

    def until_gone(self) -> None:
        """Wait until no claim is left."""
        until(lambda: not self.claims(), self.claims)
