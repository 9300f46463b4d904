"""Strategies: what the server does to objects of each kind on create, update and delete, one row per kind.

Theory of operation: most behaviour is the same for all kinds. Where kinds differ, the row of a kind in
`STRATEGIES` says how: whether it has a generation, which fields a selector may name, which values it gets on
create and update, and how a delete ends. Kinds that the server only stores (`Kind.is_opaque`) need no row and
have `DEFAULT_STRATEGY`; every other kind has one, and a test walks the table of kinds to see that it does.
Defaults are tables in `dray.api.strategies`. Those of open kinds are applied here, before the functions of
a row, which then see complete objects; those of closed kinds are applied after them, by the writer.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace

from dray.api.kinds import Kind
from dray.api.resource import AllocatedDeviceStatus, DeviceRequestAllocationResult
from dray.api.strategies.pod_creation import complete_new_pod
from dray.api.strategies.workloads import (
    complete_new_daemon_set,
    complete_new_job,
    update_daemon_set,
)
from dray.server.objects.pending_object import PendingObject
from dray.server.objects.stored_object import get_storage_kind
from dray.server.registry import pod_strategy

Document = dict[str, Any]

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
KUBERNETES_FINALIZER: Final = "kubernetes"


@dataclass(frozen=True, slots=True, kw_only=True)
class KindStrategy:
    """How the objects of one kind are created, updated, selected and deleted."""

    has_generation: bool = True
    allows_status_on_create: bool = False
    allows_create_on_update: bool = False
    """Whether a PUT creates an object that does not exist."""
    deletes_gracefully: bool = False
    """Whether a deleted object may stay for other reasons than finalizers in its metadata."""
    returns_deleted_object: bool = False
    """Whether a delete answers with the object instead of a `Status`."""
    selectable_fields: tuple[str, ...] = ()
    """What a field selector may name besides `metadata.name` and `metadata.namespace`."""
    prepare_for_create: Callable[[PendingObject], PendingObject] | None = None
    complete_create: Callable[[Document], Document] | None = None
    """What happens to a new document last, when webhooks have seen it and it has its name and uid."""
    prepare_for_update: Callable[[PendingObject, PendingObject], PendingObject] | None = None
    prepare_status: Callable[[PendingObject, PendingObject], PendingObject] | None = None
    """What happens to an updated status before it is validated."""
    metadata_with_status: tuple[str, ...] = ()
    """The fields of the metadata that a write of the status may change, too."""
    prepare_subresource: Callable[[PendingObject, PendingObject, str], PendingObject] | None = None
    """What a subresource other than the status writes into the stored object."""


def has_status(kind: Kind) -> bool:
    """Whether the status of a kind is written through its own subresource."""
    return "status" in kind.subresources


def prepare_for_create(pending: PendingObject) -> PendingObject:
    """A new object with the values its kind begins with; a status the client may not set is dropped."""
    strategy = get_strategy(pending.kind)
    if has_status(pending.kind) and not strategy.allows_status_on_create:
        pending = pending.copy_status_from(None)
    pending = pending.apply_open_defaults()
    return pending if strategy.prepare_for_create is None else strategy.prepare_for_create(pending)


def complete_create(pending: PendingObject) -> PendingObject:
    """A new object with the values that its kind gets last."""
    complete = get_strategy(pending.kind).complete_create
    return pending if complete is None else pending.replace_document(complete(pending.document))


def prepare_for_update(pending: PendingObject, before: PendingObject) -> PendingObject:
    """An updated object with the values that its kind keeps from the stored one."""
    pending = pending.apply_open_defaults(before)
    prepare = get_strategy(pending.kind).prepare_for_update
    return pending if prepare is None else prepare(pending, before)


def prepare_status(pending: PendingObject, before: PendingObject) -> PendingObject:
    """The stored object with the status of the pending one, as its kind stores it."""
    strategy = get_strategy(pending.kind)
    updated = before.copy_status_from(pending)
    if strategy.metadata_with_status:
        written = {name: pending.metadata.get(name) for name in strategy.metadata_with_status}
        updated = updated.replace_metadata({**updated.metadata, **written})
    updated = updated.apply_open_defaults(before)
    return updated if strategy.prepare_status is None else strategy.prepare_status(updated, before)


def prepare_subresource(pending: PendingObject, before: PendingObject, subresource: str) -> PendingObject:
    """The stored object with what a subresource other than the status may change."""
    prepare = get_strategy(pending.kind).prepare_subresource
    assert prepare is not None, subresource
    return prepare(pending, before, subresource).apply_open_defaults(before)


def _reset_taint_time(rule: PendingObject, before: PendingObject) -> PendingObject:
    """Restart the time of a rule whose effect changes: no pod is evicted for the time it only informed."""
    taint, old_taint = rule.view.spec.taint, before.view.spec.taint
    if taint.effect == old_taint.effect or taint.time_added != old_taint.time_added:
        return rule
    view = replace(rule.view, spec=replace(rule.view.spec, taint=replace(taint, time_added=None)))
    return PendingObject.from_view(rule.kind, view).replace_metadata(rule.metadata)


def _drop_released_devices(claim: PendingObject, before: PendingObject) -> PendingObject:
    """Drop what drivers reported about devices that this update releases: nobody else would clean it up."""
    status = claim.view.status
    if not status.devices:
        return claim
    results, stored = _list_results(claim), _list_results(before)
    released = {_identify(each) for each in stored} - {_identify(each) for each in results}
    kept = tuple(each for each in status.devices if _identify(each) not in released)
    if len(kept) == len(status.devices):
        return claim
    view = replace(claim.view, status=replace(status, devices=kept))
    return PendingObject.from_view(claim.kind, view).replace_metadata(claim.metadata)


def _list_results(claim: PendingObject) -> tuple[DeviceRequestAllocationResult, ...]:
    allocation = claim.view.status.allocation
    return () if allocation is None else allocation.devices.results


def _identify(
    device: DeviceRequestAllocationResult | AllocatedDeviceStatus,
) -> tuple[str, str, str, str | None]:
    return device.driver, device.pool, device.device, device.share_id


def _prepare_namespace(pending: PendingObject) -> PendingObject:
    namespace = pending.document
    metadata = namespace["metadata"]
    labels = {**(metadata.get("labels") or {}), NAMESPACE_LABEL: metadata.get("name", "")}
    spec = {**(namespace.get("spec") or {})}
    spec["finalizers"] = list(dict.fromkeys([*(spec.get("finalizers") or ()), KUBERNETES_FINALIZER]))
    return pending.replace_document(
        {
            **namespace,
            "metadata": {**metadata, "labels": labels},
            "spec": spec,
            "status": {"phase": "Active"},
        },
    )


def _update_namespace(pending: PendingObject, before: PendingObject) -> PendingObject:
    """Keep the finalizers of a namespace's spec: only the subresource `finalize` changes them."""
    namespace, stored = pending.document, before.document
    metadata = namespace["metadata"]
    labels = {**(metadata.get("labels") or {}), NAMESPACE_LABEL: stored["metadata"]["name"]}
    spec = {**(namespace.get("spec") or {})}
    spec["finalizers"] = (stored.get("spec") or {}).get("finalizers") or []
    return pending.replace_document({**namespace, "metadata": {**metadata, "labels": labels}, "spec": spec})


def _keep_spec(pending: PendingObject, before: PendingObject) -> PendingObject:
    """Keep the spec of an object that is immutable."""
    return pending.replace_field("spec", before.document.get("spec"))


def _encode_string_data(pending: PendingObject) -> PendingObject:
    """Move `stringData` of a secret to `data`, encoded."""
    secret = pending.document
    plain = secret.get("stringData")
    if not isinstance(plain, dict) or not all(isinstance(text, str) for text in plain.values()):
        return pending
    encoded = {name: base64.b64encode(text.encode()).decode() for name, text in plain.items()}
    rest = {name: value for name, value in secret.items() if name != "stringData"}
    data = rest.get("data") or {}
    if not isinstance(data, dict):
        return pending
    return pending.replace_document({**rest, "data": {**data, **encoded}})


DEFAULT_STRATEGY: Final = KindStrategy()
"""The strategy of kinds that the server only stores."""

_WITHOUT_GENERATION: Final = KindStrategy(has_generation=False)
_WORKLOAD_METADATA: Final = ("labels", "annotations")
_WORKLOAD: Final = KindStrategy(metadata_with_status=_WORKLOAD_METADATA)
_CREATED_ON_UPDATE: Final = KindStrategy(has_generation=False, allows_create_on_update=True)
_SIGNED: Final = KindStrategy(has_generation=False, selectable_fields=("spec.signerName",))

_STORED_WITHOUT_GENERATION: Final = (
    ("", "Endpoints"),
    ("", "PersistentVolume"),
    ("", "PersistentVolumeClaim"),
    ("apiregistration.k8s.io", "APIService"),
    ("apps", "ControllerRevision"),
    ("coordination.k8s.io", "LeaseCandidate"),
    ("networking.k8s.io", "IPAddress"),
    ("networking.k8s.io", "ServiceCIDR"),
    ("node.k8s.io", "RuntimeClass"),
    ("scheduling.k8s.io", "PodGroup"),
    ("scheduling.k8s.io", "Workload"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "CSIStorageCapacity"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "VolumeAttachment"),
    ("storage.k8s.io", "VolumeAttributesClass"),
    ("storagemigration.k8s.io", "StorageVersionMigration"),
)
"""Kinds that the server only stores, and that have no generation in Kubernetes either."""

VERSIONED_KINDS: Final = frozenset(
    {
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
        ("certificates.k8s.io", "ClusterTrustBundle"),
        ("certificates.k8s.io", "PodCertificateRequest"),
        ("coordination.k8s.io", "Lease"),
        ("coordination.k8s.io", "LeaseCandidate"),
        ("node.k8s.io", "RuntimeClass"),
        ("policy", "PodDisruptionBudget"),
        ("resource.k8s.io", "DeviceTaintRule"),
        ("scheduling.k8s.io", "PodGroup"),
        ("scheduling.k8s.io", "Workload"),
        ("storage.k8s.io", "CSIDriver"),
        ("storage.k8s.io", "CSINode"),
        ("storage.k8s.io", "CSIStorageCapacity"),
        ("storage.k8s.io", "VolumeAttachment"),
        ("storagemigration.k8s.io", "StorageVersionMigration"),
    }
)
"""Kinds whose objects are only replaced by who has read them: an update must name its `resourceVersion`.
Older versions of such a kind do not ask for it.
"""

INVOLVED_OBJECT_FIELDS: Final = (
    "kind",
    "namespace",
    "name",
    "uid",
    "apiVersion",
    "resourceVersion",
    "fieldPath",
)

STRATEGIES: Mapping[tuple[str, str], KindStrategy] = MappingProxyType(
    {
        ("resource.k8s.io", "DeviceClass"): KindStrategy(returns_deleted_object=True),
        ("resource.k8s.io", "ResourceClaim"): KindStrategy(
            has_generation=False, returns_deleted_object=True, prepare_status=_drop_released_devices
        ),
        ("resource.k8s.io", "ResourceClaimTemplate"): KindStrategy(
            has_generation=False, returns_deleted_object=True
        ),
        ("resource.k8s.io", "ResourceSlice"): KindStrategy(
            returns_deleted_object=True, selectable_fields=("spec.nodeName", "spec.driver")
        ),
        ("resource.k8s.io", "DeviceTaintRule"): KindStrategy(prepare_for_update=_reset_taint_time),
        ("cdi.k8s.io", "ResourceClass"): DEFAULT_STRATEGY,
        ("cdi.k8s.io", "ResourceClaim"): KindStrategy(returns_deleted_object=True),
        ("", "Pod"): KindStrategy(
            deletes_gracefully=True,
            returns_deleted_object=True,
            selectable_fields=(
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "status.phase",
                "status.podIP",
                "status.nominatedNodeName",
            ),
            prepare_for_create=lambda pod: pod.replace_document(
                pod_strategy.prepare_for_create(pod.document)
            ),
            complete_create=complete_new_pod,
            prepare_for_update=lambda pod, before: pod.replace_document(
                pod_strategy.prepare_for_update(pod.document, before.document)
            ),
            prepare_status=lambda pod, before: pod.replace_document(
                pod_strategy.prepare_status(pod.document, before.document)
            ),
            prepare_subresource=lambda pod, before, subresource: before.replace_document(
                pod_strategy.prepare_subresource(pod.document, before.document, subresource)
            ),
        ),
        ("", "Node"): KindStrategy(
            has_generation=False, allows_status_on_create=True, selectable_fields=("spec.unschedulable",)
        ),
        ("", "Namespace"): KindStrategy(
            has_generation=False,
            deletes_gracefully=True,
            selectable_fields=("status.phase",),
            prepare_for_create=_prepare_namespace,
            prepare_for_update=_update_namespace,
        ),
        ("", "Event"): KindStrategy(
            has_generation=False,
            allows_create_on_update=True,
            selectable_fields=(
                *(f"involvedObject.{name}" for name in INVOLVED_OBJECT_FIELDS),
                "reason",
                "reportingComponent",
                "source",
                "type",
            ),
        ),
        ("", "ResourceQuota"): _WITHOUT_GENERATION,
        ("", "ConfigMap"): _WITHOUT_GENERATION,
        ("", "Secret"): KindStrategy(
            has_generation=False,
            selectable_fields=("type",),
            prepare_for_create=_encode_string_data,
            prepare_for_update=lambda secret, before: _encode_string_data(secret),
        ),
        ("", "ServiceAccount"): KindStrategy(has_generation=False, returns_deleted_object=True),
        # The kubelet lists services by their address.
        ("", "Service"): KindStrategy(
            has_generation=False,
            returns_deleted_object=True,
            allows_create_on_update=True,
            selectable_fields=("spec.clusterIP", "spec.type"),
        ),
        ("", "LimitRange"): _CREATED_ON_UPDATE,
        ("", "ReplicationController"): _WORKLOAD,
        ("apps", "DaemonSet"): KindStrategy(
            metadata_with_status=_WORKLOAD_METADATA,
            complete_create=complete_new_daemon_set,
            prepare_for_update=lambda daemon_set, before: daemon_set.replace_document(
                update_daemon_set(daemon_set.document, before.document)
            ),
        ),
        # kube-controller-manager writes the revision of a deployment, an annotation, with its status.
        ("apps", "Deployment"): KindStrategy(metadata_with_status=("annotations",)),
        ("apps", "ReplicaSet"): _WORKLOAD,
        ("apps", "StatefulSet"): _WORKLOAD,
        ("batch", "CronJob"): _WORKLOAD,
        ("batch", "Job"): KindStrategy(
            metadata_with_status=_WORKLOAD_METADATA, complete_create=complete_new_job
        ),
        ("coordination.k8s.io", "Lease"): _CREATED_ON_UPDATE,
        ("rbac.authorization.k8s.io", "Role"): _CREATED_ON_UPDATE,
        ("rbac.authorization.k8s.io", "RoleBinding"): _CREATED_ON_UPDATE,
        ("rbac.authorization.k8s.io", "ClusterRole"): _CREATED_ON_UPDATE,
        ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _CREATED_ON_UPDATE,
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): DEFAULT_STRATEGY,
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): DEFAULT_STRATEGY,
        ("dray.dev", "Preparation"): KindStrategy(selectable_fields=("spec.nodeName", "spec.claim.uid")),
        ("certificates.k8s.io", "ClusterTrustBundle"): _SIGNED,
        ("certificates.k8s.io", "PodCertificateRequest"): KindStrategy(
            has_generation=False, selectable_fields=("spec.signerName", "spec.podName", "spec.nodeName")
        ),
        ("certificates.k8s.io", "CertificateSigningRequest"): replace_fields(
            _SIGNED, prepare_for_update=_keep_spec
        ),
        **dict.fromkeys(_STORED_WITHOUT_GENERATION, _WITHOUT_GENERATION),
    }
)
"""The strategy of each kind, by group and name; an alias of another kind has the strategy of that kind."""


@lru_cache(maxsize=256)
def get_strategy(kind: Kind) -> KindStrategy:
    """The strategy of a kind."""
    storage_kind = get_storage_kind(kind)
    return STRATEGIES.get((storage_kind.group, storage_kind.name), DEFAULT_STRATEGY)
