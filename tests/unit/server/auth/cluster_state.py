"""Test fixtures for access control: a store in memory, a cache that follows it, and changes to check."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from copy import deepcopy
from types import TracebackType
from typing import Any, Self

from dray.api.codec import decode_document
from dray.api.kinds import Kind, parse_document_kind
from dray.server.admission.change import CREATE, DELETE, UPDATE, AdmissionEffects, ObjectChange
from dray.server.admission.rule_table import RuleTable
from dray.server.auth.authz.authorizer import UnionAuthorizer
from dray.server.auth.authz.bootstrap_roles import build_bootstrap_documents
from dray.server.auth.restriction.write_rules import build_write_rules
from dray.server.http.errors import ApiStatusError
from dray.server.http.requests import AUTHENTICATED, ApiCall, ApiRequest, RequestUser
from dray.server.objects.pending_object import PendingObject
from dray.server.objects.stored_object import StoredObject, build_key, encode_document
from dray.server.watch.cache import WatchCache
from dray.store import Delete, Put, Store, open_store

RBAC = "rbac.authorization.k8s.io"
DEVICES = "resource.k8s.io"
VERBS = {CREATE: "create", UPDATE: "update", DELETE: "delete"}


class ClusterState:
    """Objects in a store, and the cache that follows it."""

    def __init__(self, documents: Iterable[Mapping[str, Any]] = (), *, roles: bool = True) -> None:
        self._runner = asyncio.Runner()
        self._store, self.cache = self._runner.run(_opened())
        self._task = self._runner.run(_started(self.cache))
        self.put(*(build_bootstrap_documents() if roles else ()), *documents)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._store.close()

    def put(self, *documents: Mapping[str, Any]) -> None:
        """Write objects as they are."""
        writes = []
        for document in documents:
            kind, _ = parse_document_kind(document)
            writes.append(Put(_place(kind, document), encode_document(kind, document)))
        if writes:
            self._runner.run(self._written(writes))

    def delete(self, document: Mapping[str, Any]) -> None:
        """Remove an object."""
        kind, _ = parse_document_kind(document)
        self._runner.run(self._written([Delete(_place(kind, document))]))

    async def _written(self, writes: list[Any]) -> None:
        await self._store.txn([], writes)
        await self.cache.wait_until_fresh()


async def _opened() -> tuple[Store, WatchCache]:
    store = await open_store("memory:")
    cache = WatchCache(store)
    await cache.resync()
    return store, cache


async def _started(cache: WatchCache) -> asyncio.Task[None]:
    return asyncio.create_task(cache.follow())


def _place(kind: Kind, document: Mapping[str, Any]) -> bytes:
    metadata = document["metadata"]
    return build_key(kind, metadata.get("namespace", ""), metadata["name"])


class AccessChecks:
    """All write rules, on given objects."""

    def __init__(self, world: ClusterState) -> None:
        self.world = world
        self.access = UnionAuthorizer(world.cache)
        self.rules = build_write_rules(world.cache, self.access)

    def judge(
        self,
        user: RequestUser,
        old: Mapping[str, Any] | None,
        new: Mapping[str, Any] | None,
        subresource: str = "",
        verb: str = "",
    ) -> list[AdmissionEffects]:
        """Run the rules on a change; raises `ApiStatusError` when one refuses."""
        change = change_of(user, old, new, subresource, verb)
        return [rule.admit(change) for rule in RuleTable(self.rules).find(change)]

    def refuses(self, *change: Any, **more: Any) -> ApiStatusError | None:
        """Return the refusal of a change, if there is one."""
        try:
            self.judge(*change, **more)
        except ApiStatusError as failure:
            return failure
        return None


def change_of(
    user: RequestUser,
    old: Mapping[str, Any] | None,
    new: Mapping[str, Any] | None,
    subresource: str = "",
    verb: str = "",
) -> ObjectChange:
    """Build a change from one document to another, as the server would."""
    some = new or old
    assert some is not None
    kind, _ = parse_document_kind(some)
    operation = CREATE if old is None else DELETE if new is None else UPDATE
    metadata = some["metadata"]
    namespace, name = metadata.get("namespace", ""), metadata["name"]
    call = ApiCall(
        verb or VERBS[operation],
        "/",
        kind,
        kind.group,
        kind.version,
        kind.plural,
        namespace,
        name,
        subresource,
    )
    held = None if old is None else store_object(old)
    view = None if new is None else decode_document(deepcopy(dict(new))).object
    draft = None if new is None else PendingObject(kind, dict(new), view)
    return ObjectChange(ApiRequest(call, user), operation, kind, namespace, name, held, draft)


def store_object(document: Mapping[str, Any]) -> StoredObject:
    """Return a document as a stored object."""
    kind, _ = parse_document_kind(document)
    return StoredObject(kind, _place(kind, document), encode_document(kind, document), 7)


# --- people and things ---


def person(name: str, *groups: str) -> RequestUser:
    return RequestUser(name, (*groups, AUTHENTICATED))


def node(name: str) -> RequestUser:
    return person(f"system:node:{name}", "system:nodes")


def account(name: str, namespace: str, on_node: str = "") -> RequestUser:
    extra = {"authentication.kubernetes.io/node-name": (on_node,)} if on_node else {}
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return RequestUser(f"system:serviceaccount:{namespace}:{name}", groups, "", extra)


def thing(api_version: str, kind: str, name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    """Build an object; keywords are fields beside or, for `labels` and the like, inside of `metadata`."""
    inside = ("labels", "annotations", "finalizers", "uid", "ownerReferences", "deletionTimestamp")
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    metadata |= {field: more.pop(field) for field in inside if field in more}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}


def grant(role: str, *subjects: str, namespace: str = "", role_kind: str = "ClusterRole") -> dict[str, Any]:
    """Build a binding of a role to users (`name`) or groups (`@name`)."""
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    return thing(
        f"{RBAC}/v1",
        kind,
        f"{role}-{'-'.join(subjects)}".replace(":", "-").replace("@", "g-"),
        namespace,
        roleRef={"apiGroup": RBAC, "kind": role_kind, "name": role},
        subjects=[
            {"apiGroup": RBAC, "kind": "Group", "name": name[1:]}
            if name.startswith("@")
            else {"apiGroup": RBAC, "kind": "User", "name": name}
            for name in subjects
        ],
    )


def role(name: str, *rules: Mapping[str, Any], namespace: str = "", **more: Any) -> dict[str, Any]:
    kind = "Role" if namespace else "ClusterRole"
    return thing(f"{RBAC}/v1", kind, name, namespace, rules=[dict(rule) for rule in rules], **more)


def rule(verbs: str, resources: str, group: str = "", *names: str) -> dict[str, Any]:
    written = {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
    return written | ({"resourceNames": list(names)} if names else {})


def slice_of(driver: str, node_name: str | None, name: str = "s1") -> dict[str, Any]:
    where: dict[str, Any] = {"allNodes": True} if node_name is None else {"nodeName": node_name}
    spec = {"driver": driver, "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, **where}
    return thing(f"{DEVICES}/v1", "ResourceSlice", name, spec=spec)


def claim(name: str, namespace: str, status: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    exactly = {"deviceClassName": "gpu", **more.pop("exactly", {})}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    filled = {"status": dict(status)} if status else {}
    return thing(f"{DEVICES}/v1", "ResourceClaim", name, namespace, spec=spec, **filled, **more)


def allocated(*drivers: str, node_name: str | None = "n1", **more: Any) -> dict[str, Any]:
    """Build a status with one device of each driver."""
    results = [{"request": "r", "driver": driver, "pool": "p", "device": "d"} for driver in drivers]
    allocation: dict[str, Any] = {"devices": {"results": results}}
    if node_name is not None:
        field = {"key": "metadata.name", "operator": "In", "values": [node_name]}
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"allocation": allocation, **more}


def device_status(driver: str, ready: str = "True") -> dict[str, Any]:
    """Build the status of a device that a driver reports."""
    condition = {
        "type": "Ready",
        "status": ready,
        "reason": "Seen",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return {"driver": driver, "pool": "p", "device": "d", "conditions": [condition]}


def pod(name: str, namespace: str, node_name: str = "", **more: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i"}], **more.pop("spec", {})}
    if node_name:
        spec["nodeName"] = node_name
    return thing("v1", "Pod", name, namespace, spec=spec, **more)
