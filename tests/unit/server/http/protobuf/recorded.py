"""Bodies that `kubectl` sent, and their documents."""

from __future__ import annotations

from typing import Any

WRITTEN_BY_KUBECTL: list[tuple[str, dict[str, Any]]] = [
    (
        "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEhwKEgoCY20SABoAIgAqADIAOABCABIGCgFhEgFiGgAiAA==",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "data": {"a": "b"}},
    ),
    (
        "azhzAAooChhhdXRoZW50aWNhdGlvbi5rOHMuaW8vdjESDFRva2VuUmVxdWVzdBI0ChAKABIAGgAiACoAMgA4AEIAEhoKA2FwaRoQ"
        "CgNQb2QSAnYxGgFwIgJ1MSDYBBoECgASABoAIgA=",
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {},
            "spec": {
                "audiences": ["api"],
                "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "u1"},
                "expirationSeconds": 600,
            },
            "status": {"token": ""},
        },
    ),
    (
        "azhzAAoyChdhdXRob3JpemF0aW9uLms4cy5pby92MRIXU2VsZlN1YmplY3RBY2Nlc3NSZXZpZXcSVwoQCgASABoAIgAqADIAOABC"
        "ABI5CjcKA2ZvbxIDZ2V0Gg9yZXNvdXJjZS5rOHMuaW8iACoOcmVzb3VyY2VjbGFpbXMyBnN0YXR1czoAGggIABIAGgAgABoAIgA=",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {
                "resourceAttributes": {
                    "namespace": "foo",
                    "verb": "get",
                    "group": "resource.k8s.io",
                    "resource": "resourceclaims",
                    "subresource": "status",
                }
            },
            "status": {"allowed": False},
        },
    ),
    (
        "azhzAAoxChdhdXRob3JpemF0aW9uLms4cy5pby92MRIWU2VsZlN1YmplY3RSdWxlc1JldmlldxIjChAKABIAGgAiACoAMgA4AEIA"
        "EgkKB2RlZmF1bHQaBBgAIgAaACIA",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "metadata": {},
            "spec": {"namespace": "default"},
            "status": {"incomplete": False},
        },
    ),
    (
        "azhzAAotChhhdXRoZW50aWNhdGlvbi5rOHMuaW8vdjESEVNlbGZTdWJqZWN0UmV2aWV3EhoKEAoAEgAaACIAKgAyADgAQgASBgoE"
        "CgASABoAIgA=",
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "SelfSubjectReview",
            "metadata": {},
            "status": {"userInfo": {}},
        },
    ),
    (
        "azhzAAoUCgJ2MRIOU2VydmljZUFjY291bnQSFAoSCgF4EgAaAXkiACoAMgA4AEIAGgAiAA==",
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "x", "namespace": "y"}},
    ),
    (
        "azhzAAoPCgJ2MRIJTmFtZXNwYWNlEhoKEgoCbjESABoAIgAqADIAOABCABIAGgIKABoAIgA=",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n1"}, "spec": {}, "status": {}},
    ),
    (
        "azhzAAoMCgJ2MRIGU2VjcmV0Eh0KEQoBcxIAGgAiACoAMgA4AEIAEgYKAWsSAXYaABoAIgA=",
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "dg=="}},
    ),
    (
        "azhzAAoTCgJ2MRINUmVzb3VyY2VRdW90YRJUChEKAXESABoAIgAqADIAOABCABI9Ci4KJ2dwdS5kZXZpY2VjbGFzcy5yZXNvdXJj"
        "ZS5rOHMuaW8vZGV2aWNlcxIDCgE0CgsKBHBvZHMSAwoBMRoAGgAiAA==",
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "q"},
            "spec": {"hard": {"gpu.deviceclass.resource.k8s.io/devices": "4", "pods": "1"}},
            "status": {},
        },
    ),
    (
        "azhzAAorChxyYmFjLmF1dGhvcml6YXRpb24uazhzLmlvL3YxEgtSb2xlQmluZGluZxKFAQoRCgFiEgAaACIAKgAyADgAQgASKQoE"
        "VXNlchIZcmJhYy5hdXRob3JpemF0aW9uLms4cy5pbxoEamFuZSIAEh8KDlNlcnZpY2VBY2NvdW50EgAaAnNhIgdkZWZhdWx0GiQK"
        "GXJiYWMuYXV0aG9yaXphdGlvbi5rOHMuaW8SBFJvbGUaAXIaACIA",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "b"},
            "subjects": [
                {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "jane"},
                {"kind": "ServiceAccount", "name": "sa", "namespace": "default"},
            ],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        },
    ),
    (
        "azhzAAokChxyYmFjLmF1dGhvcml6YXRpb24uazhzLmlvL3YxEgRSb2xlEisKEQoBchIAGgAiACoAMgA4AEIAEhYKA2dldAoEbGlz"
        "dBIAGgRwb2RzIgFwGgAiAA==",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "r"},
            "rules": [
                {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]}
            ],
        },
    ),
]
