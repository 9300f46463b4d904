"""The informers that the controllers share, their indexes, and the mutation caches over them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod
from dray.api.resource import ResourceClaim, ResourceClaimTemplate
from dray.claims import claim_names
from dray.claims.lifecycle import LifecycleLookups
from dray.client.client import Client
from dray.client.informers.informer import Informer, InformerOptions, strip_managed_fields
from dray.controllers.mutation_cache import MutationCache
from dray.telemetry.logs import StructuredLogger

OWNER_INDEX, CONSUMER_INDEX, TEMPLATE_INDEX, CLAIM_INDEX, INLINE_CLAIM_INDEX = (
    "owner",
    "consumer",
    "template",
    "claim",
    "inline",
)
NODE_INDEX: Final = "node"
MAX_REMEMBERED_PODS: Final = 100_000
"""How many deleted pods are remembered."""


def build_informer_options(log: StructuredLogger) -> InformerOptions:
    """Build the options of an informer: shared, without managed fields, and with failures logged."""

    def log_failure(failed: Exception) -> None:
        log.warning("listing or watching objects failed", why=str(failed))

    return InformerOptions(transform=strip_managed_fields, on_failure=log_failure, may_share=True)


class SharedInformers:
    """Informers and caches of pods, claims and templates."""

    def __init__(
        self,
        client: Client,
        log: StructuredLogger,
        *,
        classic: bool,
        strip_claim: Callable[[ResourceClaim], ResourceClaim] = strip_managed_fields,
    ) -> None:
        """`strip_claim` receives every claim with its managed fields, and returns what is kept."""
        options = build_informer_options(log)
        self.pods = Informer(client, Pod, options=options)

        self.claims = Informer(client, ResourceClaim, options=replace(options, transform=strip_claim))
        self.templates = Informer(client, ResourceClaimTemplate, options=options)
        self.classic_claims = Informer(client, ClassicResourceClaim, options=options) if classic else None
        self.claims.add_index(OWNER_INDEX, _get_owner_uids)
        self.claims.add_index(CONSUMER_INDEX, _get_consumer_uids)
        self.pods.add_index(TEMPLATE_INDEX, list_template_names)
        self.pods.add_index(CLAIM_INDEX, list_claim_names)
        self.pods.add_index(INLINE_CLAIM_INDEX, _list_inline_claim_names)
        self.pods.add_index(NODE_INDEX, lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())
        self.pod_cache = MutationCache(Pod, self.pods, CLAIM_INDEX, list_claim_names)
        self.claim_cache = MutationCache(ResourceClaim, self.claims, OWNER_INDEX, _get_owner_uids)
        self.template_cache: MutationCache[ResourceClaimTemplate] = MutationCache(
            ResourceClaimTemplate, self.templates
        )
        self.classic_claim_cache = self._build_classic_cache()
        self._gone_pods: OrderedDict[str, None] = OrderedDict()
        self._uncertain_pods: set[str] = set()
        self.pods.listen(deleted=lambda pod: self.mark_pod_gone(pod.metadata.uid))
        self.lookup = LifecycleLookups(
            get_claim=self.claim_cache.get,
            list_owned_claims=lambda pod: self.claim_cache.get_by_index(pod.metadata.uid),
            get_template=self.template_cache.get,
            get_classic_claim=self.get_classic_claim,
            get_pod=self.pod_cache.get,
            list_naming_pods=lambda namespace, name: self.pod_cache.get_by_index((namespace, name)),
        )

    def _build_classic_cache(self) -> MutationCache[ClassicResourceClaim] | None:
        if self.classic_claims is None:
            return None
        self.classic_claims.add_index(OWNER_INDEX, _get_owner_uids)
        self.classic_claims.add_index(CONSUMER_INDEX, _get_consumer_uids)
        return MutationCache(ClassicResourceClaim, self.classic_claims, OWNER_INDEX, _get_owner_uids)

    def get_classic_claim(self, namespace: str, name: str) -> ClassicResourceClaim | None:
        return None if self.classic_claim_cache is None else self.classic_claim_cache.get(namespace, name)

    def mark_pod_gone(self, uid: str) -> None:
        """Remember that a pod is deleted."""
        self._uncertain_pods.discard(uid)
        self._gone_pods[uid] = None
        if len(self._gone_pods) > MAX_REMEMBERED_PODS:
            self._gone_pods.popitem(last=False)

    def is_pod_gone(self, uid: str) -> bool:
        """Whether the deletion of a pod is known; if not, the pod may also be one not seen yet."""
        return uid in self._gone_pods

    def mark_pod_uncertain(self, uid: str) -> None:
        """Mark a finished pod that has a claim again: a restored server may have the pod once more."""
        self._gone_pods.pop(uid, None)
        self._uncertain_pods.add(uid)

    def is_pod_uncertain(self, uid: str) -> bool:
        """Whether the server has to be asked for a pod, whatever the informer shows."""
        return uid in self._uncertain_pods

    def clear_pod_uncertainty(self, uid: str) -> None:
        """Clear the mark after the server was asked."""
        self._uncertain_pods.discard(uid)

    def list_informers(self) -> list[Informer[Any]]:
        kinds: list[Informer[Any] | None] = [self.pods, self.claims, self.templates, self.classic_claims]
        return [informer for informer in kinds if informer is not None]


def _get_owner_uids(claim: ResourceClaim | ClassicResourceClaim) -> list[str]:
    return [owner.uid for owner in claim.metadata.owner_references if owner.kind == "Pod"]


def _get_consumer_uids(claim: ResourceClaim | ClassicResourceClaim) -> list[str]:
    return [consumer.uid for consumer in claim.status.reserved_for]


def list_template_names(pod: Pod) -> list[tuple[str, str]]:
    """List the templates that a pod names."""
    namespace = pod.metadata.namespace
    names = (entry.resource_claim_template_name for entry in pod.spec.resource_claims)
    return [(namespace, name) for name in names if name is not None]


def list_claim_names(pod: Pod) -> Iterator[tuple[str, str]]:
    """List the claims that a pod names or has recorded in its status."""
    namespace = pod.metadata.namespace
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_name is not None:
            yield namespace, entry.resource_claim_name
    for recorded in pod.status.resource_claim_statuses:
        if recorded.resource_claim_name is not None:
            yield namespace, recorded.resource_claim_name


def _list_inline_claim_names(pod: Pod) -> list[tuple[str, str]]:
    """List the classic claims that a pod's inline templates make."""
    namespace = pod.metadata.namespace
    return [
        (namespace, claim_names.build_classic_name(pod, entry))
        for entry in pod.spec.resource_claims
        if entry.template is not None
    ]
