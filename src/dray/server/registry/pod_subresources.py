"""Subresources that are errands: bind a pod to a node, evict it.

An errand is a small change of the object it belongs to, asked for by a body of another kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dray.api.kinds import Kind, known_kind
from dray.clock import timestamp
from dray.server.http.errors import bad_request, conflict, invalid_options, not_found, too_many_requests
from dray.server.http.request_body import options
from dray.server.http.requests import Request
from dray.server.objects.pending_object import Draft
from dray.server.objects.stored_object import Held
from dray.server.registry import object_metadata
from dray.server.registry.deleter import Removing, pretended, sensible
from dray.server.registry.object_registry import Keep, Wanted, Written
from dray.server.registry.writer import Writing
from dray.values.label_selectors import LabelSelector, LabelSelectorError

_BUDGET = known_kind("policy", "PodDisruptionBudget")
_BINDING = ("", "v1", "Binding")
_EVICTION = ("policy", "v1", "Eviction")


class Errands:
    """Carries out bindings and evictions."""

    def __init__(self, writing: Writing, removing: Removing) -> None:
        self._writing = writing
        self._removing = removing

    async def bind(self, request: Request, kind: Kind) -> Written:
        """Write the node into a pod, once."""
        call = request.call
        binding = await self._writing.registry.admission.errand(request, kind, _BINDING, options(request))
        node, metadata = _node_of(binding), _metadata_of(binding)
        name = call.name or str(metadata.get("name") or "")
        object_metadata.check_name(metadata, name)
        object_metadata.placed(kind, metadata, call.namespace)

        def decide(old: Held | None) -> Wanted:
            if old is None:
                raise not_found(kind, name)
            return Keep(self._bound(kind, old, node, metadata))

        return await self._writing.registry.write(request, kind, call.namespace, name, decide)

    def _bound(self, kind: Kind, old: Held, node: str, binding: Mapping[str, Any]) -> Draft:
        pod = old.document
        metadata, spec = pod["metadata"], pod.get("spec") or {}
        if binding.get("uid") and binding["uid"] != metadata["uid"]:
            raise conflict(
                kind,
                old.name,
                f"Precondition failed: UID in precondition: {binding['uid']}, "
                f"UID in object meta: {metadata['uid']}",
            )
        if metadata.get("deletionTimestamp"):
            raise conflict(kind, old.name, f"pod {old.name} is being deleted, cannot be assigned to a host")
        if spec.get("nodeName"):
            raise conflict(kind, old.name, f'pod {old.name} is already assigned to node "{spec["nodeName"]}"')
        now = timestamp(self._writing.world.clock.now())
        # Where a pod was to go means nothing once it is somewhere.
        status = {
            name: value for name, value in (pod.get("status") or {}).items() if name != "nominatedNodeName"
        }
        scheduled = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": now,
        }
        others = [each for each in status.get("conditions") or () if each.get("type") != "PodScheduled"]
        marks = {**(metadata.get("annotations") or {}), **(binding.get("annotations") or {})}
        return Draft.of_open(
            kind,
            {
                **pod,
                "metadata": {**metadata, **({"annotations": marks} if marks else {})},
                "spec": {**spec, "nodeName": node},
                "status": {**status, "conditions": [*others, scheduled]},
            },
        )

    async def evict(self, request: Request, kind: Kind) -> Written:
        """Delete a pod, unless a disruption budget says that it is needed."""
        call, eviction = request.call, options(request)
        eviction = await self._reviewed(request, kind, eviction)
        object_metadata.check_name(_metadata_of(eviction), call.name)
        cache = self._writing.registry.cache
        await cache.caught_up()
        pod = cache.get(kind, call.namespace, call.name)
        if pod is None:
            raise not_found(kind, call.name)
        self._check_budgets(pod)
        wish = _wish(eviction)
        return await self._removing.remove(pretended(request, wish), kind, call.namespace, call.name, wish)

    async def _reviewed(self, request: Request, kind: Kind, eviction: dict[str, Any]) -> dict[str, Any]:
        """An eviction as webhooks make it; it may be a dry run by what it says itself."""
        asked = pretended(request, _wish(eviction))
        return await self._writing.registry.admission.errand(asked, kind, _EVICTION, eviction)

    def _check_budgets(self, pod: Held) -> None:
        labels = pod.metadata.labels
        for held in self._writing.registry.cache.all(_BUDGET, pod.namespace):
            budget = held.document
            allowed = _part(budget, "status").get("disruptionsAllowed")
            try:
                selector = LabelSelector.read(_part(budget, "spec").get("selector") or {})
            except LabelSelectorError:
                continue
            if isinstance(allowed, int) and allowed <= 0 and selector.matches(labels):
                raise too_many_requests(
                    "Cannot evict pod as it would violate the pod's disruption budget: "
                    f"{held.name} allows no disruption now",
                    seconds=10,
                )


def _wish(eviction: Mapping[str, Any]) -> dict[str, Any]:
    """How an evicted pod is to be deleted."""
    wish = eviction.get("deleteOptions") or {}
    if not isinstance(wish, dict):
        raise invalid_options("Eviction", "deleteOptions", "Invalid value: must be an object")
    return sensible(wish)


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of an object that nobody looked into when it was written; empty when it is none."""
    part = document.get(name)
    return part if isinstance(part, Mapping) else {}


def _node_of(binding: Mapping[str, Any]) -> str:
    target = _part(binding, "target")
    node = target.get("name")
    if not node or not isinstance(node, str) or target.get("kind", "Node") != "Node":
        raise bad_request("a binding names its node: `target: {kind: Node, name: ...}`")
    return node


def _metadata_of(binding: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metadata of an errand; annotations of a binding go to the pod."""
    metadata = binding.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise bad_request("metadata must be an object")
    marks = metadata.get("annotations") or {}
    if not isinstance(marks, dict) or not all(isinstance(value, str) for value in marks.values()):
        raise bad_request("metadata.annotations must be an object of strings")
    return metadata
