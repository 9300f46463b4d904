"""The subresources `binding` and `eviction` of pods.

Each changes the pod that its path names; the body is of another kind, `Binding` or `Eviction`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dray.api.kinds import Kind, get_kind
from dray.clock import Clock, format_timestamp
from dray.server.http.errors import (
    new_bad_request,
    new_conflict,
    new_invalid_options,
    new_not_found,
    new_too_many_requests,
)
from dray.server.http.request_body import decode_message
from dray.server.http.requests import ApiRequest
from dray.server.objects.pending_object import PendingObject
from dray.server.objects.stored_object import StoredObject
from dray.server.registry import object_metadata
from dray.server.registry.deleter import ObjectDeleter, apply_dry_run, validate_delete_options
from dray.server.registry.object_registry import SaveObject, WriteDecision, WriteRegistry, WriteResult
from dray.values.label_selectors import LabelSelectorError, ParsedLabelSelector

_BUDGET = get_kind("policy", "PodDisruptionBudget")
_BINDING = ("", "v1", "Binding")
_EVICTION = ("policy", "v1", "Eviction")


class PodSubresources:
    """Carries out bindings and evictions."""

    def __init__(self, registry: WriteRegistry, deleter: ObjectDeleter, clock: Clock) -> None:
        self._registry = registry
        self._deleter = deleter
        self._clock = clock

    async def bind(self, request: ApiRequest, kind: Kind) -> WriteResult:
        """Set the node of a pod that has none."""
        call = request.call
        binding = await self._registry.admit_subresource(
            request, kind, _BINDING, decode_message(request, "v1", "Binding")
        )
        node, metadata = _read_node_name(binding), _read_metadata(binding)
        name = call.name or str(metadata.get("name") or "")
        if not name:
            raise new_bad_request("a binding names its pod: `metadata: {name: ...}`")
        object_metadata.check_name(metadata, name, required=True)
        object_metadata.resolve_namespace(kind, metadata, call.namespace)

        def decide(old: StoredObject | None) -> WriteDecision:
            if old is None:
                raise new_not_found(kind, name)
            return SaveObject(self._build_bound_pod(kind, old, node, metadata))

        return await self._registry.write(request, kind, call.namespace, name, decide)

    def _build_bound_pod(
        self, kind: Kind, old: StoredObject, node: str, binding: Mapping[str, Any]
    ) -> PendingObject:
        pod = old.document
        _check_binding(kind, pod, binding)
        metadata, spec = pod["metadata"], pod.get("spec") or {}
        now = format_timestamp(self._clock.now())
        # A bound pod needs no nomination.
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
        annotations = {**(metadata.get("annotations") or {}), **(binding.get("annotations") or {})}
        return PendingObject.from_open_document(
            kind,
            {
                **pod,
                "metadata": {**metadata, **({"annotations": annotations} if annotations else {})},
                "spec": {**spec, "nodeName": node},
                "status": {**status, "conditions": [*others, scheduled]},
            },
        )

    async def evict(self, request: ApiRequest, kind: Kind) -> WriteResult:
        """Delete a pod, unless a disruption budget forbids it."""
        call, eviction = request.call, decode_message(request, "policy/v1", "Eviction")
        eviction = await self._review_eviction(request, kind, eviction)
        object_metadata.check_name(_read_metadata(eviction), call.name, required=True)
        object_metadata.resolve_namespace(kind, _read_metadata(eviction), call.namespace)
        cache = self._registry.cache
        await cache.wait_until_fresh()
        pod = cache.get(kind, call.namespace, call.name)
        if pod is None:
            raise new_not_found(kind, call.name)
        self._check_budgets(pod)
        options = _read_delete_options(eviction)
        return await self._deleter.delete_object(
            apply_dry_run(request, options), kind, call.namespace, call.name, options
        )

    async def _review_eviction(
        self, request: ApiRequest, kind: Kind, eviction: dict[str, Any]
    ) -> dict[str, Any]:
        """The eviction after admission webhooks; its own options may make it a dry run."""
        reviewed = apply_dry_run(request, _read_delete_options(eviction))
        return await self._registry.admit_subresource(reviewed, kind, _EVICTION, eviction)

    def _check_budgets(self, pod: StoredObject) -> None:
        labels = pod.metadata.labels
        for stored in self._registry.cache.list_objects(_BUDGET, pod.namespace):
            budget = stored.document
            allowed = _get_mapping(budget, "status").get("disruptionsAllowed")
            try:
                selector = ParsedLabelSelector.from_document(
                    _get_mapping(budget, "spec").get("selector") or {}
                )
            except LabelSelectorError:
                continue
            if isinstance(allowed, int) and allowed <= 0 and selector.matches(labels):
                raise new_too_many_requests(
                    "Cannot evict pod as it would violate the pod's disruption budget: "
                    f"{stored.name} allows no disruption now",
                    seconds=10,
                )


def _check_binding(kind: Kind, pod: Mapping[str, Any], binding: Mapping[str, Any]) -> None:
    """Refuse a binding of another pod, of a deleted pod, and of one that has a node."""
    metadata, node = pod["metadata"], (pod.get("spec") or {}).get("nodeName")
    name = metadata["name"]
    if binding.get("uid") and binding["uid"] != metadata["uid"]:
        why = (
            f"Precondition failed: UID in precondition: {binding['uid']}, "
            f"UID in object meta: {metadata['uid']}"
        )
    elif metadata.get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif node:
        why = f'pod {name} is already assigned to node "{node}"'
    else:
        return
    raise new_conflict(kind, name, why)


def _read_delete_options(eviction: Mapping[str, Any]) -> dict[str, Any]:
    """The options with which an evicted pod is deleted."""
    options = eviction.get("deleteOptions") or {}
    if not isinstance(options, dict):
        raise new_invalid_options("Eviction", "deleteOptions", "Invalid value: must be an object")
    return validate_delete_options(options)


def _get_mapping(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A field of an object that is not validated; empty when it is no mapping."""
    part = document.get(name)
    return part if isinstance(part, Mapping) else {}


def _read_node_name(binding: Mapping[str, Any]) -> str:
    target = _get_mapping(binding, "target")
    node = target.get("name")
    if not node or not isinstance(node, str) or target.get("kind", "Node") != "Node":
        raise new_bad_request("a binding names its node: `target: {kind: Node, name: ...}`")
    return node


def _read_metadata(binding: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metadata of a binding or eviction; the annotations of a binding are added to the pod."""
    metadata = binding.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise new_bad_request("metadata must be an object")
    annotations = metadata.get("annotations") or {}
    if not isinstance(annotations, dict) or not all(isinstance(value, str) for value in annotations.values()):
        raise new_bad_request("metadata.annotations must be an object of strings")
    return metadata
