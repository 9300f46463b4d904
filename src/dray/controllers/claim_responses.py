"""The responses to the writes of claim actions: the newest versions for the caches, metrics, and events.

Theory of operation: the response to a write is the newest known version of an object, and is laid over the
informers. A refused creation becomes an event of its pod. When no response came it is unknown whether a claim
was created; its pod is remembered, so that its claims are looked for before the next attempt.

Rules for this file: nothing is decided or sent here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dray.api.core import Pod
from dray.api.meta import ObjectMeta
from dray.api.resource import ResourceClaim
from dray.claims.actions import AnyClaim, ClaimWrite, CreateClaim, DeleteClaim, RecordClaims, RemoveFinalizer
from dray.client.errors import (
    ApiError,
    InternalServerError,
    ServerTimeoutError,
    ServiceUnavailableError,
    TooManyRequestsError,
)
from dray.client.events import EventRecorder
from dray.client.informers.informer import strip_managed_fields
from dray.client.object_refs import get_resource_version, parse_resource_version
from dray.client.transactions.support import get_refusal_message
from dray.controllers import metrics as controller_metrics
from dray.controllers.claim_writes import list_left_finalizers
from dray.controllers.informers import SharedInformers
from dray.controllers.mutation_cache import MutationCache
from dray.telemetry.metrics import MetricsRegistry

_TRANSIENT_ERRORS = (TooManyRequestsError, InternalServerError, ServerTimeoutError, ServiceUnavailableError)
"""Failures that say nothing about the object."""

_FAILED_CREATION_REASON = "FailedResourceClaimCreation"


@dataclass
class ClaimResponses:
    """Takes over what the server answered."""

    shared_informers: SharedInformers
    recorder: EventRecorder
    metrics: MetricsRegistry
    uncertain_pods: set[str] = field(default_factory=set)
    """Pods for which a claim may have been created without a response."""
    _written_versions: dict[str, int] = field(default_factory=dict)
    """Pods whose status was written here, with the resulting version."""

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
        self.uncertain_pods.discard(pod.metadata.uid)
        self._written_versions.pop(pod.metadata.uid, None)

    def get_cache(self, claim: AnyClaim) -> MutationCache[Any]:
        """Return the cache of a claim's kind."""
        if isinstance(claim, ResourceClaim):
            return self.shared_informers.claim_cache
        assert self.shared_informers.classic_claim_cache is not None
        return self.shared_informers.classic_claim_cache

    def accept(self, action: ClaimWrite, stored: Any) -> None:
        """Take over the object that a write stored; None when the server deleted it and does not send it."""
        if isinstance(action, RecordClaims):
            version = parse_resource_version(get_resource_version(stored))
            self._written_versions[action.pod.metadata.uid] = version
            return
        if isinstance(action, CreateClaim):
            self._count_creation(action, succeeded=True)
        cache = self.get_cache(action.claim)
        if stored is None or _is_deleted(action, stored.metadata):
            cache.remove(action.claim)
        else:
            cache.put(strip_managed_fields(stored))

    def accept_absence(self, action: ClaimWrite) -> None:
        """Take over that what an action was to change is not there any more."""
        if not isinstance(action, RecordClaims):
            self.get_cache(action.claim).remove(action.claim)

    def report_creation_failure(self, action: CreateClaim, error: Exception) -> None:
        """Count a failed creation, and tell the pod, or remember that it may have a claim."""
        self._count_creation(action, succeeded=False)
        if isinstance(error, ApiError) and not isinstance(error, _TRANSIENT_ERRORS):
            text = (
                f"entry {action.entry}: the claim cannot be created: "
                f"{_hide_generated_name(error, action.claim)}"
            )
            self.recorder.record(action.pod, _FAILED_CREATION_REASON, text, warning=True)
        else:
            self.uncertain_pods.add(action.pod.metadata.uid)

    def _count_creation(self, action: CreateClaim, *, succeeded: bool) -> None:
        claim = action.claim
        admin = isinstance(claim, ResourceClaim) and controller_metrics.has_admin_access(claim)
        controller_metrics.count_creation(self.metrics, succeeded=succeeded, admin_access=admin)


def _is_deleted(action: ClaimWrite, stored: ObjectMeta) -> bool:
    """Whether a claim is gone: with its last finalizer, or because it had none when it was deleted.

    The response to the write that removes the last finalizer may still show it.
    """
    if isinstance(action, RemoveFinalizer):
        return stored.deletion_timestamp is not None and not list_left_finalizers(action)
    return isinstance(action, DeleteClaim) and not stored.finalizers


def _hide_generated_name(error: ApiError, claim: AnyClaim) -> str:
    """Return the server's message without the generated name, which differs each time."""
    name, prefix = str(error.details.get("name") or ""), claim.metadata.generate_name
    message = get_refusal_message(error)
    return message.replace(name, prefix) if prefix and name.startswith(prefix) else message
