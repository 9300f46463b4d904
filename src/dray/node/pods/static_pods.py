"""Static pods: pods of a node that files in a directory describe.

Theory of operation: for each manifest the agent creates a mirror pod, bound to the node and marked by
annotations; from then on it is a pod of this node like any other. When the file is removed, the agent deletes
the pod; when the file changes, it creates the pod again, as it does when the pod is deleted by others.
Servers let nodes create only mirror pods that refer to no other objects, so these have no claims, ConfigMaps
or Secrets.

Rules for this file: an unusable file is logged once and does not affect the others.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from dray.api.core import Pod
from dray.api.json_text import write_json
from dray.client.client import Client, DeleteOptions
from dray.client.errors import AlreadyExistsError, ConflictError, NotFoundError
from dray.client.object_refs import ObjectKey, ObjectSelector, get_key
from dray.client.rest_client import CALL_ERRORS
from dray.errors import InputError
from dray.manifests import ManifestSource, read_documents
from dray.node.claims.admission import MIRROR_ANNOTATION, SOURCE_ANNOTATION
from dray.telemetry.logs import StructuredLogger

POLL_SECONDS: Final = 3.0
_SUFFIXES: Final = (".yaml", ".yml", ".json")

Document = dict[str, Any]


class _StaticPod(NamedTuple):
    file: str
    digest: str
    pod: Document


class StaticPods:
    """Keeps the mirror pods of a node equal to the manifests in a directory."""

    def __init__(self, client: Client, node: str, directory: Path, log: StructuredLogger) -> None:
        self._client = client
        self._node = node
        self._directory = directory
        self._log = log
        self._logged: dict[str, str] = {}

    async def run(self) -> None:
        """Poll the directory until cancelled."""
        while True:
            try:
                await self.sync()
            except CALL_ERRORS as error:
                self._log_once("", f"static pods cannot be synchronized: {error}")
            await self._client.options.time_source.sleep(POLL_SECONDS)

    async def sync(self) -> None:
        """Create missing mirror pods and delete those without a manifest, once."""
        try:
            static_pods = await asyncio.to_thread(lambda: list(self._read_manifests()))
        except OSError as error:
            # A directory that cannot be read does not mean that there are no pods.
            self._log_once(str(self._directory), (error.strerror or str(error)).lower())
            return
        wanted = {get_key(one.pod): one for one in static_pods}
        own = ObjectSelector(fields=f"spec.nodeName={self._node}")
        existing = [
            pod
            for pod in (await self._client.list(Pod, selector=own)).items
            if MIRROR_ANNOTATION in pod.metadata.annotations
            and pod.metadata.annotations.get(SOURCE_ANNOTATION) == "file"
        ]
        for pod in existing:
            key = ObjectKey(pod.metadata.namespace, pod.metadata.name)
            digest = pod.metadata.annotations[MIRROR_ANNOTATION]
            if key not in wanted or wanted[key].digest != digest:
                await self._delete_mirror(pod)
        missing = wanted.keys() - {ObjectKey(pod.metadata.namespace, pod.metadata.name) for pod in existing}
        for key in sorted(missing):
            await self._create_mirror(wanted[key])

    async def _delete_mirror(self, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is not None:
            return
        try:
            options = DeleteOptions(uid=pod.metadata.uid)
            await self._client.delete(Pod, pod.metadata.name, pod.metadata.namespace, options)
        except (NotFoundError, ConflictError):
            return

    async def _create_mirror(self, static_pod: _StaticPod) -> None:
        try:
            await self._client.create(static_pod.pod)
        except AlreadyExistsError:
            self._log_once(static_pod.file, f"there is another pod `{get_key(static_pod.pod)}`")
        except CALL_ERRORS as error:
            self._log_once(static_pod.file, str(error))
        else:
            self._logged.pop(static_pod.file, None)

    def _log_once(self, file: str, message: str) -> None:
        if self._logged.get(file) != message:
            self._logged[file] = message
            self._log.warning("a static pod does not run", file=file, why=message)

    def _read_manifests(self) -> Iterator[_StaticPod]:
        for path in sorted(path for path in self._directory.iterdir() if _is_manifest(path)):
            try:
                content = path.read_bytes()
                documents = [
                    document.value for document in read_documents(ManifestSource.decode(path.name, content))
                ]
            except (OSError, InputError) as error:
                self._log_once(str(path), str(error))
                continue
            for document in documents:
                wrong = _check_manifest(document)
                if wrong:
                    self._log_once(str(path), wrong)
                else:
                    yield _StaticPod(str(path), *build_mirror_pod(document, self._node))


def _is_manifest(path: Path) -> bool:
    return path.suffix in _SUFFIXES and not path.name.startswith(".")


def _check_manifest(document: Any) -> str:
    """Return why a document is no valid static pod; empty when it is one."""
    if not isinstance(document, dict) or (document.get("apiVersion"), document.get("kind")) != ("v1", "Pod"):
        return "expected a Pod of `v1`"
    spec, metadata = document.get("spec"), document.get("metadata")
    if not (isinstance(spec, Mapping) and isinstance(metadata, Mapping)):
        return "expected a Pod with `metadata` and `spec`"
    if not isinstance(metadata.get("name"), str):
        return "metadata.name: expected a text"
    if not isinstance(metadata.get("annotations") or {}, Mapping):
        return "metadata.annotations: expected an object"
    if not isinstance(metadata.get("namespace") or "", str):
        return "metadata.namespace: expected a text"
    if spec.get("resourceClaims"):
        return (
            "spec.resourceClaims: a static pod cannot have claims, because servers do not let nodes create "
            "pods with claims; create the pod on the server instead"
        )
    return ""


def build_mirror_pod(document: Mapping[str, Any], node: str) -> tuple[str, Document]:
    """Return the digest of a manifest, and its mirror pod."""
    digest = hashlib.sha256(write_json(dict(document))).hexdigest()[:32]
    original = document["metadata"]
    annotations = {
        **(original.get("annotations") or {}),
        MIRROR_ANNOTATION: digest,
        SOURCE_ANNOTATION: "file",
    }
    metadata = {
        "name": f"{original['name']}-{node}",
        "namespace": original.get("namespace") or "default",
        "labels": original.get("labels") or {},
        "annotations": annotations,
    }
    spec = {**document["spec"], "nodeName": node}
    return digest, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
