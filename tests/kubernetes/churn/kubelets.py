"""Kubelets of nodes that do not exist: they renew leases, run pods in name only, and end them.

Theory of operation: one loop lists pods, and does for each what its kubelet would do next: start it when its
claims are allocated and reserved for it, end it when its label says so, delete it when it terminates. A call
that failed is tried again in the next round, so a killed server needs no case of its own.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

from tests.faults.ledger.api import MERGE, Api
from tests.kubernetes.churn.objects import DRIVER_STATUS, ENDS, build_node_status, build_path

Document = dict[str, Any]
STRATEGIC = "application/strategic-merge-patch+json"
POLL = 0.7
RENEW = 8.0
"""Seconds between renewals of a node's lease; a node is lost after 40."""
WORKS_FOR = 2.0
"""Seconds that a pod runs before it ends by itself."""


def format_now(micro: bool = False) -> str:
    now = datetime.now(UTC)
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


class SimulatedKubelets:
    """The kubelets of all nodes in `nodes`."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.nodes: set[str] = set()
        self.faults: list[str] = []
        """Pods that were placed without their claims: what a kubelet would wait for in vain."""
        self.started = 0
        self._renewed: dict[str, float] = {}
        self._running: dict[str, float] = {}

    async def run(self) -> None:
        """Do the work of kubelets until cancelled."""
        while True:
            await self._renew_leases()
            await self._sync_pods()
            await asyncio.sleep(POLL)

    async def _renew_leases(self) -> None:
        for name in sorted(self.nodes):
            if time.monotonic() - self._renewed.get(name, -RENEW) < RENEW:
                continue
            spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": format_now(True)}
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}
            home = build_path("leases", "kube-node-lease")
            code, _ = await self._api.send("PATCH", f"{home}/{name}", {"spec": spec}, MERGE)
            if code == 404:
                code, _ = await self._api.send("POST", home, {**lease, "spec": spec})
            status = build_node_status(format_now())
            await self._api.send("PATCH", f"{build_path('nodes', name=name)}/status", status, STRATEGIC)
            if code in (200, 201):
                self._renewed[name] = time.monotonic()

    async def _sync_pods(self) -> None:
        code, pods = await self._api.send("GET", build_path("pods"))
        if code != 200:
            return
        mine = [pod for pod in pods["items"] if pod["spec"].get("nodeName") in self.nodes]
        for pod in mine:
            await self._sync_pod(pod)
        alive = {pod["metadata"]["uid"] for pod in mine}
        self._running = {uid: since for uid, since in self._running.items() if uid in alive}

    async def _sync_pod(self, pod: Document) -> None:
        metadata, phase = pod["metadata"], pod.get("status", {}).get("phase", "Pending")
        path = build_path("pods", metadata["namespace"], metadata["name"])
        if "deletionTimestamp" in metadata:
            await self._remove(path, pod, phase)
        elif phase == "Pending" and await self._has_claims(pod):
            code, _ = await self._api.send("PATCH", f"{path}/status", build_running(pod), STRATEGIC)
            if code == 200:
                self.started += 1
                self._running[metadata["uid"]] = time.monotonic()
        elif phase == "Running" and (end := metadata.get("labels", {}).get(ENDS)):
            now = time.monotonic()
            if now - self._running.setdefault(metadata["uid"], now) > WORKS_FOR:
                await self._api.send("PATCH", f"{path}/status", build_ended(pod, end), STRATEGIC)

    async def _remove(self, path: str, pod: Document, phase: str) -> None:
        """A kubelet says that nothing runs any more before it deletes the pod."""
        if phase == "Running":
            await self._api.send("PATCH", f"{path}/status", build_ended(pod, "Failed"), STRATEGIC)
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        options["preconditions"] = {"uid": pod["metadata"]["uid"]}
        await self._api.send("DELETE", path, options)

    async def _has_claims(self, pod: Document) -> bool:
        """Whether each claim of the pod is allocated and reserved for it; a driver writes what it did."""
        metadata = pod["metadata"]
        made = {
            entry["name"]: entry.get("resourceClaimName")
            for entry in pod.get("status", {}).get("resourceClaimStatuses") or ()
        }
        for entry in pod["spec"].get("resourceClaims") or ():
            name = entry.get("resourceClaimName") or made.get(entry["name"])
            path = build_path("resourceclaims", metadata["namespace"], str(name))
            code, claim = await self._api.send("GET", path)
            if code == 0:
                return False
            status = claim.get("status", {}) if code == 200 else {}
            users = {user["uid"] for user in status.get("reservedFor") or ()}
            if "allocation" not in status or metadata["uid"] not in users:
                self._note_fault(pod, f"{name}: {code} {status}")
                return False
            if DRIVER_STATUS in metadata.get("labels", {}):
                await self._report_devices(path, status["allocation"])
        return True

    def _note_fault(self, pod: Document, text: str) -> None:
        """A pod that was deleted meanwhile may lose its claims; the next round shows that."""
        if self._running.get(pod["metadata"]["uid"]) is None:
            self.faults.append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}: {text}")

    async def _report_devices(self, path: str, allocation: Document) -> None:
        condition = {"type": "Ready", "status": "True", "reason": "Prepared", "message": ""}
        condition["lastTransitionTime"] = format_now()
        devices = [
            {**{name: result[name] for name in ("driver", "pool", "device")}, "conditions": [condition]}
            for result in allocation["devices"]["results"]
        ]
        await self._api.send("PATCH", f"{path}/status", {"status": {"devices": devices}}, MERGE)


def build_running(pod: Document) -> Document:
    now = format_now()
    ready = [
        {"type": kind, "status": "True", "lastTransitionTime": now}
        for kind in ("Initialized", "Ready", "ContainersReady")
    ]
    container = {"name": "main", "image": "pause:3", "imageID": "", "ready": True, "restartCount": 0}
    container |= {"started": True, "state": {"running": {"startedAt": now}}}
    address = {"hostIP": "10.0.0.1", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}
    status = {"phase": "Running", "startTime": now, "conditions": ready, "containerStatuses": [container]}
    return {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status | address}


def build_ended(pod: Document, phase: str) -> Document:
    now, code = format_now(), 0 if phase == "Succeeded" else 1
    unready = [
        {"type": kind, "status": "False", "lastTransitionTime": now, "reason": "PodCompleted"}
        for kind in ("Ready", "ContainersReady")
    ]
    ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "finishedAt": now}
    container = {"name": "main", "image": "pause:3", "imageID": "", "ready": False, "restartCount": 0}
    container |= {"started": False, "state": {"terminated": ended}}
    status = {"phase": phase, "conditions": unready, "containerStatuses": [container]}
    return {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
