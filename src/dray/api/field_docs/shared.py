"""Field documentation that objects of all kinds share."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dray.api.meta import Condition, ObjectMeta, OwnerRef
from dray.values.node_selectors import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

DEFAULT_DOCS: Mapping[str, str] = MappingProxyType(
    {
        "apiVersion": "Group and version of this form of the object, such as `resource.k8s.io/v1`.",
        "kind": "The kind of the object, such as `ResourceClaim`.",
        "metadata": "Name, identity, labels, owners and lifecycle of the object.",
        "spec": "The desired state.",
        "status": "The observed state.",
    }
)
"""Documentation of fields that mean the same in all kinds, unless a kind documents its own."""

SHARED: Mapping[type, Mapping[str, str]] = MappingProxyType(
    {
        ObjectMeta: {
            "name": "The name, unique for the kind in its namespace. It never changes.",
            "generateName": "The beginning of a name that the server completes, when `name` is empty.",
            "namespace": "The namespace of the object. It never changes.",
            "selfLink": "No longer used.",
            "uid": "Identifies this object among all, also among later ones of the same name. Set by the "
            "server.",
            "resourceVersion": "Changes with every write. An update that names an old one is refused; "
            "otherwise compare it for equality only.",
            "generation": "Incremented when the spec changes. Set by the server.",
            "creationTimestamp": "When the object was created. Set by the server.",
            "deletionTimestamp": "When the object was deleted, or will be; it is removed with its last "
            "finalizer. Set by the server.",
            "deletionGracePeriodSeconds": "How long the object may take to terminate. Set by the server.",
            "labels": "Short texts by which objects are selected.",
            "annotations": "Texts for people and programs; objects are not selected by them.",
            "ownerReferences": "Owners of this object; when all of them are gone, it is deleted.",
            "finalizers": "Cleanup that must finish before the object is removed.",
            "managedFields": "Who set which fields; kept by the server for server-side apply.",
        },
        OwnerRef: {
            "apiVersion": "Group and version of the owner.",
            "kind": "The kind of the owner.",
            "name": "The name of the owner, in the same namespace or outside of all.",
            "uid": "The uid of the owner, which distinguishes it from a later object of the same name.",
            "controller": "Whether the owner controls this object; at most one does.",
            "blockOwnerDeletion": "Whether the owner waits for this object when it is deleted in the "
            "foreground.",
        },
        Condition: {
            "type": "The aspect, such as `Ready`.",
            "status": "`True`, `False` or `Unknown`.",
            "observedGeneration": "The generation of the object that was observed.",
            "lastTransitionTime": "When the status changed last.",
            "reason": "Why, in one word for programs.",
            "message": "Why, in a sentence for people.",
        },
        NodeSelector: {"nodeSelectorTerms": "A node is selected when one of the terms matches it."},
        NodeSelectorTerm: {
            "matchExpressions": "Requirements on the labels of the node; all must hold.",
            "matchFields": "Requirements on fields of the node; `metadata.name` is the only one.",
        },
        NodeSelectorRequirement: {
            "key": "The label or field.",
            "operator": "`In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.",
            "values": "What is compared with: any number for `In` and `NotIn`, one whole number for `Gt` and "
            "`Lt`, none for the others.",
        },
    }
)
