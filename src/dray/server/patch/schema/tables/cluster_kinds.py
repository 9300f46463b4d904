"""Structures of cluster kinds: admission, extension, certificates, flow control, network and storage."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dray.server.patch.schema.field_structure import (
    ALWAYS_PRESENT_MAP,
    ATOMIC_MAP,
    CONDITIONS,
    Structure,
    define_atomic_list,
    define_keyed_list,
    define_set,
    define_struct,
    make_always_present,
    make_atomic,
)
from dray.server.patch.schema.tables.shared_fragments import define_kind

_ADMISSION = "admissionregistration.k8s.io"
_FAIRNESS = "flowcontrol.apiserver.k8s.io"
_NETWORK = "networking.k8s.io"
_STORAGE = "storage.k8s.io"

_BY_TYPE = define_keyed_list("type", strategy=())
_WITH_CONDITIONS = make_always_present(define_struct(conditions=CONDITIONS))
_WITH_KEYED_CONDITIONS = make_always_present(define_struct(conditions=_BY_TYPE))

_WEBHOOK = define_struct(
    clientConfig=ALWAYS_PRESENT_MAP,
    matchConditions=define_keyed_list("name"),
    namespaceSelector=ATOMIC_MAP,
    objectSelector=ATOMIC_MAP,
)

_MATCHED = make_atomic(
    define_struct(
        excludeResourceRules=define_atomic_list(ATOMIC_MAP),
        namespaceSelector=ATOMIC_MAP,
        objectSelector=ATOMIC_MAP,
        resourceRules=define_atomic_list(ATOMIC_MAP),
    )
)

_POLICY_SPEC = define_struct(
    matchConditions=define_keyed_list("name"),
    matchConstraints=_MATCHED,
    paramKind=ATOMIC_MAP,
    variables=define_keyed_list("name", of=ATOMIC_MAP),
)

_BINDING_SPEC = define_struct(matchResources=_MATCHED, paramRef=ATOMIC_MAP, validationActions=define_set())

_PEER = define_struct(namespaceSelector=ATOMIC_MAP, podSelector=ATOMIC_MAP)

_NETWORK_POLICY_SPEC = define_struct(
    egress=define_atomic_list(define_struct(to=define_atomic_list(_PEER))),
    ingress=define_atomic_list(define_struct(**{"from": define_atomic_list(_PEER)})),
    podSelector=make_always_present(ATOMIC_MAP),
)

_INGRESS_SPEC = define_struct(defaultBackend=define_struct(resource=ATOMIC_MAP))

CLUSTER: Mapping[tuple[str, str], Structure] = MappingProxyType(
    {
        (_ADMISSION, "MutatingWebhookConfiguration"): define_kind(
            webhooks=define_keyed_list("name", of=_WEBHOOK)
        ),
        (_ADMISSION, "ValidatingWebhookConfiguration"): define_kind(
            webhooks=define_keyed_list("name", of=_WEBHOOK)
        ),
        (_ADMISSION, "ValidatingAdmissionPolicy"): define_kind(
            spec=make_always_present(_POLICY_SPEC), status=_WITH_KEYED_CONDITIONS
        ),
        (_ADMISSION, "ValidatingAdmissionPolicyBinding"): define_kind(
            spec=make_always_present(_BINDING_SPEC)
        ),
        ("apiextensions.k8s.io", "CustomResourceDefinition"): define_kind(
            spec=make_always_present(define_struct(names=ALWAYS_PRESENT_MAP)),
            status=make_always_present(define_struct(acceptedNames=ALWAYS_PRESENT_MAP, conditions=_BY_TYPE)),
        ),
        ("apiregistration.k8s.io", "APIService"): define_kind(
            spec=ALWAYS_PRESENT_MAP, status=_WITH_CONDITIONS
        ),
        ("certificates.k8s.io", "CertificateSigningRequest"): define_kind(
            spec=ALWAYS_PRESENT_MAP, status=_WITH_KEYED_CONDITIONS
        ),
        ("certificates.k8s.io", "ClusterTrustBundle"): define_kind(spec=ALWAYS_PRESENT_MAP),
        ("certificates.k8s.io", "PodCertificateRequest"): define_kind(
            spec=ALWAYS_PRESENT_MAP, status=_WITH_KEYED_CONDITIONS
        ),
        (_FAIRNESS, "FlowSchema"): define_kind(
            spec=make_always_present(define_struct(priorityLevelConfiguration=ALWAYS_PRESENT_MAP)),
            status=_WITH_CONDITIONS,
        ),
        (_FAIRNESS, "PriorityLevelConfiguration"): define_kind(
            spec=ALWAYS_PRESENT_MAP, status=_WITH_CONDITIONS
        ),
        ("discovery.k8s.io", "EndpointSlice"): define_kind(
            endpoints=define_atomic_list(
                define_struct(addresses=define_set(), conditions=ALWAYS_PRESENT_MAP, targetRef=ATOMIC_MAP)
            ),
            ports=define_atomic_list(ATOMIC_MAP),
        ),
        (_NETWORK, "Ingress"): define_kind(
            spec=make_always_present(_INGRESS_SPEC),
            status=make_always_present(define_struct(loadBalancer=ALWAYS_PRESENT_MAP)),
        ),
        (_NETWORK, "IngressClass"): define_kind(spec=ALWAYS_PRESENT_MAP),
        (_NETWORK, "IPAddress"): define_kind(spec=ALWAYS_PRESENT_MAP),
        (_NETWORK, "NetworkPolicy"): define_kind(spec=make_always_present(_NETWORK_POLICY_SPEC)),
        (_NETWORK, "ServiceCIDR"): define_kind(spec=ALWAYS_PRESENT_MAP, status=_WITH_CONDITIONS),
        ("node.k8s.io", "RuntimeClass"): define_kind(scheduling=define_struct(nodeSelector=ATOMIC_MAP)),
        (_STORAGE, "CSIDriver"): define_kind(
            spec=make_always_present(define_struct(volumeLifecycleModes=define_set()))
        ),
        (_STORAGE, "CSINode"): define_kind(
            spec=make_always_present(define_struct(drivers=make_always_present(define_keyed_list("name"))))
        ),
        (_STORAGE, "CSIStorageCapacity"): define_kind(nodeTopology=ATOMIC_MAP),
        (_STORAGE, "StorageClass"): define_kind(allowedTopologies=define_atomic_list(ATOMIC_MAP)),
        (_STORAGE, "VolumeAttachment"): define_kind(
            spec=make_always_present(
                define_struct(source=make_always_present(define_struct(inlineVolumeSpec=define_struct())))
            ),
            status=ALWAYS_PRESENT_MAP,
        ),
        (_STORAGE, "VolumeAttributesClass"): define_kind(),
        ("storagemigration.k8s.io", "StorageVersionMigration"): define_kind(
            spec=make_always_present(define_struct(resource=ALWAYS_PRESENT_MAP)),
            status=_WITH_KEYED_CONDITIONS,
        ),
    }
)
