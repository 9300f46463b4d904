"""One of the two clusters: objects go in as documents, and a settled picture of pods and claims comes out."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from dray.client.config.kubeconfig import load_client_config
from dray.client.errors import ApiError, ClientError
from dray.client.rest_client import ClientOptions, RestClient
from dray.client.transport import TransportRequest
from dray.client.transports.http import HttpTransport
from tests.differential.scenario import ADMIN_NAMESPACE, Document, Scenario, Step

SETTLES_IN = 30.0
QUIET = 0.8
"""Seconds without a change after which a cluster has settled."""
UNFINISHED = 5.0
"""The same while a pod was not tried, or may be tried again, or while a claim names a pod that is gone."""
SLOWNESS = 10
"""How many times as long as reading a picture a cluster is quiet in addition."""
UNTAINTED = 1.5
"""Seconds without a taint after which a new node is ready for pods."""
NO_NODE_CONTROLLER = 8.0
"""Seconds with a taint after which nobody is going to remove it."""
POLL = 0.2

ADMIN_LABEL = "resource.kubernetes.io/admin-access"
_RESOURCE = "/apis/resource.k8s.io/v1"
_PLURALS = {
    "Namespace": ("/api/v1", "namespaces", False),
    "Node": ("/api/v1", "nodes", False),
    "Pod": ("/api/v1", "pods", True),
    "DeviceClass": (_RESOURCE, "deviceclasses", False),
    "ResourceSlice": (_RESOURCE, "resourceslices", False),
    "ResourceClaim": (_RESOURCE, "resourceclaims", True),
    "ResourceClaimTemplate": (_RESOURCE, "resourceclaimtemplates", True),
    "DeviceTaintRule": (_RESOURCE, "devicetaintrules", False),
}
_KINDS = {kind.lower(): kind for kind in _PLURALS}
_REMOVED_IN_ORDER = (
    "Pod",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "ResourceSlice",
    "DeviceClass",
    "DeviceTaintRule",
)
_ALONE = ("Node", "ResourceSlice", "DeviceClass")
"""Kinds of which a cluster must have no object before: they would change the outcome, or be deleted."""


class UnusableClusterError(Exception):
    """A cluster in which no comparison can run."""


class ClusterSide:
    """A cluster, and what this run has put into it."""

    def __init__(self, kubeconfig: str, context: str = "", scheduler_name: str = "") -> None:
        self._client = RestClient(HttpTransport(load_client_config(kubeconfig, context)), ClientOptions())
        self._scheduler_name = scheduler_name
        self._namespaces: set[str] = set()
        self._namespace = ""
        self._nodes: dict[str, dict[str, str]] = {}

    async def close(self) -> None:
        await self._prepare_nodes([])
        await self._client.transport.close()

    async def check(self) -> str:
        """Return the version of the server; a cluster that has other things to do is refused."""
        try:
            version = await self._call("GET", "/version")
            for kind in _ALONE:
                if found := await self._list(kind):
                    name = found[0]["metadata"]["name"]
                    raise UnusableClusterError(
                        f"the cluster has a {kind} `{name}`: the scenarios delete everything, so they run "
                        f"only in a cluster without any {', '.join(_ALONE)}"
                    )
        except ClientError as failed:
            raise UnusableClusterError(str(failed)) from failed
        return str(version["gitVersion"])

    async def run_scenario(self, scenario: Scenario) -> list[Any]:
        """Return the pictures after each step, or the refusal of an object; only nodes stay afterwards."""
        pictures: list[Any] = []
        self._namespace = scenario.namespace
        try:
            await self._prepare_nodes([each for each in scenario.objects if each["kind"] == "Node"])
            for document in scenario.objects:
                if document["kind"] != "Node":
                    await self._create(document)
            for step in scenario.steps:
                pictures.append(await self._run_step(step))
        except ApiError as refused:
            pictures.append(build_refusal(refused))
        stuck = await self._remove_everything()
        return [*pictures, {"stuck": stuck}] if stuck else pictures

    async def _run_step(self, step: Step) -> Document:
        for document in step.create:
            await self._create(document)
        for name, change in step.patch:
            kind, short, *part = name.split("/")
            path = _build_path(_KINDS[kind.lower()], self._get_namespace(_KINDS[kind.lower()]), short)
            await self._call("PATCH", "/".join([path, *part]), change)
        for name in step.delete:
            kind, _, short = name.partition("/")
            await self._delete(_KINDS[kind.lower()], short, self._get_namespace(_KINDS[kind.lower()]))
        return await self._wait_until_settled(bool(step.delete or step.patch))

    async def _wait_until_settled(self, released: bool) -> Document:
        """Wait until nothing has changed for a while: for longer while something is still expected.

        `released` says that the step may have released something that waiting pods can have.
        """
        end = time.monotonic() + SETTLES_IN
        last, since = await self._read_picture(), time.monotonic()
        while time.monotonic() < end:
            await asyncio.sleep(POLL)
            asked = time.monotonic()
            picture = await self._read_picture()
            now = time.monotonic()
            if picture != last:
                last, since = picture, now
                continue
            # A cluster that answers slowly works slowly, too.
            if now - since > (UNFINISHED if expects_change(last, released) else QUIET) + SLOWNESS * (
                now - asked
            ):
                return last
        return last

    def _get_namespace(self, kind: str) -> str:
        return self._namespace if _PLURALS[kind][2] else ""

    async def _read_picture(self) -> Document:
        pods = await self._list("Pod")
        claims = await self._list("ResourceClaim")
        return build_picture(pods, claims)

    async def _create(self, document: Document) -> None:
        kind = document["kind"]
        metadata = document["metadata"]
        namespace = metadata.get("namespace", "")
        if namespace and namespace not in self._namespaces:
            await self._create_namespace(namespace)
        if kind == "Pod" and self._scheduler_name:
            document = {**document, "spec": {**document["spec"], "schedulerName": self._scheduler_name}}
        body = {name: value for name, value in document.items() if name != "status"}
        path = _build_path(kind, namespace)
        await self._call("POST", path.replace(_RESOURCE, f"/apis/{document['apiVersion']}"), body)
        if "status" in document:
            patch = {"status": document["status"]}
            await self._call("PATCH", f"{_build_path(kind, namespace, metadata['name'])}/status", patch)

    async def _prepare_nodes(self, wanted: list[Document]) -> None:
        """Have exactly these nodes; new ones are tainted until the node controller has seen them ready."""
        names = {node["metadata"]["name"]: node["metadata"]["labels"] for node in wanted}
        for name in [name for name, labels in self._nodes.items() if names.get(name) != labels]:
            await self._delete("Node", name)
            del self._nodes[name]
        missing = [node for node in wanted if node["metadata"]["name"] not in self._nodes]
        for node in missing:
            await self._create(node)
            self._nodes[node["metadata"]["name"]] = node["metadata"]["labels"]
        for name in self._nodes:
            await self._report_ready(name)
        if missing:
            await self._wait_until_untainted()

    async def _wait_until_untainted(self) -> None:
        """Wait until no node has had a taint for a while; without a node controller, remove them."""
        begun = since = time.monotonic()
        while time.monotonic() - since < UNTAINTED:
            await asyncio.sleep(POLL)
            tainted = [node for node in await self._list("Node") if node.get("spec", {}).get("taints")]
            if tainted:
                since = time.monotonic()
            for node in tainted if time.monotonic() - begun > NO_NODE_CONTROLLER else ():
                await self._call(
                    "PATCH", _build_path("Node", "", node["metadata"]["name"]), {"spec": {"taints": None}}
                )

    async def _report_ready(self, name: str) -> None:
        """Report that a node is ready, as a kubelet would: nodes that say nothing for long are tainted."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}
        patch = {"status": {"conditions": [condition]}}
        await self._call("PATCH", f"{_build_path('Node', '', name)}/status", patch)

    async def _create_namespace(self, name: str) -> None:
        labels = {ADMIN_LABEL: "true"} if name == ADMIN_NAMESPACE else {}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        try:
            await self._call("POST", "/api/v1/namespaces", body)
        except ApiError as refused:
            if refused.code != 409:
                raise
        self._namespaces.add(name)

    async def _delete(self, kind: str, name: str, namespace: str = "") -> None:
        path = _build_path(kind, namespace, name)
        try:
            await self._call(
                "DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
            )
        except ApiError as refused:
            if refused.code != 404:
                raise

    async def _remove_everything(self) -> list[str]:
        """Delete all objects but nodes; return those that no controller would have cleaned up."""
        stuck: dict[str, None] = {}
        for kind in _REMOVED_IN_ORDER:
            end = time.monotonic() + SETTLES_IN
            while found := await self._list(kind):
                for item in found:
                    metadata = item["metadata"]
                    if "deletionTimestamp" not in metadata:
                        await self._delete(kind, metadata["name"], metadata.get("namespace", ""))
                    elif time.monotonic() > end - SETTLES_IN / 2:
                        stuck[f"{kind} {metadata['name']}"] = None
                        await self._release(kind, metadata)
                if time.monotonic() > end:
                    raise UnusableClusterError(f"{kind} cannot be deleted: {found}")
                await asyncio.sleep(POLL / 2)
        return list(stuck)

    async def _release(self, kind: str, metadata: Document) -> None:
        """Remove what keeps an object that no controller cleans up."""
        path = _build_path(kind, metadata.get("namespace", ""), metadata["name"])
        try:
            await self._call("PATCH", path, {"metadata": {"finalizers": None}})
        except ApiError as refused:
            if refused.code != 404:
                raise

    async def _list(self, kind: str) -> list[Document]:
        prefix, plural, _ = _PLURALS[kind]
        try:
            answer = await self._call("GET", f"{prefix}/{plural}")
        except ApiError as refused:
            if refused.code == 404:  # an older release does not have the kind
                return []
            raise
        items: list[Document] = answer.get("items") or []
        return [item for item in items if item["metadata"].get("namespace", "") in {"", *self._namespaces}]

    async def _call(self, method: str, path: str, body: Document | None = None) -> Any:
        content = b"" if body is None else json.dumps(body).encode()
        content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = TransportRequest(method, path, body=content, content_type=content_type)
        return json.loads((await self._client.call(request)).body)


def _build_path(kind: str, namespace: str = "", name: str = "") -> str:
    prefix, plural, _ = _PLURALS[kind]
    middle = f"/namespaces/{namespace}" if namespace else ""
    return f"{prefix}{middle}/{plural}" + (f"/{name}" if name else "")


def build_refusal(refused: ApiError) -> Document:
    """What two servers must agree on when they refuse an object: the code and the fields."""
    return {"refused": refused.code, "fields": sorted({cause.field for cause in refused.causes})}


def build_picture(pods: Iterable[Document], claims: Iterable[Document]) -> Document:
    """Everything of pods and claims that two clusters must agree on; names and times that are generated are
    replaced.
    """
    pods, claims = list(pods), list(claims)
    names = {claim["metadata"]["uid"]: _name_claim(claim, pods) for claim in claims}
    names |= {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in pods}
    by_name = {claim["metadata"]["name"]: names[claim["metadata"]["uid"]] for claim in claims}
    return {
        "pods": {pod["metadata"]["name"]: _picture_pod(pod, by_name) for pod in pods},
        "claims": {names[claim["metadata"]["uid"]]: _picture_claim(claim, names) for claim in claims},
    }


def expects_change(picture: Document, released: bool) -> bool:
    """Whether a scheduler or controller may have something left to do; schedulers repeat after a backoff."""
    tried = [pod["scheduled"] for pod in picture["pods"].values()]
    if not all(tried) or (released and any(each != ["True"] for each in tried)):
        return True
    return any(
        user["uid"] == "gone"
        for claim in picture["claims"].values()
        for user in (*claim.get("owners", ()), *claim.get("status", {}).get("reservedFor", ()))
    )


def _name_claim(claim: Document, pods: list[Document]) -> str:
    """Name a generated claim after its pod and the entry there."""
    for owner in claim["metadata"].get("ownerReferences", ()):
        entry = claim["metadata"].get("annotations", {}).get("resource.kubernetes.io/pod-claim-name", "?")
        return f"{owner['name']}/{entry}"
    return str(claim["metadata"]["name"])


def _picture_pod(pod: Document, claims: Document) -> Document:
    status = pod.get("status", {})
    conditions = [entry for entry in status.get("conditions", ()) if entry["type"] == "PodScheduled"]
    made = {
        entry["name"]: claims.get(entry.get("resourceClaimName"), "gone")
        for entry in status.get("resourceClaimStatuses") or ()
    }
    return {
        "node": pod["spec"].get("nodeName", ""),
        "nominated": status.get("nominatedNodeName", ""),
        "scheduled": [f"{entry['status']} {entry.get('reason', '')}".strip() for entry in conditions],
        "claims": made,
        "deleting": "deletionTimestamp" in pod["metadata"],
    }


def _picture_claim(claim: Document, names: Document) -> Document:
    metadata = claim["metadata"]
    picture = {
        "finalizers": metadata.get("finalizers", []),
        "annotations": metadata.get("annotations", {}),
        "owners": [
            {**owner, "uid": names.get(owner["uid"], "gone")} for owner in metadata.get("ownerReferences", ())
        ],
        "spec": claim.get("spec", {}),
        "status": _sort_users(replace_values(claim.get("status", {}), names)),
        "deleting": "deletionTimestamp" in metadata,
    }
    return {name: value for name, value in picture.items() if value}


def _sort_users(status: Document) -> Document:
    """Pods that are scheduled at once reserve a claim in any order."""
    if "reservedFor" not in status:
        return status
    return {**status, "reservedFor": sorted(status["reservedFor"], key=lambda user: str(user["name"]))}


def replace_values(value: Any, names: Document, field: str = "") -> Any:
    """Replace what is another one in each cluster: uids by names, times and share IDs by a mark."""
    if isinstance(value, dict):
        return {name: replace_values(each, names, name) for name, each in value.items()}
    if isinstance(value, list):
        return [replace_values(each, names, field) for each in value]
    if field == "uid":
        return names.get(value, "gone")
    return "set" if field in ("shareID", "allocationTimestamp", "lastTransitionTime", "timeAdded") else value
