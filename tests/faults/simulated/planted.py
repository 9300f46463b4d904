"""Faults that are planted into the program, to see that the checks find them.

Each is a function that changes a class or module of the product in a forked process, before a cluster starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace

from dray.claims import lifecycle
from dray.claims.actions import RemoveFinalizer
from dray.controllers import resource_claims
from dray.node.claims.preparations import NodePreparations
from dray.node.pods.pod_worker import PodWorker
from dray.server.admission.change import ADMITTED, AdmissionEffects
from dray.server.admission.resource_quota import ResourceQuotaAdmission
from dray.server.ledger.admission import LedgerAdmission
from dray.server.registry.object_registry import ObjectRegistry
from dray.server.watch.cache import WatchCache
from dray.store import KeyUnchanged
from tests.faults.simulated.campaign import run_campaign

_SKIPPED_EVERY: Final = 15
"""One change of so many that a faulty cache skips."""


def _admit_everything() -> None:
    LedgerAdmission.admit = lambda self, change: ADMITTED  # type: ignore[method-assign]


def _drop_compares(rule: type[Any]) -> None:
    admit = rule.admit

    def admit_without(self: Any, change: Any) -> AdmissionEffects:
        effects: AdmissionEffects = admit(self, change)
        return replace(effects, compares=())

    rule.admit = admit_without


def _overwrite_objects() -> None:
    run = ObjectRegistry._run_transaction

    async def run_without(self: Any, request: Any, compares: Any, writes: Any) -> Any:
        kept = [each for each in compares if not isinstance(each, KeyUnchanged)]
        return await run(self, request, kept, writes)

    ObjectRegistry._run_transaction = run_without  # type: ignore[method-assign]


def _remove_finalizers() -> None:
    decide = lifecycle.decide_for_claim

    def decide_early(claim: Any, lookups: Any) -> Any:
        if claim.metadata.deletion_timestamp is not None:
            return [RemoveFinalizer(claim, frozenset(each.uid for each in claim.status.reserved_for))]
        return decide(claim, lookups)

    resource_claims.decide_for_claim = decide_early  # type: ignore[attr-defined]


def _release_used_claims() -> None:
    is_gone = lifecycle._is_consumer_gone

    def is_ending(claim: Any, name: str, uid: str, lookups: Any) -> bool:
        pod = lookups.get_pod(claim.metadata.namespace, name)
        return is_gone(claim, name, uid, lookups) or pod.metadata.deletion_timestamp is not None

    lifecycle._is_consumer_gone = is_ending


def _unprepare_early() -> None:
    terminate = PodWorker._terminate

    async def release_first(self: Any) -> None:
        await self._release_claims()
        await terminate(self)

    PodWorker._terminate = release_first  # type: ignore[method-assign]


def _announce_nothing() -> None:
    async def announce(self: Any, claims: Any) -> str:
        return ""

    NodePreparations.announce = announce  # type: ignore[method-assign]


def _skip_events() -> None:
    apply, numbers = WatchCache._apply_entry, count(1)

    def apply_most(self: Any, key: bytes, entry: Any) -> None:
        if not key.startswith(b"/registry/core/pods/") or next(numbers) % _SKIPPED_EVERY:
            apply(self, key, entry)

    WatchCache._apply_entry = apply_most  # type: ignore[method-assign]


@dataclass(frozen=True)
class PlantedFault:
    """A fault, and whether a few schedules are enough to find it."""

    plant: Callable[[], None]
    is_frequent: bool = True


PLANTED_FAULTS: Final[Mapping[str, PlantedFault]] = MappingProxyType(
    {
        "the ledger admits everything": PlantedFault(_admit_everything),
        "the ledger does not compare": PlantedFault(lambda: _drop_compares(LedgerAdmission)),
        "the quota does not compare": PlantedFault(lambda: _drop_compares(ResourceQuotaAdmission)),
        "writes overwrite what they have not read": PlantedFault(_overwrite_objects),
        "deleted claims lose their finalizer": PlantedFault(_remove_finalizers),
        "claims of ending pods are released": PlantedFault(_release_used_claims, False),
        "claims are unprepared while containers run": PlantedFault(_unprepare_early),
        "nodes do not announce what they prepare": PlantedFault(_announce_nothing, False),
        "the watch cache skips changes": PlantedFault(_skip_events),
    }
)


@dataclass(frozen=True)
class Discovery:
    """After how many schedules a planted fault was found, and by which check."""

    schedules: int
    violation: str = ""

    def __str__(self) -> str:
        if not self.schedules:
            return "not found"
        return f"found by schedule {self.schedules}: {self.violation}"


def count_until_found(name: str, most: int, jobs: int = 1) -> Discovery:
    """Run schedules with a planted fault until one violates something."""
    outcomes = run_campaign(range(most), jobs, PLANTED_FAULTS[name].plant, stop_early=True)
    for tried, outcome in enumerate(outcomes, 1):
        if outcome.violations:
            return Discovery(tried, outcome.violations[0])
    return Discovery(0)
