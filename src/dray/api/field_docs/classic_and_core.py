"""The fields of the classic kinds, of what is read of core objects, and of our own kinds."""

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
            "parameters": "What the administrator wants the driver to know; any JSON object.",
        },
        ClassicResourceClaim: {
            "spec": "Which class, with which parameters. It never changes.",
            "status": "How far the negotiation between scheduler and driver has come.",
        },
        ClassicClaimSpec: {
            "resourceClassName": "The ResourceClass that names the driver. Required.",
            "parameters": "What the driver should know about this claim; any JSON object.",
            "allocationMode": "`Delayed` waits until a pod needs the claim, `Immediate` allocates at once. "
            "Delayed when nothing is said.",
        },
        ClassicClaimStatus: {
            "phase": "`Pending`, `Allocated`, or `Reallocate` when the driver should take it back and "
            "start anew.",
            "driverName": "The driver that allocated, so that it is known when the class is gone.",
            "scheduling": "What scheduler and driver tell each other while they look for a node.",
            "attributes": "What the driver tells its node plugin.",
            "availableOnNodes": "The nodes where the resource can be used; every node when absent.",
            "userLimit": "How many may use the resource at the same time; without end when absent.",
            "reservedFor": "Who may use the resource now.",
        },
        SchedulingStatus: {
            "scheduler": "What the scheduler offers.",
            "driver": "What the driver answers.",
        },
        SchedulerSchedulingStatus: {
            "selectedNode": "The node for which the driver should allocate.",
            "potentialNodes": "Nodes the scheduler considers; the driver says which of them will not do.",
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
            "terminationGracePeriodSeconds": "How long the pod may take to end.",
            "containers": "The containers that run.",
            "initContainers": "Containers that run before the others, or beside them with the restart policy "
            "`Always`.",
            "ephemeralContainers": "Containers added to a running pod to look into it.",
            "resourceClaims": "The claims of the pod; containers refer to them by name.",
            "nodeName": "The node the pod is bound to; empty until a scheduler has chosen one.",
            "schedulerName": "The scheduler that places the pod.",
            "priority": "Pods of a higher priority are placed first.",
            "nodeSelector": "Labels that a node must have, with exactly these values.",
            "affinity": "Where the pod must or would rather run.",
            "tolerations": "Taints of nodes that the pod puts up with.",
            "overhead": "What the runtime of the pod needs on top of its containers.",
            "schedulingGates": "While one is left, the pod is not scheduled.",
            "restartPolicy": "When containers that end are started again: `Always`, `OnFailure` or `Never`.",
        },
        SchedulingGate: {"name": "What the pod waits for; whoever put it there takes it away."},
        Affinity: {"nodeAffinity": "Nodes by their labels and names."},
        NodeAffinity: {
            "requiredDuringSchedulingIgnoredDuringExecution": "Only nodes that this selects will do.",
            "preferredDuringSchedulingIgnoredDuringExecution": "Nodes that these select are better.",
        },
        PreferredNode: {
            "weight": "How much better, from 1 to 100.",
            "preference": "Which nodes.",
        },
        Toleration: {
            "key": "The key of the taint; any when empty.",
            "operator": "`Exists`, or `Equal` when the value must be the same; Equal when nothing is said.",
            "value": "The value of the taint, for `Equal`.",
            "effect": "The effect of the taint; any when empty.",
            "tolerationSeconds": "How long a taint of the effect `NoExecute` is put up with; without end "
            "when absent.",
        },
        Container: {
            "name": "The name of the container, unique in the pod.",
            "restartPolicy": "`Always` makes an init container run beside the others.",
            "resources": "What the container needs.",
        },
        ContainerResources: {
            "requests": "What is set aside for the container.",
            "limits": "What the container may use at most.",
            "claims": "Claims of the pod that the container uses.",
        },
        ContainerClaim: {
            "name": "The name of a claim in `spec.resourceClaims` of the pod.",
            "request": "One request of the claim; all of them when empty.",
        },
        PodResourceClaim: {
            "name": "The name by which containers refer to the claim.",
            "resourceClaimName": "A claim that exists, in the namespace of the pod.",
            "resourceClaimTemplateName": "A template from which a claim is made for this pod; it goes when "
            "the pod goes.",
            "template": "A classic template inside the pod.",
        },
        InlineTemplate: {
            "metadata": "Labels and annotations of the claim that is made.",
            "spec": "The spec of the claim that is made.",
        },
        PodStatus: {
            "phase": "`Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.",
            "conditions": "What is known about the pod; `PodScheduled` says why it has no node.",
            "nominatedNodeName": "The node on which a scheduler makes room for the pod.",
            "resourceClaimStatuses": "Which claims were made for the pod.",
        },
        PodResourceClaimStatus: {
            "name": "The name of the entry in `spec.resourceClaims`.",
            "resourceClaimName": "The claim that was made for it; none was needed when absent.",
        },
        NamespaceSpec: {"finalizers": "Who must agree before the namespace may go."},
        NamespaceStatus: {"phase": "`Active`, or `Terminating` while what is in it goes."},
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
            "allocatable": "What the node can give to pods.",
            "conditions": "How the node is; `Ready` says whether it runs pods.",
        },
        NodeCondition: {
            "type": "What it is about, such as `Ready`.",
            "status": "`True`, `False` or `Unknown`.",
            "reason": "Why, in one word.",
            "message": "Why, for people.",
            "lastTransitionTime": "When the status changed last.",
        },
        Taint: {
            "key": "What it is about.",
            "value": "More about it.",
            "effect": "`NoSchedule`, `PreferNoSchedule`, or `NoExecute` when pods there must go too.",
            "timeAdded": "When it was put on.",
        },
        Event: {
            "type": "`Normal` or `Warning`.",
            "reason": "What happened, in one word.",
        },
        QuotaSpec: {"hard": "The limits, by what they limit."},
        QuotaStatus: {"hard": "The limits in force.", "used": "What is used of each."},
        LeaseSpec: {
            "holderIdentity": "Who has it.",
            "leaseDurationSeconds": "How long others wait after the last renewal before they take it.",
            "acquireTime": "When the holder took it.",
            "renewTime": "When the holder said last that it is alive.",
            "leaseTransitions": "How often it changed hands.",
        },
        Preparation: {"spec": "Which node has the devices of which claim in its hands."},
        PreparationSpec: {
            "nodeName": "The node.",
            "claim": "The claim whose devices the node has prepared, or is about to.",
            "devices": "What the node has, whatever the claim says now. Only given after the server was "
            "restored from a copy, which may know nothing of it.",
        },
        PreparationDevice: {
            "driver": "The driver of the device.",
            "pool": "The pool of the device.",
            "device": "The name of the device in its pool.",
            "shareID": "Which share of the device, when it is lent out in shares.",
        },
        PreparedClaim: {
            "namespace": "The namespace of the claim.",
            "name": "The name of the claim.",
            "uid": "The uid of the claim, which is what counts.",
        },
    }
)
