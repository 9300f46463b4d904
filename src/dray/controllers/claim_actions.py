"""Executes the actions that `claims/lifecycle` decided, each alone or several in one transaction, and reads
what has to be known before.

Theory of operation: an action names the version of the object it was decided on, and so does its write; on a
conflict the object is read and decided again. A transaction carries out all of its writes or none. When it is
unknown whether a write happened, its result is looked for before the write is repeated.

Rules for this file: nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.claims import claim_names
from dray.claims.actions import AnyClaim, ClaimAction, ClaimWrite, CreateClaim, EmitEvent
from dray.client.client import Client
from dray.client.errors import AlreadyExistsError, ApiError, NotFoundError
from dray.client.events import EventRecorder
from dray.client.informers.informer import strip_managed_fields
from dray.client.rest_client import CALL_ERRORS
from dray.client.transactions.support import TransactionsUnsupported, find_refused_write
from dray.controllers.claim_responses import ClaimResponses
from dray.controllers.claim_writes import build_transaction, write_action
from dray.controllers.informers import SharedInformers
from dray.controllers.mutation_cache import MutationCache
from dray.telemetry.metrics import MetricsRegistry


@dataclass
class ClaimActionExecutor:
    """Writes claim actions."""

    client: Client
    shared_informers: SharedInformers
    recorder: EventRecorder
    metrics: MetricsRegistry
    responses: ClaimResponses = field(init=False)

    def __post_init__(self) -> None:
        self.responses = ClaimResponses(self.shared_informers, self.recorder, self.metrics)

    # --- writing ---

    async def execute(self, action: ClaimAction) -> None:
        """Execute an action; `ConflictError` when the object has changed since the decision."""
        match action:
            case EmitEvent():
                self.recorder.record(action.about, action.reason, action.text, warning=action.warning)
            case CreateClaim():
                await self._create_claim(action)
            case _:
                await self._write(action)

    async def execute_next(self, actions: Sequence[ClaimWrite]) -> None:
        """Carry out actions together, or the first one alone where that is not possible."""
        if len(actions) < 2 or not await self.commit(actions):
            await self._write(actions[0])

    async def commit(self, actions: Sequence[ClaimWrite]) -> bool:
        """Carry out actions in one transaction; return False, with nothing written, when the server does not.

        The refusal of one of them is raised, and nothing is written either: `ConflictError` when an object
        has changed since the decision, `AlreadyExistsError` when the name of a new claim is taken.
        """
        try:
            stored = await self.client.transactions.commit(build_transaction(actions))
        except CALL_ERRORS as failed:
            return await self._accept_refusal(actions, failed)
        if isinstance(stored, TransactionsUnsupported):
            return False
        for action, response in zip(actions, stored, strict=True):
            self.responses.accept(action, response)
        return True

    async def _accept_refusal(self, actions: Sequence[ClaimWrite], failed: Exception) -> bool:
        """Take over why nothing was written; True when there is nothing more to do."""
        position = find_refused_write(failed) if isinstance(failed, ApiError) else None
        refused = actions if position is None else actions[position : position + 1]
        for action in refused:
            if isinstance(action, CreateClaim):
                if isinstance(failed, AlreadyExistsError):
                    await self.read_claim(action.claim)
                else:
                    self.responses.report_creation_failure(action, failed)
            elif isinstance(failed, NotFoundError) and position is not None:
                self.responses.accept_absence(action)
                return True
        raise failed

    async def _write(self, action: ClaimWrite) -> None:
        try:
            stored = await write_action(self.client, action)
        except NotFoundError:
            self.responses.accept_absence(action)
            return
        self.responses.accept(action, stored)

    async def _create_claim(self, action: CreateClaim) -> None:
        try:
            created: Any = await write_action(self.client, action)
        except AlreadyExistsError:
            if action.claim.metadata.name:
                await self.read_claim(action.claim)
                return
            raise
        except CALL_ERRORS as failed:
            self.responses.report_creation_failure(action, failed)
            raise
        self.responses.accept(action, created)

    # --- reading ---

    async def read_existing_claims(self, creations: Sequence[CreateClaim]) -> bool:
        """Look for claims of a pod that may exist although the informer does not show them; whether there was
        a reason to.
        """
        if not creations:
            return False
        pod = creations[0].pod
        entries = {action.entry for action in creations}
        recorded = [
            each.resource_claim_name
            for each in pod.status.resource_claim_statuses
            if each.name in entries and each.resource_claim_name
        ]
        for name in recorded:
            await self._read_object(self.shared_informers.claim_cache, name, pod.metadata.namespace)
        is_uncertain = pod.metadata.uid in self.responses.uncertain_pods
        if is_uncertain:
            await self._read_owned_claims(pod)
        return bool(recorded) or is_uncertain

    async def _read_owned_claims(self, pod: Pod) -> None:
        """Look for claims of a pod whose creation got no response."""
        for claim in (await self.client.list(ResourceClaim, pod.metadata.namespace)).items:
            if claim_names.is_owned_by(claim.metadata, pod):
                self.shared_informers.claim_cache.put(strip_managed_fields(claim))
        self.responses.uncertain_pods.discard(pod.metadata.uid)

    async def read_claim(self, claim: AnyClaim) -> None:
        """Read a claim from the server."""
        cache = self.responses.get_cache(claim)
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
