"""What the controllers see: informers, their indexes, and our own newest knowledge laid over them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

from dray.api.classic import ClassicClaim
from dray.api.core import Pod
from dray.api.resource import ResourceClaim, ResourceClaimTemplate
from dray.claims import claim_names
from dray.claims.lifecycle import Surroundings
from dray.client.client import Client
from dray.client.informers.informer import Informer, Ways, without_managed_fields
from dray.controllers.mutation_cache import Recent
from dray.telemetry.logs import Log

OWNER, CONSUMER, TEMPLATE, CLAIM, INLINE = "owner", "consumer", "template", "claim", "inline"
NODE: Final = "node"
REMEMBERED: Final = 100_000
"""How many pods that were seen to go are remembered."""


def ways(log: Log) -> Ways:
    """How the controllers look: without what they do not read, and not in silence when they see nothing."""

    def troubled(failed: Exception) -> None:
        log.warning("objects cannot be watched just now", why=str(failed))

    return Ways(keep=without_managed_fields, trouble=troubled)


class Sights:
    """Pods, claims and templates, as they are."""

    def __init__(self, client: Client, log: Log, *, classic: bool) -> None:
        how = ways(log)
        self.pods = Informer(client, Pod, ways=how)
        self.claims = Informer(client, ResourceClaim, ways=how)
        self.templates = Informer(client, ResourceClaimTemplate, ways=how)
        self.classic = Informer(client, ClassicClaim, ways=how) if classic else None
        self.claims.add_index(OWNER, _owners)
        self.claims.add_index(CONSUMER, _consumers)
        self.pods.add_index(TEMPLATE, templates_named)
        self.pods.add_index(CLAIM, claims_named)
        self.pods.add_index(INLINE, _inline)
        self.pods.add_index(NODE, lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())
        self.newest_pods = Recent(Pod, self.pods, CLAIM, claims_named)
        self.newest_claims = Recent(ResourceClaim, self.claims, OWNER, _owners)
        self.newest_templates: Recent[ResourceClaimTemplate] = Recent(ResourceClaimTemplate, self.templates)
        self.newest_classic = self._classic()
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._doubted: set[str] = set()
        self.pods.listen(deleted=lambda pod: self.went(pod.metadata.uid))
        self.around = Surroundings(
            claim=self.newest_claims.get,
            owned=lambda pod: self.newest_claims.at(pod.metadata.uid),
            template=self.newest_templates.get,
            classic=self.classic_claim,
            pod=self.newest_pods.get,
            named=lambda namespace, name: self.newest_pods.at((namespace, name)),
        )

    def _classic(self) -> Recent[ClassicClaim] | None:
        if self.classic is None:
            return None
        self.classic.add_index(OWNER, _owners)
        self.classic.add_index(CONSUMER, _consumers)
        return Recent(ClassicClaim, self.classic, OWNER, _owners)

    def classic_claim(self, namespace: str, name: str) -> ClassicClaim | None:
        return None if self.newest_classic is None else self.newest_classic.get(namespace, name)

    def went(self, uid: str) -> None:
        """A pod is gone for certain."""
        self._doubted.discard(uid)
        self._gone[uid] = None
        if len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)

    def is_gone(self, uid: str) -> bool:
        """Whether a pod was seen to go; when not, it may also be one that we have not seen come."""
        return uid in self._gone

    def doubt(self, uid: str) -> None:
        """A pod that was over has a claim again: a server that was restored may have the pod once more."""
        self._gone.pop(uid, None)
        self._doubted.add(uid)

    def is_doubted(self, uid: str) -> bool:
        """Whether the server has to be asked what became of a pod, whatever was seen of it."""
        return uid in self._doubted

    def believe(self, uid: str) -> None:
        """The server was asked."""
        self._doubted.discard(uid)

    def informers(self) -> list[Informer[Any]]:
        kinds: list[Informer[Any] | None] = [self.pods, self.claims, self.templates, self.classic]
        return [informer for informer in kinds if informer is not None]


def _owners(claim: ResourceClaim | ClassicClaim) -> list[str]:
    return [owner.uid for owner in claim.metadata.owner_references if owner.kind == "Pod"]


def _consumers(claim: ResourceClaim | ClassicClaim) -> list[str]:
    return [consumer.uid for consumer in claim.status.reserved_for]


def templates_named(pod: Pod) -> list[tuple[str, str]]:
    """The templates a pod makes claims from."""
    namespace = pod.metadata.namespace
    names = (entry.resource_claim_template_name for entry in pod.spec.resource_claims)
    return [(namespace, name) for name in names if name is not None]


def claims_named(pod: Pod) -> Iterator[tuple[str, str]]:
    """The claims a pod names, or was told that they were made for it."""
    namespace = pod.metadata.namespace
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_name is not None:
            yield namespace, entry.resource_claim_name
    for said in pod.status.resource_claim_statuses:
        if said.resource_claim_name is not None:
            yield namespace, said.resource_claim_name


def _inline(pod: Pod) -> list[tuple[str, str]]:
    """The classic claims that a pod's inline templates make."""
    namespace = pod.metadata.namespace
    return [
        (namespace, claim_names.classic_name(pod, entry))
        for entry in pod.spec.resource_claims
        if entry.template is not None
    ]
