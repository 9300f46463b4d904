"""Actions on claims, performed: each with the one write it needs, and what the server answered kept.

Theory of operation: an action names the version of the object it was decided on, and so does its write; when
somebody else was faster, the server says so and the object is read and decided about again. The answer to a
write is what we know newest, and is laid over what the informers show. A write of which nobody knows whether
it happened is looked for before it is repeated.

Rules for this file: nothing is decided here. What an action is for is in `claims/lifecycle`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dray.api.classic import ClassicClaim
from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.claims import claim_names
from dray.claims.actions import (
    Action,
    AnyClaim,
    CreateClaim,
    DeleteClaim,
    LetGo,
    RecordClaims,
    Release,
    Reserve,
    Tell,
)
from dray.client.client import Client, Deletion
from dray.client.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    NotFound,
    ServerFault,
    ServerTimeout,
    TooManyRequests,
    Unavailable,
)
from dray.client.events import EventRecorder
from dray.client.informers.informer import without_managed_fields
from dray.client.patches import MergePatch, StrategicPatch
from dray.client.rest_client import TROUBLE
from dray.controllers import metrics as measures
from dray.controllers.informers import Sights
from dray.controllers.mutation_cache import Recent
from dray.telemetry.metrics import Metrics

_PASSING = (TooManyRequests, ServerFault, ServerTimeout, Unavailable)
"""Failures that say nothing about the object."""

_FAILED_TO_CREATE = "FailedResourceClaimCreation"


@dataclass
class Performer:
    """Writes what was decided."""

    client: Client
    sights: Sights
    recorder: EventRecorder
    metrics: Metrics
    _uncertain: set[str] = field(default_factory=set)
    """Pods for which a claim may have been made, and nobody told us."""
    _written: dict[str, int] = field(default_factory=dict)
    """Pods whose status we wrote, with the version it has since."""

    async def perform(self, action: Action) -> None:
        """Do what an action says; a `Conflict` when it was decided on something that has changed since."""
        match action:
            case CreateClaim():
                await self.create([action])
            case RecordClaims():
                await self._record(action)
            case Reserve():
                await self._reserve(action)
            case Release():
                await self._release(action)
            case LetGo():
                await self._let_go(action)
            case DeleteClaim():
                await self._delete(action)
            case Tell():
                self.recorder.record(action.about, action.reason, action.text, warning=action.warning)

    # --- pods ---

    def is_behind(self, pod: Pod) -> bool:
        """Whether we know better than the informer: it will show soon what we have written."""
        written = self._written.get(pod.metadata.uid)
        if written is None:
            return False
        if int(pod.metadata.resource_version) >= written:
            del self._written[pod.metadata.uid]
            return False
        return True

    def forget(self, pod: Pod) -> None:
        """A pod is gone."""
        self._uncertain.discard(pod.metadata.uid)
        self._written.pop(pod.metadata.uid, None)

    async def create(self, actions: Sequence[CreateClaim]) -> None:
        """Make the claims of a pod; those that are there after all are only noted."""
        pod = actions[0].pod
        if pod.metadata.uid in self._uncertain:
            await self._read_owned(pod)
            actions = [action for action in actions if self._unmade(action)]
        if len(actions) == 1:
            await self._create(actions[0])
            return
        results = await asyncio.gather(*map(self._create, actions), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _unmade(self, action: CreateClaim) -> bool:
        if isinstance(action.claim, ClassicClaim):
            return self.sights.classic_claim(*claim_names.name_of(action.claim.metadata)) is None
        owned = self.sights.newest_claims.at(action.pod.metadata.uid)
        return all(
            claim.metadata.annotations.get(claim_names.ENTRY_ANNOTATION) != action.entry for claim in owned
        )

    async def _read_owned(self, pod: Pod) -> None:
        """Look for claims that were made for a pod without our knowledge."""
        for claim in (await self.client.list(ResourceClaim, pod.metadata.namespace)).items:
            if claim_names.is_owned(claim.metadata, pod):
                self.sights.newest_claims.put(without_managed_fields(claim))
        self._uncertain.discard(pod.metadata.uid)

    async def _create(self, action: CreateClaim) -> None:
        if await self._recorded_is_there(action):
            return
        claim = action.claim
        admin = isinstance(claim, ResourceClaim) and measures.has_admin_access(claim)
        try:
            made: Any = await self.client.create(claim)
        except AlreadyExists:
            if claim.metadata.name:
                await self.read(claim)
                return
            raise
        except TROUBLE as failed:
            measures.created(self.metrics, well=False, admin=admin)
            self._not_created(action, failed)
            raise
        measures.created(self.metrics, well=True, admin=admin)
        self._newest(made).put(without_managed_fields(made))

    def _not_created(self, action: CreateClaim, failed: Exception) -> None:
        if isinstance(failed, ApiError) and not isinstance(failed, _PASSING):
            text = f"entry {action.entry}: the claim cannot be created: {_unnamed(failed, action.claim)}"
            self.recorder.record(action.pod, _FAILED_TO_CREATE, text, warning=True)
        if not isinstance(failed, ApiError) or isinstance(failed, _PASSING):
            self._uncertain.add(action.pod.metadata.uid)

    async def _recorded_is_there(self, action: CreateClaim) -> bool:
        """Whether the claim that the pod's status names exists, although we do not see it."""
        for said in action.pod.status.resource_claim_statuses:
            if said.name == action.entry and said.resource_claim_name:
                namespace = action.pod.metadata.namespace
                found = await self._read(self.sights.newest_claims, said.resource_claim_name, namespace)
                return found is not None and claim_names.is_owned(found.metadata, action.pod)
        return False

    async def _record(self, action: RecordClaims) -> None:
        """Tell a pod which claims it has: all of them in one write, and no entry is ever taken away.

        What somebody else recorded meanwhile stays: the pod may be on its node already, with that claim.
        """
        metadata = action.pod.metadata
        statuses = [
            {"name": entry, "resourceClaimName": name} if name is not None else {"name": entry}
            for entry, name in action.names
        ]
        pins = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        patch = StrategicPatch({"metadata": pins, "status": {"resourceClaimStatuses": statuses}})
        try:
            pod = await self.client.patch(Pod, metadata.name, patch, metadata.namespace, subresource="status")
        except NotFound:
            return
        self._written[metadata.uid] = int(pod["metadata"]["resourceVersion"])

    # --- claims ---

    async def _reserve(self, action: Reserve) -> None:
        consumers = (*action.claim.status.reserved_for, action.consumer)
        await self._write_status(action.claim, {"reservedFor": _documents(consumers)})

    async def _release(self, action: Release) -> None:
        """Take consumers off, and with the last of them the devices, in one write."""
        left = [each for each in action.claim.status.reserved_for if each.uid not in action.uids]
        change: dict[str, Any] = {}
        if len(left) < len(action.claim.status.reserved_for):
            change["reservedFor"] = _documents(left) or None
        if action.deallocate and isinstance(action.claim, ResourceClaim):
            change["allocation"] = None
            if action.claim.status.devices:
                change["devices"] = None
        await self._write_status(action.claim, change)

    async def _let_go(self, action: LetGo) -> None:
        """Remove the finalizer; with the last one a claim that is being deleted goes."""
        metadata = action.claim.metadata
        left = [name for name in metadata.finalizers if name != claim_names.FINALIZER]
        pins = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        change = MergePatch({"metadata": {**pins, "finalizers": left or None}})
        try:
            claim = await self.client.patch(ResourceClaim, metadata.name, change, metadata.namespace)
        except NotFound:
            self.sights.newest_claims.remove(action.claim)
            return
        if left or claim.metadata.deletion_timestamp is None:
            self.sights.newest_claims.put(without_managed_fields(claim))
        else:
            self.sights.newest_claims.remove(action.claim)

    async def _delete(self, action: DeleteClaim) -> None:
        claim: Any = action.claim
        metadata, newest = claim.metadata, self._newest(claim)
        try:
            left = await self.client.delete(
                type(claim), metadata.name, metadata.namespace, Deletion(uid=metadata.uid)
            )
        except (NotFound, Conflict):
            newest.remove(claim)
            return
        if left is None or not left.metadata.finalizers:
            newest.remove(claim)
        else:
            newest.put(without_managed_fields(left))

    async def _write_status(self, claim: Any, change: dict[str, Any]) -> None:
        metadata = claim.metadata
        pins = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        patch = MergePatch({"metadata": pins, "status": change})
        newest = self._newest(claim)
        try:
            written = await self.client.patch(
                type(claim), metadata.name, patch, metadata.namespace, subresource="status"
            )
        except NotFound:
            newest.remove(claim)
            return
        newest.put(without_managed_fields(written))

    # --- reading ---

    async def read(self, claim: AnyClaim) -> None:
        """Read a claim as it is now."""
        newest = self._newest(claim)
        if await self._read(newest, claim.metadata.name, claim.metadata.namespace) is None:
            newest.remove(claim)

    async def read_pod(self, name: str, namespace: str, uid: str) -> None:
        """Find out whether a pod that is not seen is really gone."""
        pod = await self._read(self.sights.newest_pods, name, namespace)
        self.sights.believe(uid)
        if pod is None or pod.metadata.uid != uid:
            self.sights.went(uid)

    async def read_templates(self, names: Iterable[tuple[str, str]]) -> bool:
        """Ask for templates that are not seen; whether there is one after all."""
        newest = self.sights.newest_templates
        unseen = [(namespace, name) for namespace, name in names if newest.get(namespace, name) is None]
        found = [await self._read(newest, name, namespace) for namespace, name in unseen]
        return any(template is not None for template in found)

    async def read_pods(self, namespace: str) -> None:
        """Learn of pods that we have not seen come."""
        for pod in (await self.client.list(Pod, namespace)).items:
            self.sights.newest_pods.put(without_managed_fields(pod))

    async def _read(self, newest: Recent[Any], name: str, namespace: str) -> Any:
        try:
            found = await self.client.get(newest.kind, name, namespace)
        except NotFound:
            return None
        kept = without_managed_fields(found)
        newest.put(kept)
        return kept

    def _newest(self, claim: AnyClaim) -> Recent[Any]:
        if isinstance(claim, ResourceClaim):
            return self.sights.newest_claims
        assert self.sights.newest_classic is not None
        return self.sights.newest_classic


def _unnamed(failed: ApiError, claim: AnyClaim) -> str:
    """What the server said, without the name it had chosen: that is another one each time."""
    name, prefix = str(failed.details.get("name") or ""), claim.metadata.generate_name
    return failed.message.replace(name, prefix) if prefix and name.startswith(prefix) else failed.message


def _documents(consumers: Sequence[Any]) -> list[Any]:
    return [msgspec.to_builtins(consumer) for consumer in consumers]
