"""The kinds around a cluster: admission, extension, certificates, fairness, network and storage."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dray.server.patch.schema.field_structure import (
    ALWAYS,
    CONDITIONS,
    ONE,
    Structure,
    always,
    keyed,
    one,
    rows,
    set_of_values,
    struct,
)
from dray.server.patch.schema.tables.shared_fragments import kind

_ADMISSION = "admissionregistration.k8s.io"
_FAIRNESS = "flowcontrol.apiserver.k8s.io"
_NETWORK = "networking.k8s.io"
_STORAGE = "storage.k8s.io"

_BY_TYPE = keyed("type", strategy=())
_WITH_CONDITIONS = always(struct(conditions=CONDITIONS))
_WITH_KEYED_CONDITIONS = always(struct(conditions=_BY_TYPE))

_WEBHOOK = struct(
    clientConfig=ALWAYS, matchConditions=keyed("name"), namespaceSelector=ONE, objectSelector=ONE
)

_MATCHED = one(
    struct(
        excludeResourceRules=rows(ONE),
        namespaceSelector=ONE,
        objectSelector=ONE,
        resourceRules=rows(ONE),
    )
)

_POLICY_SPEC = struct(
    matchConditions=keyed("name"), matchConstraints=_MATCHED, paramKind=ONE, variables=keyed("name", of=ONE)
)

_BINDING_SPEC = struct(matchResources=_MATCHED, paramRef=ONE, validationActions=set_of_values())

_PEER = struct(namespaceSelector=ONE, podSelector=ONE)

_NETWORK_POLICY_SPEC = struct(
    egress=rows(struct(to=rows(_PEER))),
    ingress=rows(struct(**{"from": rows(_PEER)})),
    podSelector=always(ONE),
)

_INGRESS_SPEC = struct(defaultBackend=struct(resource=ONE))

CLUSTER: Mapping[tuple[str, str], Structure] = MappingProxyType(
    {
        (_ADMISSION, "MutatingWebhookConfiguration"): kind(webhooks=keyed("name", of=_WEBHOOK)),
        (_ADMISSION, "ValidatingWebhookConfiguration"): kind(webhooks=keyed("name", of=_WEBHOOK)),
        (_ADMISSION, "ValidatingAdmissionPolicy"): kind(
            spec=always(_POLICY_SPEC), status=_WITH_KEYED_CONDITIONS
        ),
        (_ADMISSION, "ValidatingAdmissionPolicyBinding"): kind(spec=always(_BINDING_SPEC)),
        ("apiextensions.k8s.io", "CustomResourceDefinition"): kind(
            spec=always(struct(names=ALWAYS)),
            status=always(struct(acceptedNames=ALWAYS, conditions=_BY_TYPE)),
        ),
        ("apiregistration.k8s.io", "APIService"): kind(spec=ALWAYS, status=_WITH_CONDITIONS),
        ("certificates.k8s.io", "CertificateSigningRequest"): kind(
            spec=ALWAYS, status=_WITH_KEYED_CONDITIONS
        ),
        ("certificates.k8s.io", "ClusterTrustBundle"): kind(spec=ALWAYS),
        (_FAIRNESS, "FlowSchema"): kind(
            spec=always(struct(priorityLevelConfiguration=ALWAYS)), status=_WITH_CONDITIONS
        ),
        (_FAIRNESS, "PriorityLevelConfiguration"): kind(spec=ALWAYS, status=_WITH_CONDITIONS),
        ("discovery.k8s.io", "EndpointSlice"): kind(
            endpoints=rows(struct(addresses=set_of_values(), conditions=ALWAYS, targetRef=ONE)),
            ports=rows(ONE),
        ),
        (_NETWORK, "Ingress"): kind(spec=always(_INGRESS_SPEC), status=always(struct(loadBalancer=ALWAYS))),
        (_NETWORK, "IngressClass"): kind(spec=ALWAYS),
        (_NETWORK, "IPAddress"): kind(spec=ALWAYS),
        (_NETWORK, "NetworkPolicy"): kind(spec=always(_NETWORK_POLICY_SPEC)),
        (_NETWORK, "ServiceCIDR"): kind(spec=ALWAYS, status=_WITH_CONDITIONS),
        ("node.k8s.io", "RuntimeClass"): kind(scheduling=struct(nodeSelector=ONE)),
        (_STORAGE, "CSIDriver"): kind(spec=always(struct(volumeLifecycleModes=set_of_values()))),
        (_STORAGE, "CSINode"): kind(spec=always(struct(drivers=always(keyed("name"))))),
        (_STORAGE, "CSIStorageCapacity"): kind(nodeTopology=ONE),
        (_STORAGE, "StorageClass"): kind(allowedTopologies=rows(ONE)),
        (_STORAGE, "VolumeAttachment"): kind(
            spec=always(struct(source=always(struct(inlineVolumeSpec=struct())))), status=ALWAYS
        ),
        (_STORAGE, "VolumeAttributesClass"): kind(),
    }
)
