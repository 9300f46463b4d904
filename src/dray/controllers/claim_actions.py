"""Executes the actions that `claims/lifecycle` decided, one write each, and keeps the responses.

Theory of operation: an action names the version of the object it was decided on, and so does its write; on a
conflict the object is read and decided again. The response to a write is the newest known version, and is
laid over the informers. When it is unknown whether a write happened, its result is looked for before the
write is repeated.

Rules for this file: nothing is decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.claims import claim_names
from dray.claims.actions import (
    AnyClaim,
    ClaimAction,
    CreateClaim,
    DeleteClaim,
    EmitEvent,
    RecordClaims,
    ReleaseClaim,
    RemoveFinalizer,
    ReserveClaim,
)
from dray.client.client import Client, DeleteOptions
from dray.client.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    InternalServerError,
    NotFoundError,
    ServerTimeoutError,
    ServiceUnavailableError,
    TooManyRequestsError,
)
from dray.client.events import EventRecorder
from dray.client.informers.informer import strip_managed_fields
from dray.client.object_refs import parse_resource_version
from dray.client.patches import MergePatch, StrategicMergePatch
from dray.client.rest_client import CALL_ERRORS
from dray.controllers import metrics as controller_metrics
from dray.controllers.informers import SharedInformers
from dray.controllers.mutation_cache import MutationCache
from dray.telemetry.metrics import MetricsRegistry

_TRANSIENT_ERRORS = (TooManyRequestsError, InternalServerError, ServerTimeoutError, ServiceUnavailableError)
"""Failures that say nothing about the object."""

_FAILED_CREATION_REASON = "FailedResourceClaimCreation"


@dataclass
class ClaimActionExecutor:
    """Writes claim actions."""

    client: Client
    shared_informers: SharedInformers
    recorder: EventRecorder
    metrics: MetricsRegistry
    _uncertain_pods: set[str] = field(default_factory=set)
    """Pods for which a claim may have been created without a response."""
    _written_versions: dict[str, int] = field(default_factory=dict)
    """Pods whose status was written here, with the resulting version."""

    async def execute(self, action: ClaimAction) -> None:
        """Execute an action; `ConflictError` when the object has changed since the decision."""
        match action:
            case CreateClaim():
                await self.create_claims([action])
            case RecordClaims():
                await self._record_claims(action)
            case ReserveClaim():
                await self._reserve_claim(action)
            case ReleaseClaim():
                await self._release_claim(action)
            case RemoveFinalizer():
                await self._remove_finalizer(action)
            case DeleteClaim():
                await self._delete_claim(action)
            case EmitEvent():
                self.recorder.record(action.about, action.reason, action.text, warning=action.warning)

    # --- pods ---

    def is_informer_behind(self, pod: Pod) -> bool:
        """Whether the informer does not show yet what was written here."""
        written = self._written_versions.get(pod.metadata.uid)
        if written is None:
            return False
        if parse_resource_version(pod.metadata.resource_version) >= written:
            del self._written_versions[pod.metadata.uid]
            return False
        return True

    def forget_pod(self, pod: Pod) -> None:
        """Forget a deleted pod."""
        self._uncertain_pods.discard(pod.metadata.uid)
        self._written_versions.pop(pod.metadata.uid, None)

    async def create_claims(self, actions: Sequence[CreateClaim]) -> None:
        """Create the claims of a pod; those that exist already are only taken over."""
        pod = actions[0].pod
        if pod.metadata.uid in self._uncertain_pods:
            await self._read_owned_claims(pod)
            actions = [action for action in actions if self._is_missing(action)]
        if len(actions) == 1:
            await self._create_claim(actions[0])
            return
        results = await asyncio.gather(*map(self._create_claim, actions), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _is_missing(self, action: CreateClaim) -> bool:
        if isinstance(action.claim, ClassicResourceClaim):
            return (
                self.shared_informers.get_classic_claim(
                    *claim_names.get_namespaced_name(action.claim.metadata)
                )
                is None
            )
        owned = self.shared_informers.claim_cache.get_by_index(action.pod.metadata.uid)
        return all(
            claim.metadata.annotations.get(claim_names.POD_CLAIM_NAME_ANNOTATION) != action.entry
            for claim in owned
        )

    async def _read_owned_claims(self, pod: Pod) -> None:
        """Look for claims of a pod whose creation got no response."""
        for claim in (await self.client.list(ResourceClaim, pod.metadata.namespace)).items:
            if claim_names.is_owned_by(claim.metadata, pod):
                self.shared_informers.claim_cache.put(strip_managed_fields(claim))
        self._uncertain_pods.discard(pod.metadata.uid)

    async def _create_claim(self, action: CreateClaim) -> None:
        if await self._has_recorded_claim(action):
            return
        claim = action.claim
        admin = isinstance(claim, ResourceClaim) and controller_metrics.has_admin_access(claim)
        try:
            created: Any = await self.client.create(claim)
        except AlreadyExistsError:
            if claim.metadata.name:
                await self.read_claim(claim)
                return
            raise
        except CALL_ERRORS as failed:
            controller_metrics.count_creation(self.metrics, succeeded=False, admin_access=admin)
            self._report_creation_failure(action, failed)
            raise
        controller_metrics.count_creation(self.metrics, succeeded=True, admin_access=admin)
        self._get_cache(created).put(strip_managed_fields(created))

    def _report_creation_failure(self, action: CreateClaim, error: Exception) -> None:
        if isinstance(error, ApiError) and not isinstance(error, _TRANSIENT_ERRORS):
            text = (
                f"entry {action.entry}: the claim cannot be created: "
                f"{_hide_generated_name(error, action.claim)}"
            )
            self.recorder.record(action.pod, _FAILED_CREATION_REASON, text, warning=True)
        if not isinstance(error, ApiError) or isinstance(error, _TRANSIENT_ERRORS):
            self._uncertain_pods.add(action.pod.metadata.uid)

    async def _has_recorded_claim(self, action: CreateClaim) -> bool:
        """Whether the claim named in the pod's status exists although the informer does not show it."""
        for recorded in action.pod.status.resource_claim_statuses:
            if recorded.name == action.entry and recorded.resource_claim_name:
                namespace = action.pod.metadata.namespace
                found = await self._read_object(
                    self.shared_informers.claim_cache, recorded.resource_claim_name, namespace
                )
                return found is not None and claim_names.is_owned_by(found.metadata, action.pod)
        return False

    async def _record_claims(self, action: RecordClaims) -> None:
        """Record the claims in the pod's status: all in one write, and no entry is ever removed.

        Entries that another writer recorded meanwhile stay: the pod may be on its node already, with that
        claim.
        """
        metadata = action.pod.metadata
        statuses = [
            {"name": entry, "resourceClaimName": name} if name is not None else {"name": entry}
            for entry, name in action.names
        ]
        pins = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        patch = StrategicMergePatch({"metadata": pins, "status": {"resourceClaimStatuses": statuses}})
        try:
            pod = await self.client.patch(Pod, metadata.name, patch, metadata.namespace, subresource="status")
        except NotFoundError:
            return
        self._written_versions[metadata.uid] = parse_resource_version(pod["metadata"]["resourceVersion"])

    # --- claims ---

    async def _reserve_claim(self, action: ReserveClaim) -> None:
        consumers = (*action.claim.status.reserved_for, action.consumer)
        await self._write_status(action.claim, {"reservedFor": _to_documents(consumers)})

    async def _release_claim(self, action: ReleaseClaim) -> None:
        """Remove consumers, and with the last of them the allocation, in one write."""
        left = [each for each in action.claim.status.reserved_for if each.uid not in action.uids]
        change: dict[str, Any] = {}
        if len(left) < len(action.claim.status.reserved_for):
            change["reservedFor"] = _to_documents(left) or None
        if action.deallocate and isinstance(action.claim, ResourceClaim):
            change["allocation"] = None
            if action.claim.status.devices:
                change["devices"] = None
        await self._write_status(action.claim, change)

    async def _remove_finalizer(self, action: RemoveFinalizer) -> None:
        """Remove the finalizer; with the last one a claim that is being deleted is gone."""
        metadata = action.claim.metadata
        left = [name for name in metadata.finalizers if name != claim_names.FINALIZER]
        pins = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        change = MergePatch({"metadata": {**pins, "finalizers": left or None}})
        try:
            claim = await self.client.patch(ResourceClaim, metadata.name, change, metadata.namespace)
        except NotFoundError:
            self.shared_informers.claim_cache.remove(action.claim)
            return
        if left or claim.metadata.deletion_timestamp is None:
            self.shared_informers.claim_cache.put(strip_managed_fields(claim))
        else:
            self.shared_informers.claim_cache.remove(action.claim)

    async def _delete_claim(self, action: DeleteClaim) -> None:
        claim: Any = action.claim
        metadata, cache = claim.metadata, self._get_cache(claim)
        try:
            left = await self.client.delete(
                type(claim), metadata.name, metadata.namespace, DeleteOptions(uid=metadata.uid)
            )
        except (NotFoundError, ConflictError):
            cache.remove(claim)
            return
        if left is None or not left.metadata.finalizers:
            cache.remove(claim)
        else:
            cache.put(strip_managed_fields(left))

    async def _write_status(self, claim: Any, change: dict[str, Any]) -> None:
        metadata = claim.metadata
        pins = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        patch = MergePatch({"metadata": pins, "status": change})
        cache = self._get_cache(claim)
        try:
            written = await self.client.patch(
                type(claim), metadata.name, patch, metadata.namespace, subresource="status"
            )
        except NotFoundError:
            cache.remove(claim)
            return
        cache.put(strip_managed_fields(written))

    # --- reading ---

    async def read_claim(self, claim: AnyClaim) -> None:
        """Read a claim from the server."""
        cache = self._get_cache(claim)
        if await self._read_object(cache, claim.metadata.name, claim.metadata.namespace) is None:
            cache.remove(claim)

    async def read_pod(self, name: str, namespace: str, uid: str) -> None:
        """Ask the server whether a pod that the informer does not show is really gone."""
        pod = await self._read_object(self.shared_informers.pod_cache, name, namespace)
        self.shared_informers.clear_pod_uncertainty(uid)
        if pod is None or pod.metadata.uid != uid:
            self.shared_informers.mark_pod_gone(uid)

    async def read_templates(self, names: Iterable[tuple[str, str]]) -> bool:
        """Read templates that the informer does not show; whether one exists."""
        cache = self.shared_informers.template_cache
        unseen = [(namespace, name) for namespace, name in names if cache.get(namespace, name) is None]
        found = [await self._read_object(cache, name, namespace) for namespace, name in unseen]
        return any(template is not None for template in found)

    async def read_pods(self, namespace: str) -> None:
        """Read pods of a namespace that the informer may not show yet."""
        for pod in (await self.client.list(Pod, namespace)).items:
            self.shared_informers.pod_cache.put(strip_managed_fields(pod))

    async def _read_object(self, cache: MutationCache[Any], name: str, namespace: str) -> Any:
        try:
            found = await self.client.get(cache.kind, name, namespace)
        except NotFoundError:
            return None
        stripped = strip_managed_fields(found)
        cache.put(stripped)
        return stripped

    def _get_cache(self, claim: AnyClaim) -> MutationCache[Any]:
        if isinstance(claim, ResourceClaim):
            return self.shared_informers.claim_cache
        assert self.shared_informers.classic_claim_cache is not None
        return self.shared_informers.classic_claim_cache


def _hide_generated_name(error: ApiError, claim: AnyClaim) -> str:
    """Return the server's message without the generated name, which differs each time."""
    name, prefix = str(error.details.get("name") or ""), claim.metadata.generate_name
    return error.message.replace(name, prefix) if prefix and name.startswith(prefix) else error.message


def _to_documents(consumers: Sequence[Any]) -> list[Any]:
    return [msgspec.to_builtins(consumer) for consumer in consumers]
