"""What the controllers of kube-controller-manager may do, each under its own service account.

Theory of operation: a row is a controller, by the name of its account in `kube-system`, with its rules in the
short form of `bootstrap_roles`. They are the rights that Kubernetes 1.37 grants, without those in groups that
no server has any more; kube-controller-manager uses the accounts with `--use-service-account-credentials`.
Controllers that dray has, too, are in `bootstrap_roles`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

READ: Final = "get,list,watch"
EVENT_RULE: Final = "create,update,patch: events events.events.k8s.io"

_CERTIFICATES: Final = "certificates.k8s.io"
_STORAGE: Final = "storage.k8s.io"

CONTROLLER_RULES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "attachdetach-controller": (
            EVENT_RULE,
            "list,watch: persistentvolumeclaims persistentvolumes pods",
            f"{READ}: nodes csidrivers.{_STORAGE} csinodes.{_STORAGE}",
            "update,patch: nodes/status",
            f"{READ},create,delete: volumeattachments.{_STORAGE}",
        ),
        "certificate-controller": (
            EVENT_RULE,
            f"{READ},delete: certificatesigningrequests.{_CERTIFICATES}",
            f"update: certificatesigningrequests.{_CERTIFICATES}/approval "
            f"certificatesigningrequests.{_CERTIFICATES}/status",
            f"approve: signers.{_CERTIFICATES} [kubernetes.io/kube-apiserver-client-kubelet]",
            f"sign: signers.{_CERTIFICATES} [kubernetes.io/kube-apiserver-client "
            "kubernetes.io/kube-apiserver-client-kubelet kubernetes.io/kubelet-serving "
            "kubernetes.io/legacy-unknown]",
            "create: subjectaccessreviews.authorization.k8s.io",
        ),
        "cronjob-controller": (
            EVENT_RULE,
            f"{READ},update: cronjobs.batch",
            f"{READ},create,update,patch,delete: jobs.batch",
            "update: cronjobs.batch/status cronjobs.batch/finalizers",
            "list,watch,delete: pods",
        ),
        "daemon-set-controller": (
            EVENT_RULE,
            f"{READ}: daemonsets.apps",
            "update: daemonsets.apps/status daemonsets.apps/finalizers",
            "list,watch: nodes",
            "list,watch,create,patch,delete: pods",
            "create: pods/binding",
            f"{READ},create,update,patch,delete: controllerrevisions.apps",
        ),
        "deployment-controller": (
            EVENT_RULE,
            f"{READ},update: deployments.apps pods",
            "update: deployments.apps/status deployments.apps/finalizers",
            f"{READ},create,update,patch,delete: replicasets.apps",
        ),
        "disruption-controller": (
            EVENT_RULE,
            f"{READ}: deployments.apps replicasets.apps replicationcontrollers "
            "poddisruptionbudgets.policy statefulsets.apps",
            "update: poddisruptionbudgets.policy/status",
            "update,patch: pods/status",
            "get: *.*/scale",
        ),
        "endpoint-controller": (
            EVENT_RULE,
            f"{READ}: pods services",
            f"{READ},create,update,delete: endpoints",
            "create: endpoints/restricted",
        ),
        "endpointslice-controller": (
            EVENT_RULE,
            f"{READ}: nodes pods services",
            "update: services/finalizers",
            f"{READ},create,update,delete: endpointslices.discovery.k8s.io",
        ),
        "endpointslicemirroring-controller": (
            EVENT_RULE,
            f"{READ}: endpoints services",
            "update: services/finalizers endpoints/finalizers",
            f"{READ},create,update,delete: endpointslices.discovery.k8s.io",
        ),
        "ephemeral-volume-controller": (
            EVENT_RULE,
            f"{READ}: pods",
            "update: pods/finalizers",
            f"{READ},create: persistentvolumeclaims",
        ),
        "expand-controller": (
            EVENT_RULE,
            f"{READ},update,patch: persistentvolumes",
            "update,patch: persistentvolumeclaims/status",
            f"{READ}: persistentvolumeclaims",
        ),
        "horizontal-pod-autoscaler": (
            EVENT_RULE,
            f"{READ}: horizontalpodautoscalers.autoscaling *.custom.metrics.k8s.io *.external.metrics.k8s.io",
            "update: horizontalpodautoscalers.autoscaling/status",
            "get,update: *.*/scale",
            "list,watch: pods pods.metrics.k8s.io",
        ),
        "job-controller": (
            EVENT_RULE,
            f"{READ},update,patch: jobs.batch",
            "update: jobs.batch/status jobs.batch/finalizers",
            "list,watch,create,patch,delete: pods",
        ),
        "kube-apiserver-serving-clustertrustbundle-publisher": (
            EVENT_RULE,
            f"attest: signers.{_CERTIFICATES} [kubernetes.io/kube-apiserver-serving]",
            f"list,watch,create,update,delete: clustertrustbundles.{_CERTIFICATES}",
        ),
        "legacy-service-account-token-cleaner": (
            "get: configmaps [kube-apiserver-legacy-service-account-token-tracking]",
            "patch,delete: secrets",
        ),
        "node-controller": (
            EVENT_RULE,
            f"{READ},update,patch,delete: nodes",
            "update,patch: nodes/status pods/status",
            f"{READ},delete: pods",
            f"{READ}: leases.coordination.k8s.io",
        ),
        "persistent-volume-binder": (
            EVENT_RULE,
            f"{READ},create,update,delete: persistentvolumes",
            "update: persistentvolumes/status persistentvolumeclaims/status",
            f"{READ},update: persistentvolumeclaims",
            f"{READ},create,delete: pods",
            f"{READ}: storageclasses.{_STORAGE}",
            "list,watch: nodes",
            "watch: events",
        ),
        "podcertificaterequestcleaner": (f"{READ},delete: podcertificaterequests.{_CERTIFICATES}",),
        "pv-protection-controller": (
            EVENT_RULE,
            f"{READ},update: persistentvolumes",
        ),
        "pvc-protection-controller": (
            EVENT_RULE,
            f"{READ},update: persistentvolumeclaims",
            "update: persistentvolumeclaims/status",
            f"{READ}: pods",
        ),
        "replicaset-controller": (
            EVENT_RULE,
            f"{READ},update: replicasets.apps",
            "update: replicasets.apps/status replicasets.apps/finalizers",
            "list,watch,create,patch,delete: pods",
        ),
        "replication-controller": (
            EVENT_RULE,
            f"{READ},update: replicationcontrollers",
            "update: replicationcontrollers/status replicationcontrollers/finalizers",
            "list,watch,create,patch,delete: pods",
        ),
        "root-ca-cert-publisher": (
            EVENT_RULE,
            "create,update: configmaps",
        ),
        "route-controller": (
            EVENT_RULE,
            "list,watch: nodes",
            "patch: nodes/status",
        ),
        "selinux-warning-controller": (
            EVENT_RULE,
            f"{READ}: persistentvolumes persistentvolumeclaims pods csidrivers.{_STORAGE}",
        ),
        "service-cidrs-controller": (
            EVENT_RULE,
            f"{READ},update,patch: servicecidrs.networking.k8s.io",
            "update,patch: servicecidrs.networking.k8s.io/finalizers servicecidrs.networking.k8s.io/status",
            f"{READ}: ipaddresses.networking.k8s.io",
        ),
        "service-controller": (
            EVENT_RULE,
            f"{READ}: services",
            "update,patch: services/status",
            "list,watch: nodes",
        ),
        "statefulset-controller": (
            EVENT_RULE,
            "list,watch: pods",
            f"{READ}: statefulsets.apps",
            "update: statefulsets.apps/status statefulsets.apps/finalizers pods/finalizers",
            "get,create,update,patch,delete: pods",
            f"{READ},create,update,patch,delete: controllerrevisions.apps",
            f"{READ},create: persistentvolumeclaims",
            "update,delete: persistentvolumeclaims",
        ),
        "storage-version-migrator-controller": (
            "list,patch: *.*",
            "get: customresourcedefinitions.apiextensions.k8s.io",
            "patch: customresourcedefinitions.apiextensions.k8s.io/status",
            "update: storageversionmigrations.storagemigration.k8s.io/status",
        ),
        "ttl-after-finished-controller": (
            EVENT_RULE,
            f"{READ},delete: jobs.batch",
        ),
        "ttl-controller": (
            EVENT_RULE,
            "list,watch,update,patch: nodes",
        ),
        "validatingadmissionpolicy-status-controller": (
            EVENT_RULE,
            f"{READ}: validatingadmissionpolicies.admissionregistration.k8s.io",
            "get,update,patch: validatingadmissionpolicies.admissionregistration.k8s.io/status",
        ),
        "volumeattributesclass-protection-controller": (
            EVENT_RULE,
            f"{READ}: persistentvolumeclaims persistentvolumes",
            f"{READ},update: volumeattributesclasses.{_STORAGE}",
        ),
    }
)
"""The rules of each controller, by the name of its service account."""
