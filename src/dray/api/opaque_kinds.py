"""Kinds that clients watch and dray only stores: whole, as open objects.

A scheduler or controller built for Kubernetes does not start before every kind it watches is served. Each row
is one of those kinds: group, version, kind, plural, short names. dray uses nothing else about them.
"""

from __future__ import annotations

from typing import NamedTuple


class OpaqueKind(NamedTuple):
    """One kind whose objects are stored and never interpreted."""

    group: str
    version: str
    name: str
    plural: str
    short_names: tuple[str, ...] = ()
    has_status: bool = False
    """Whether its status is a subresource."""


_ADMISSION = "admissionregistration.k8s.io"
_CERTIFICATES = "certificates.k8s.io"
_NETWORK = "networking.k8s.io"
_STORAGE = "storage.k8s.io"

NAMESPACED_KINDS: tuple[OpaqueKind, ...] = (
    OpaqueKind("", "v1", "Endpoints", "endpoints", ("ep",)),
    OpaqueKind("", "v1", "LimitRange", "limitranges", ("limits",)),
    OpaqueKind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", ("pvc",), has_status=True),
    OpaqueKind("", "v1", "PodTemplate", "podtemplates"),
    OpaqueKind("", "v1", "ReplicationController", "replicationcontrollers", ("rc",), has_status=True),
    OpaqueKind("", "v1", "Service", "services", ("svc",), has_status=True),
    OpaqueKind("apps", "v1", "ControllerRevision", "controllerrevisions"),
    OpaqueKind("apps", "v1", "DaemonSet", "daemonsets", ("ds",), has_status=True),
    OpaqueKind("apps", "v1", "Deployment", "deployments", ("deploy",), has_status=True),
    OpaqueKind("apps", "v1", "ReplicaSet", "replicasets", ("rs",), has_status=True),
    OpaqueKind("apps", "v1", "StatefulSet", "statefulsets", ("sts",), has_status=True),
    OpaqueKind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", ("hpa",), True),
    OpaqueKind("batch", "v1", "CronJob", "cronjobs", ("cj",), has_status=True),
    OpaqueKind("batch", "v1", "Job", "jobs", has_status=True),
    OpaqueKind(_CERTIFICATES, "v1", "PodCertificateRequest", "podcertificaterequests", (), has_status=True),
    OpaqueKind("coordination.k8s.io", "v1beta1", "LeaseCandidate", "leasecandidates"),
    OpaqueKind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
    OpaqueKind(_NETWORK, "v1", "Ingress", "ingresses", ("ing",), has_status=True),
    OpaqueKind(_NETWORK, "v1", "NetworkPolicy", "networkpolicies", ("netpol",)),
    OpaqueKind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", ("pdb",), has_status=True),
    OpaqueKind("scheduling.k8s.io", "v1beta1", "PodGroup", "podgroups", (), has_status=True),
    OpaqueKind("scheduling.k8s.io", "v1beta1", "Workload", "workloads"),
    OpaqueKind(_STORAGE, "v1", "CSIStorageCapacity", "csistoragecapacities"),
)

CLUSTER_KINDS: tuple[OpaqueKind, ...] = (
    OpaqueKind("", "v1", "PersistentVolume", "persistentvolumes", ("pv",), has_status=True),
    OpaqueKind(_ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", (), True),
    OpaqueKind(_ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    OpaqueKind(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        ("crd", "crds"),
        has_status=True,
    ),
    OpaqueKind("apiregistration.k8s.io", "v1", "APIService", "apiservices", (), has_status=True),
    OpaqueKind(
        _CERTIFICATES,
        "v1",
        "CertificateSigningRequest",
        "certificatesigningrequests",
        ("csr",),
        has_status=True,
    ),
    OpaqueKind("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", "flowschemas", (), has_status=True),
    OpaqueKind(
        "flowcontrol.apiserver.k8s.io",
        "v1",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        (),
        has_status=True,
    ),
    OpaqueKind(_NETWORK, "v1", "IngressClass", "ingressclasses"),
    OpaqueKind(_NETWORK, "v1", "ServiceCIDR", "servicecidrs", (), has_status=True),
    OpaqueKind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses"),
    OpaqueKind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", ("pc",)),
    OpaqueKind(_STORAGE, "v1", "CSIDriver", "csidrivers"),
    OpaqueKind(_STORAGE, "v1", "CSINode", "csinodes"),
    OpaqueKind(_STORAGE, "v1", "StorageClass", "storageclasses", ("sc",)),
    OpaqueKind(_STORAGE, "v1", "VolumeAttachment", "volumeattachments", (), has_status=True),
    OpaqueKind(_STORAGE, "v1", "VolumeAttributesClass", "volumeattributesclasses", ("vac",)),
    OpaqueKind(
        "storagemigration.k8s.io", "v1", "StorageVersionMigration", "storageversionmigrations", (), True
    ),
)

PATH_NAMED_KINDS: tuple[OpaqueKind, ...] = (
    OpaqueKind(_CERTIFICATES, "v1", "ClusterTrustBundle", "clustertrustbundles"),
    OpaqueKind(_NETWORK, "v1", "IPAddress", "ipaddresses", ("ip",)),
)
"""Kinds of the cluster whose names have colons: a signer and a name, or an address."""
