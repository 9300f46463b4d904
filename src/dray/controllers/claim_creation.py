"""The creation of the claims of a pod, from templates and inline templates, and their record in its status.

Theory of operation: on a server with transactions the controller chooses the names of the claims, and creates
and records all of them together; whoever sees the pod with its claims sees the claims. If a name is taken,
others are chosen. Elsewhere the claims are created at once under names that the server completes, and
recorded when all of them exist. Names are random, so a transaction without a response is not repeated before
its claims were looked for.

Rules for this file: what is created and recorded is decided in `claims/lifecycle`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod
from dray.claims.actions import ClaimAction, CreateClaim, EmitEvent
from dray.claims.lifecycle import LifecycleLookups, decide_for_pod
from dray.client.errors import AlreadyExistsError
from dray.controllers.claim_actions import ClaimActionExecutor
from dray.controllers.informers import list_template_names
from dray.values import generated_names

MAX_NAME_ATTEMPTS: Final = 8


class ClaimCreation:
    """Creates the claims of pods."""

    def __init__(self, executor: ClaimActionExecutor, lookup: LifecycleLookups) -> None:
        self._executor, self._lookup = executor, lookup

    async def create_claims(self, pod: Pod) -> None:
        """Create the claims that a pod lacks, and record them."""
        if not await self._create_together(pod):
            await self._create_one_by_one(pod)

    async def create_classic_claims(self, pod: Pod) -> None:
        """Create the claims that no other controller knows."""
        for action in decide_for_pod(pod, self._lookup):
            if isinstance(action, CreateClaim) and isinstance(action.claim, ClassicResourceClaim):
                await self._executor.execute(action)

    async def _create_together(self, pod: Pod) -> bool:
        """Create and record claims in one transaction; return False when the server does not do that."""
        if not await self._executor.client.transactions.is_served():
            return False
        for attempt in range(1, MAX_NAME_ATTEMPTS + 1):
            actions = await self._decide(pod, self._complete_name)
            writes = [action for action in actions if not isinstance(action, EmitEvent)]
            if len(writes) < 2:
                await self._execute_all(actions)
                return True
            try:
                done = await self._executor.commit(writes)
            except AlreadyExistsError:
                if attempt == MAX_NAME_ATTEMPTS:
                    raise
                continue
            await self._execute_all(action for action in actions if done and isinstance(action, EmitEvent))
            return done
        raise AssertionError("unreachable")

    async def _create_one_by_one(self, pod: Pod) -> None:
        actions = await self._decide(pod)
        creations = _list_creations(actions)
        if creations:
            created = await asyncio.gather(*map(self._executor.execute, creations), return_exceptions=True)
            for result in created:
                if isinstance(result, BaseException):
                    raise result
            actions = decide_for_pod(pod, self._lookup)
        await self._execute_all(action for action in actions if not isinstance(action, CreateClaim))

    async def _decide(self, pod: Pod, complete_name: Callable[[str], str] | None = None) -> list[ClaimAction]:
        """Decide for a pod, after reading what the watches may show later than the pod."""
        actions = decide_for_pod(pod, self._lookup, complete_name)
        has_events = any(isinstance(action, EmitEvent) for action in actions)
        if has_events and await self._executor.read_templates(list_template_names(pod)):
            actions = decide_for_pod(pod, self._lookup, complete_name)
        if await self._executor.read_existing_claims(_list_creations(actions)):
            actions = decide_for_pod(pod, self._lookup, complete_name)
        return actions

    async def _execute_all(self, actions: Iterable[ClaimAction]) -> None:
        for action in actions:
            await self._executor.execute(action)

    def _complete_name(self, prefix: str) -> str:
        return generated_names.complete_name(prefix, self._executor.client.options.time_source.random_int)


def _list_creations(actions: Iterable[ClaimAction]) -> list[CreateClaim]:
    return [action for action in actions if isinstance(action, CreateClaim)]
