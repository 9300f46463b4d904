"""Kinds that clients watch and dray merely keeps: whole, as open objects.

A scheduler or controller that was built for Kubernetes does not start before every kind it watches answers.
Each row is one of those: group, version, kind, plural, short names; what is told about them is all we know.
"""

from __future__ import annotations

from typing import NamedTuple


class Bystander(NamedTuple):
    """One kind that is kept and never looked into."""

    group: str
    version: str
    name: str
    plural: str
    short_names: tuple[str, ...] = ()
    status: bool = False
    """Whether its status is written apart from the rest."""


_ADMISSION = "admissionregistration.k8s.io"
_NETWORK = "networking.k8s.io"
_STORAGE = "storage.k8s.io"

IN_NAMESPACES: tuple[Bystander, ...] = (
    Bystander("", "v1", "Endpoints", "endpoints", ("ep",)),
    Bystander("", "v1", "LimitRange", "limitranges", ("limits",)),
    Bystander("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", ("pvc",), status=True),
    Bystander("", "v1", "PodTemplate", "podtemplates"),
    Bystander("", "v1", "ReplicationController", "replicationcontrollers", ("rc",), status=True),
    Bystander("", "v1", "Service", "services", ("svc",), status=True),
    Bystander("apps", "v1", "ControllerRevision", "controllerrevisions"),
    Bystander("apps", "v1", "DaemonSet", "daemonsets", ("ds",), status=True),
    Bystander("apps", "v1", "Deployment", "deployments", ("deploy",), status=True),
    Bystander("apps", "v1", "ReplicaSet", "replicasets", ("rs",), status=True),
    Bystander("apps", "v1", "StatefulSet", "statefulsets", ("sts",), status=True),
    Bystander("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", ("hpa",), True),
    Bystander("batch", "v1", "CronJob", "cronjobs", ("cj",), status=True),
    Bystander("batch", "v1", "Job", "jobs", status=True),
    Bystander("coordination.k8s.io", "v1beta1", "LeaseCandidate", "leasecandidates"),
    Bystander("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
    Bystander(_NETWORK, "v1", "Ingress", "ingresses", ("ing",), status=True),
    Bystander(_NETWORK, "v1", "NetworkPolicy", "networkpolicies", ("netpol",)),
    Bystander("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", ("pdb",), status=True),
    Bystander("scheduling.k8s.io", "v1beta1", "PodGroup", "podgroups", (), status=True),
    Bystander("scheduling.k8s.io", "v1beta1", "Workload", "workloads"),
    Bystander(_STORAGE, "v1", "CSIStorageCapacity", "csistoragecapacities"),
)

IN_THE_CLUSTER: tuple[Bystander, ...] = (
    Bystander("", "v1", "PersistentVolume", "persistentvolumes", ("pv",), status=True),
    Bystander(_ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", (), True),
    Bystander(_ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    Bystander(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        ("crd", "crds"),
        status=True,
    ),
    Bystander("apiregistration.k8s.io", "v1", "APIService", "apiservices", (), status=True),
    Bystander(
        "certificates.k8s.io",
        "v1",
        "CertificateSigningRequest",
        "certificatesigningrequests",
        ("csr",),
        status=True,
    ),
    Bystander("certificates.k8s.io", "v1", "ClusterTrustBundle", "clustertrustbundles"),
    Bystander("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", "flowschemas", (), status=True),
    Bystander(
        "flowcontrol.apiserver.k8s.io",
        "v1",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        (),
        status=True,
    ),
    Bystander(_NETWORK, "v1", "IngressClass", "ingressclasses"),
    Bystander(_NETWORK, "v1", "IPAddress", "ipaddresses", ("ip",)),
    Bystander(_NETWORK, "v1", "ServiceCIDR", "servicecidrs", (), status=True),
    Bystander("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses"),
    Bystander("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", ("pc",)),
    Bystander(_STORAGE, "v1", "CSIDriver", "csidrivers"),
    Bystander(_STORAGE, "v1", "CSINode", "csinodes"),
    Bystander(_STORAGE, "v1", "StorageClass", "storageclasses", ("sc",)),
    Bystander(_STORAGE, "v1", "VolumeAttachment", "volumeattachments", (), status=True),
    Bystander(_STORAGE, "v1", "VolumeAttributesClass", "volumeattributesclasses", ("vac",)),
)
