"""What one write costs the API server: `python -m bench.writes [--count N] [--profile NAME]`.

Theory of operation: the server runs in this process, over a durable store and with its audit log, and gets
the requests one after the other as from a component in the same process. Its work is told in numbers that do
not depend on the machine (calls of Python and C functions in the event loop, texts decoded and encoded, audit
lines), and in the time of the processor with all threads. A counted run is one of its own: counting takes
longer than what it counts.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec
import uvloop

from bench import serverobjects
from dray.api.json_text import write_json
from dray.api.transactions import GROUP, KIND, TRANSACTIONS_PATH, VERSION
from dray.cluster.services.api_server import AUDIT_FILE, ServerProcessOptions, open_server
from dray.server.http.application import ApiApplication, InProcessRequest
from dray.server.http.requests import AUTHENTICATED, MASTERS, ApiResponse, RequestUser

COUNTED: Final = 20
ROUNDS: Final = 5
"""Rounds of timed writes, of which the best counts."""
PODS: Final = "/api/v1/namespaces/default/pods"
EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
NODE: Final = "node-0"
FIRST_BOUND_DEVICE: Final = 100_000
"""The devices of claims that are allocated with a binding; those of the others come before."""
USER: Final = RequestUser("bench", (MASTERS, AUTHENTICATED))
JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
_TRANSACTION: Final = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND}
NOW: Final = "2026-01-01T00:00:00Z"

Document = dict[str, Any]


@dataclass(frozen=True)
class WriteCost:
    """What one write costs."""

    write: str
    calls: float
    decodes: float
    encodes: float
    audit_lines: float
    microseconds: float


class Target:
    """A server in this process."""

    def __init__(self, app: ApiApplication) -> None:
        self._app = app
        self._answers: dict[str, Document] = {}

    async def send(
        self, method: str, path: str, document: Document | None = None, content_type: str = JSON
    ) -> ApiResponse:
        """Send a request; anything but success ends the measurement."""
        body = b"" if document is None else write_json(document)
        headers = {"accept": JSON, "user-agent": "bench/1", "content-type": content_type}
        response = await self._app.serve_in_process(InProcessRequest(method, path, {}, headers, body), USER)
        if response.code >= 400:
            raise SystemExit(f"{method} {path}: {response.code} {response.body!r}")
        return response

    async def read_version(self, path: str) -> str:
        """Read the version of an object, which an update names."""
        response = await self.send("GET", path)
        assert isinstance(response.body, bytes)
        return str(json.loads(response.body)["metadata"]["resourceVersion"])


Request = tuple[str, str, Document | None, str]
"""Method, path, body and its media type."""


@dataclass(frozen=True)
class MeasuredWrite:
    """A sort of write: what must be there before, and the request."""

    prepare: Callable[[Target, str], Any]
    build: Callable[[str, Any], Request]
    """Builds the request for the object of a name; gets what `prepare` returned."""


def build_pod(name: str) -> Document:
    """A pod with two containers, a claim from a template, resources and labels, as a user writes it."""
    containers = [
        {
            "name": role,
            "image": f"registry.example/{role}:1",
            "env": [{"name": "RANK", "value": "0"}, {"name": "ROLE", "value": role}],
            "resources": {
                "requests": {"cpu": "500m", "memory": "1Gi"},
                "limits": {"memory": "2Gi"},
                "claims": [{"name": "gpu"}],
            },
            "ports": [{"containerPort": 8080, "name": f"{role}-http"}],
        }
        for role in ("train", "sidecar")
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "train", "queue": "research"}},
        "spec": {
            "containers": containers,
            "restartPolicy": "Never",
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
        },
    }


def _build_status_patch(name: str) -> Document:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": NOW}
    containers = [
        {
            "name": role,
            "image": f"registry.example/{role}:1",
            "imageID": "sha256:0",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": NOW}},
        }
        for role in ("train", "sidecar")
    ]
    status = {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "startTime": NOW,
        "conditions": [{"type": "PodReadyToStartContainers", "status": "True"}, ready],
        "containerStatuses": containers,
    }
    return {"metadata": {"name": name}, "status": status}


def _build_event(name: str) -> Document:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Normal",
        "reason": "Scheduled",
        "action": "Binding",
        "note": f"Successfully assigned default/{name} to {NODE}",
        "reportingController": "default-scheduler",
        "reportingInstance": "default-scheduler-0",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": name, "uid": "1"},
    }


def _build_lease(name: str, version: str = "") -> Document:
    metadata = {"name": name, "namespace": "default"}
    if version:
        metadata["resourceVersion"] = version
    renewed = "2026-01-01T00:00:00.000000Z" if version else "2025-12-31T00:00:00.000000Z"
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def _build_binding(name: str) -> Document:
    target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}


async def _prepare_nothing(target: Target, name: str) -> None:
    """There is nothing to prepare."""


async def _prepare_pod(target: Target, name: str) -> None:
    await target.send("POST", PODS, build_pod(name))


async def _prepare_bound_pod(target: Target, name: str) -> None:
    await target.send("POST", PODS, build_pod(name))
    await target.send("POST", f"{PODS}/{name}/binding", _build_binding(name))


async def _prepare_claim(target: Target, name: str) -> str:
    claim = await target.send("POST", serverobjects.CLAIMS, serverobjects.claim_document(name))
    assert claim.stored is not None
    return str(claim.stored.revision)


async def _prepare_pod_and_claim(target: Target, name: str) -> str:
    await _prepare_pod(target, name)
    return await _prepare_claim(target, name)


async def _prepare_lease(target: Target, name: str) -> str:
    lease = await target.send("POST", LEASES, _build_lease(name))
    assert lease.stored is not None
    return str(lease.stored.revision)


def _allocate(name: str, version: str, first_device: int = 0) -> Request:
    number = int(name.rpartition("-")[2])
    document = json.loads(serverobjects.allocated(name, version, first_device + number))
    return "PUT", f"{serverobjects.CLAIMS}/{name}/status", document, JSON


def _allocate_and_bind(name: str, version: str) -> Request:
    """Do in one transaction what the scheduler writes for a pod."""
    binding = ("POST", f"{PODS}/{name}/binding", _build_binding(name), JSON)
    requests = [
        {"method": method, "path": path, "body": body}
        for method, path, body, _ in (_allocate(name, version, FIRST_BOUND_DEVICE), binding)
    ]
    return "POST", TRANSACTIONS_PATH, {**_TRANSACTION, "spec": {"requests": requests}}, JSON


WRITES: Final[dict[str, MeasuredWrite]] = {
    "create pod": MeasuredWrite(_prepare_nothing, lambda name, _: ("POST", PODS, build_pod(name), JSON)),
    "bind pod": MeasuredWrite(
        _prepare_pod, lambda name, _: ("POST", f"{PODS}/{name}/binding", _build_binding(name), JSON)
    ),
    "patch pod status": MeasuredWrite(
        _prepare_bound_pod,
        lambda name, _: ("PATCH", f"{PODS}/{name}/status", _build_status_patch(name), MERGE),
    ),
    "patch pod as kubelet": MeasuredWrite(
        _prepare_bound_pod,
        lambda name, _: ("PATCH", f"{PODS}/{name}/status", _build_status_patch(name), STRATEGIC),
    ),
    "delete pod": MeasuredWrite(_prepare_pod, lambda name, _: ("DELETE", f"{PODS}/{name}", None, JSON)),
    "create claim": MeasuredWrite(
        _prepare_nothing,
        lambda name, _: ("POST", serverobjects.CLAIMS, serverobjects.claim_document(name), JSON),
    ),
    "allocate claim": MeasuredWrite(_prepare_claim, _allocate),
    "allocate and bind": MeasuredWrite(_prepare_pod_and_claim, _allocate_and_bind),
    "create event": MeasuredWrite(
        _prepare_nothing, lambda name, _: ("POST", EVENTS, _build_event(name), JSON)
    ),
    "renew lease": MeasuredWrite(
        _prepare_lease,
        lambda name, version: ("PUT", f"{LEASES}/{name}", _build_lease(name, str(version)), JSON),
    ),
}
"""The sorts of writes that are measured."""


class CallCounter:
    """Counts the calls of functions in this thread, and the texts that are decoded and encoded."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> CallCounter:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.counts["calls"] += 1
        elif event == "c_call":
            self.counts["calls"] += 1
            owner = getattr(argument, "__self__", None)
            if isinstance(owner, msgspec.json.Decoder):
                self.counts["decodes"] += 1
            elif isinstance(owner, msgspec.json.Encoder):
                self.counts["encodes"] += 1


class WriteMeasurement:
    """Measures one sort of write."""

    def __init__(self, target: Target, audit: Path, sort: str, write: MeasuredWrite) -> None:
        self._target, self._audit, self._sort, self._write = target, audit, sort, write
        self._number = 0

    async def _prepare_requests(self, count: int) -> list[Request]:
        requests = []
        for _ in range(count):
            self._number += 1
            name = f"{self._sort.replace(' ', '-')}-{self._number}"
            requests.append(self._write.build(name, await self._write.prepare(self._target, name)))
        return requests

    async def _send_all(self, requests: list[Request]) -> None:
        for request in requests:
            await self._target.send(*request)

    async def measure(self, count: int) -> WriteCost:
        """Time and count the write; one round before that fills the caches."""
        await self._send_all(await self._prepare_requests(COUNTED))
        seconds = []
        for _ in range(ROUNDS):
            requests = await self._prepare_requests(count)
            begun = time.process_time()
            await self._send_all(requests)
            seconds.append((time.process_time() - begun) / count)
        requests = await self._prepare_requests(COUNTED)
        lines = self._count_audit_lines()
        with CallCounter() as counter:
            await self._send_all(requests)
        counts = {name: counter.counts[name] / COUNTED for name in ("calls", "decodes", "encodes")}
        lines = self._count_audit_lines() - lines
        return WriteCost(self._sort, **counts, audit_lines=lines / COUNTED, microseconds=min(seconds) * 1e6)

    async def profile(self, count: int) -> None:
        """Print where the time of the event loop goes."""
        await self._send_all(await self._prepare_requests(COUNTED))
        requests = await self._prepare_requests(count)
        profiler = cProfile.Profile()
        profiler.enable()
        await self._send_all(requests)
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(60)

    def _count_audit_lines(self) -> int:
        return self._audit.read_bytes().count(b"\n")


async def measure(sorts: list[str], count: int, *, profile: bool) -> list[WriteCost]:
    """Measure sorts of writes on a fresh server."""
    costs = []
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as folder:
        directory = Path(folder) / "server"
        async with open_server(ServerProcessOptions(directory, port=0)) as server:
            target = Target(server.app)
            await target.send("POST", serverobjects.CLASSES, json.loads(serverobjects.device_class()))
            await target.send("POST", serverobjects.NODES, json.loads(serverobjects.node(0)))
            for sort in sorts:
                work = WriteMeasurement(target, directory / AUDIT_FILE, sort, WRITES[sort])
                if profile:
                    await work.profile(count)
                    continue
                costs.append(cost := await work.measure(count))
                print(
                    f"{cost.write:20}{cost.calls:>8.0f}{cost.decodes:>9.1f}{cost.encodes:>9.1f}"
                    f"{cost.audit_lines:>13.1f}{cost.microseconds:>14.0f}",
                    flush=True,
                )
    return costs


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m bench.writes", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="writes in a round")
    parser.add_argument("--only", choices=sorted(WRITES), help="one sort of write")
    parser.add_argument("--profile", action="store_true", help="print a profile instead of the table")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    chosen = parser.parse_args(arguments)
    sorts = [chosen.only] if chosen.only else list(WRITES)
    if not chosen.profile:
        print(f"{'':20}{'calls':>8}{'decodes':>9}{'encodes':>9}{'audit lines':>13}{'processor µs':>14}")
    costs = uvloop.run(measure(sorts, chosen.count, profile=chosen.profile))
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=2) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
