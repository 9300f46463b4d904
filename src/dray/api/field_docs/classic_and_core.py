"""Field documentation of the classic kinds, the projections of core objects, and preparations."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dray.api.classic.resource_claim import (
    ClassicClaimSpec,
    ClassicClaimStatus,
    ClassicResourceClaim,
    DriverSchedulingStatus,
    SchedulerSchedulingStatus,
    SchedulingStatus,
)
from dray.api.classic.resource_class import ResourceClass
from dray.api.core.cluster import (
    Event,
    LeaseSpec,
    NamespaceSpec,
    NamespaceStatus,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    QuotaSpec,
    QuotaStatus,
    Taint,
)
from dray.api.core.pod import (
    Affinity,
    Container,
    ContainerClaim,
    ContainerResources,
    InlineTemplate,
    NodeAffinity,
    PodCondition,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodResources,
    PodSpec,
    PodStatus,
    PreferredNode,
    SchedulingGate,
    Toleration,
)
from dray.api.preparation import Preparation, PreparationDevice, PreparationSpec, PreparedClaim

CLASSIC: Mapping[type, Mapping[str, str]] = MappingProxyType(
    {
        ResourceClass: {
            "driverName": "The driver whose controller allocates claims of this class. Required.",
            "parameters": "Parameters of the administrator for the driver; any JSON object.",
        },
        ClassicResourceClaim: {
            "spec": "Which class, with which parameters. It never changes.",
            "status": "State of the negotiation between scheduler and driver.",
        },
        ClassicClaimSpec: {
            "resourceClassName": "The ResourceClass that names the driver. Required.",
            "parameters": "Parameters of this claim for the driver; any JSON object.",
            "allocationMode": "`Delayed` waits until a pod needs the claim, `Immediate` allocates at once. "
            "The default is `Delayed`.",
        },
        ClassicClaimStatus: {
            "phase": "`Pending`, `Allocated`, or `Reallocate` when the driver should free it and "
            "allocate again.",
            "driverName": "The driver that allocated, so that it is known when the class is gone.",
            "scheduling": "The negotiation of scheduler and driver while they look for a node.",
            "attributes": "Data of the driver for its node plugin.",
            "availableOnNodes": "The nodes where the resource can be used; every node when absent.",
            "userLimit": "How many may use the resource at the same time; unlimited when absent.",
            "reservedFor": "Consumers of the resource.",
        },
        SchedulingStatus: {
            "scheduler": "The scheduler's part of the negotiation.",
            "driver": "The driver's part of the negotiation.",
        },
        SchedulerSchedulingStatus: {
            "selectedNode": "The node for which the driver should allocate.",
            "potentialNodes": "Nodes the scheduler considers; the driver reports unsuitable ones.",
        },
        DriverSchedulingStatus: {
            "unsuitableNodes": "Nodes where the resource cannot be provided.",
            "availableOnNodes": "The nodes where the resource can be provided.",
        },
    }
)

CORE: Mapping[type, Mapping[str, str]] = MappingProxyType(
    {
        PodSpec: {
            "terminationGracePeriodSeconds": "How long the pod may take to terminate.",
            "containers": "The containers that run.",
            "initContainers": "Containers that run before the others, or beside them with the restart policy "
            "`Always`.",
            "ephemeralContainers": "Containers added to a running pod to debug it.",
            "resourceClaims": "The claims of the pod; containers refer to them by name.",
            "nodeName": "The node the pod is bound to; empty until a scheduler has chosen one.",
            "schedulerName": "The scheduler that places the pod.",
            "priority": "Pods of a higher priority are placed first.",
            "nodeSelector": "Labels that a node must have, with exactly these values.",
            "affinity": "Placement requirements and preferences of the pod.",
            "tolerations": "Taints of nodes that the pod tolerates.",
            "resources": "What the containers need together; replaces the sum of theirs.",
            "overhead": "What the runtime of the pod needs on top of its containers.",
            "schedulingGates": "While one is left, the pod is not scheduled.",
            "schedulingGroup": "The group of pods that the pod is scheduled with; our scheduler does not "
            "schedule groups, and leaves the pod alone.",
            "workloadRef": "The spelling of `schedulingGroup` in Kubernetes 1.35.",
            "restartPolicy": "When containers that end are started again: `Always`, `OnFailure` or `Never`.",
        },
        SchedulingGate: {"name": "What the pod waits for; the controller that added it removes it."},
        Affinity: {"nodeAffinity": "Nodes by their labels and names."},
        NodeAffinity: {
            "requiredDuringSchedulingIgnoredDuringExecution": "The pod runs only on nodes that this selects.",
            "preferredDuringSchedulingIgnoredDuringExecution": "Nodes that these select are preferred.",
        },
        PreferredNode: {
            "weight": "The weight of the preference, from 1 to 100.",
            "preference": "The preferred nodes.",
        },
        Toleration: {
            "key": "The key of the taint; any when empty.",
            "operator": "`Exists`, or `Equal` when the value must be the same; the default is `Equal`.",
            "value": "The value of the taint, for `Equal`.",
            "effect": "The effect of the taint; any when empty.",
            "tolerationSeconds": "How long a taint of the effect `NoExecute` is tolerated; forever when "
            "absent.",
        },
        Container: {
            "name": "The name of the container, unique in the pod.",
            "restartPolicy": "`Always` makes an init container run beside the others.",
            "resources": "What the container needs.",
        },
        ContainerResources: {
            "requests": "What is reserved for the container.",
            "limits": "What the container may use at most.",
            "claims": "Claims of the pod that the container uses.",
        },
        PodResources: {
            "requests": "What is reserved for the pod: CPU, memory and huge pages.",
            "limits": "What all containers together may use at most.",
        },
        ContainerClaim: {
            "name": "The name of a claim in `spec.resourceClaims` of the pod.",
            "request": "One request of the claim; all of them when empty.",
        },
        PodResourceClaim: {
            "name": "The name by which containers refer to the claim.",
            "resourceClaimName": "A claim that exists, in the namespace of the pod.",
            "resourceClaimTemplateName": "A template from which a claim is made for this pod; it is "
            "deleted with the pod.",
            "template": "A classic template inside the pod.",
        },
        InlineTemplate: {
            "metadata": "Labels and annotations of the claim that is made.",
            "spec": "The spec of the claim that is made.",
        },
        PodStatus: {
            "phase": "`Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.",
            "conditions": "Conditions of the pod; `PodScheduled` says why it has no node.",
            "nominatedNodeName": "The node on which a scheduler frees resources for the pod.",
            "resourceClaimStatuses": "The claims that were created for the pod.",
        },
        PodResourceClaimStatus: {
            "name": "The name of the entry in `spec.resourceClaims`.",
            "resourceClaimName": "The claim that was created for it; none was needed when absent.",
        },
        NamespaceSpec: {"finalizers": "Cleanup that must finish before the namespace is removed."},
        NamespaceStatus: {"phase": "`Active`, or `Terminating` while its objects are deleted."},
        PodCondition: {
            "type": "What it is about, such as `PodScheduled`.",
            "status": "`True`, `False` or `Unknown`.",
            "reason": "Why, in one word.",
            "message": "Why, for people.",
            "lastTransitionTime": "When the status changed last.",
        },
        NodeSpec: {
            "unschedulable": "No new pods are placed on the node.",
            "taints": "What keeps pods away that do not tolerate it.",
        },
        NodeStatus: {
            "capacity": "What the node has.",
            "allocatable": "What the node has available for pods.",
            "conditions": "Conditions of the node; `Ready` says whether it runs pods.",
        },
        NodeCondition: {
            "type": "What it is about, such as `Ready`.",
            "status": "`True`, `False` or `Unknown`.",
            "reason": "Why, in one word.",
            "message": "Why, for people.",
            "lastTransitionTime": "When the status changed last.",
        },
        Taint: {
            "key": "The name of the taint.",
            "value": "The value of the taint.",
            "effect": "`NoSchedule`, `PreferNoSchedule`, or `NoExecute`, which also evicts running pods.",
            "timeAdded": "When the taint was added.",
        },
        Event: {
            "type": "`Normal` or `Warning`.",
            "reason": "What happened, in one word.",
        },
        QuotaSpec: {"hard": "The limits, by resource."},
        QuotaStatus: {"hard": "The limits in force.", "used": "The amount in use of each resource."},
        LeaseSpec: {
            "holderIdentity": "The holder of the lease.",
            "leaseDurationSeconds": "How long others wait after the last renewal before they take it.",
            "acquireTime": "When the holder took it.",
            "renewTime": "When the holder renewed it last.",
            "leaseTransitions": "How often the holder changed.",
        },
        Preparation: {"spec": "The node, and the claim whose devices it holds."},
        PreparationSpec: {
            "nodeName": "The node.",
            "claim": "The claim whose devices the node has prepared, or is about to.",
            "devices": "The devices the node holds, independent of the claim. Set only after the server was "
            "restored from a copy, which may not record them.",
        },
        PreparationDevice: {
            "driver": "The driver of the device.",
            "pool": "The pool of the device.",
            "device": "The name of the device in its pool.",
            "shareID": "The share of the device, when several claims share it.",
        },
        PreparedClaim: {
            "namespace": "The namespace of the claim.",
            "name": "The name of the claim.",
            "uid": "The uid, which identifies the claim.",
        },
    }
)
