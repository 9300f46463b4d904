"""Accounts and rights of a driver: service accounts, RBAC roles and the admission policy for its slices.

Theory of operation: each part of a driver has an account with the rights that the kit uses and no others; a
test runs the kit with them. The account on the nodes carries the annotation `dray.dev/driver`, and a policy
restricts it to slices of its own node: dray's API servers enforce that by themselves, those of Kubernetes by
the policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from dray.driver.deploy.objects import (
    ADMISSION_VERSION,
    CLASSIC_GROUP,
    RESOURCE_GROUP,
    RESOURCE_VERSIONS,
    Document,
    DriverObjects,
)

DRIVER_ANNOTATION: Final = "dray.dev/driver"
_RBAC_GROUP: Final = "rbac.authorization.k8s.io"

RbacRule = tuple[str, str, str]
"""Verbs, API group and resources, separated by commas. A name after `=` limits a rule to an object of the
driver (see `_build_rules`): `DRIVER` to its name, `SECRET` and `CONFIGURATION` to those of its webhook.
"""

_EVENT_RULES: Final[tuple[RbacRule, ...]] = (
    ("create,patch", "", "events"),
    ("create,patch", "events.k8s.io", "events"),
)
NODE_RULES: Final[tuple[RbacRule, ...]] = (
    ("list,watch,create,patch,delete", RESOURCE_GROUP, "resourceslices"),
    ("get", "", "nodes"),
    ("get", RESOURCE_GROUP, "resourceclaims"),
    ("patch", RESOURCE_GROUP, "resourceclaims/status"),
    ("associated-node:patch", RESOURCE_GROUP, "resourceclaims/driver=DRIVER"),
    ("list", "dray.dev", "preparations"),
)
CLASSIC_NODE_RULES: Final[tuple[RbacRule, ...]] = (
    ("get", "", "nodes"),
    ("list", CLASSIC_GROUP, "resourceclaims"),
    ("list", "dray.dev", "preparations"),
)
CONTROLLER_RULES: Final[tuple[RbacRule, ...]] = (
    ("list,watch,patch", CLASSIC_GROUP, "resourceclaims"),
    ("patch", CLASSIC_GROUP, "resourceclaims/status"),
    ("list,watch", CLASSIC_GROUP, "resourceclasses"),
    *_EVENT_RULES,
)
CLASSIC_WEBHOOK_RULES: Final[tuple[RbacRule, ...]] = (("get", CLASSIC_GROUP, "resourceclasses"),)
CERTIFICATE_RULES: Final[tuple[RbacRule, ...]] = (
    ("get,patch", "admissionregistration.k8s.io", "validatingwebhookconfigurations=CONFIGURATION"),
)
"""Rights of a webhook that issues its certificate itself; it keeps it in a secret in its namespace."""
_SECRET_RULES: Final[tuple[RbacRule, ...]] = (
    ("create", "", "secrets"),  # a creation cannot be limited to a name
    ("get,patch", "", "secrets=SECRET"),
)
_LEADER_ELECTION_RULES: Final[tuple[RbacRule, ...]] = (("create,get,patch", "coordination.k8s.io", "leases"),)
_INVENTORY_RULES: Final[Mapping[str, RbacRule]] = {
    "node": ("create,get,patch", "", "configmaps"),
    "controller": ("list,watch", "", "configmaps"),
}
"""Classic drivers publish the inventory of a node in a config map in their namespace (`inventory`)."""

_TOKEN_NODE_EXPRESSION: Final = (
    'has(request.userInfo.extra) && "authentication.kubernetes.io/node-name" in request.userInfo.extra'
    ' ? request.userInfo.extra["authentication.kubernetes.io/node-name"][0] : ""'
)
"""The node that the token of a pod's account is bound to."""


def build_account(objects: DriverObjects, part: str, rules: Sequence[RbacRule]) -> Iterator[Document]:
    """Build the service account of a part, with roles and bindings for its rights."""
    account, version = objects.build_namespaced_object("ServiceAccount", "v1", part), f"{_RBAC_GROUP}/v1"
    if part != "webhook":
        account["metadata"]["annotations"] = {DRIVER_ANNOTATION: objects.driver}
    yield account
    name = objects.format_name(part)
    if rules:
        role = objects.build_object("ClusterRole", version, name)
        yield role | {"rules": _build_rules(objects, rules)}
        binding = objects.build_object("ClusterRoleBinding", version, name)
        yield binding | _build_role_ref(objects, "ClusterRole", name, part)
    namespaced_rules: tuple[RbacRule, ...] = (
        (_INVENTORY_RULES[part],) if objects.is_classic and part in _INVENTORY_RULES else ()
    )
    namespaced_rules += _LEADER_ELECTION_RULES if part == "controller" else ()
    namespaced_rules += _SECRET_RULES if part == "webhook" and objects.target.issues_certificate else ()
    if namespaced_rules:
        role = objects.build_namespaced_object("Role", version, part)
        yield role | {"rules": _build_rules(objects, namespaced_rules)}
        binding = objects.build_namespaced_object("RoleBinding", version, part)
        yield binding | _build_role_ref(objects, "Role", name, part)


def _build_rules(objects: DriverObjects, rules: Sequence[RbacRule]) -> list[Document]:
    limits = {
        "DRIVER": objects.driver,
        "SECRET": objects.webhook_secret_name,
        "CONFIGURATION": objects.webhook_configuration_name,
    }
    built = []
    for verbs, group, resources in rules:
        names, _, limit = resources.partition("=")
        rule: Document = {"apiGroups": [group], "resources": names.split(","), "verbs": verbs.split(",")}
        built.append(rule | ({"resourceNames": [limits[limit]]} if limit else {}))
    return built


def _build_role_ref(objects: DriverObjects, kind: str, role: str, part: str) -> Document:
    account = {
        "kind": "ServiceAccount",
        "name": objects.format_name(part),
        "namespace": objects.target.namespace,
    }
    return {"roleRef": {"apiGroup": _RBAC_GROUP, "kind": kind, "name": role}, "subjects": [account]}


def build_slice_policy(objects: DriverObjects) -> Iterator[Document]:
    """Build the policy that restricts the account on the nodes to slices of its own node and driver."""
    name = f"{objects.base_name}-slices"
    user = f"system:serviceaccount:{objects.target.namespace}:{objects.format_name('node')}"
    rule = {
        "apiGroups": [RESOURCE_GROUP],
        "apiVersions": RESOURCE_VERSIONS,
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": ["resourceslices"],
        "scope": "*",  # see `build_webhook_configuration`
    }
    yield objects.build_object("ValidatingAdmissionPolicy", ADMISSION_VERSION, name) | {
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [
                {"name": "is-the-driver", "expression": f'request.userInfo.username == "{user}"'}
            ],
            "variables": [
                {
                    "name": "spec",
                    "expression": 'request.operation == "DELETE" ? oldObject.spec : object.spec',
                },
                {"name": "node", "expression": _TOKEN_NODE_EXPRESSION},
            ],
            "validations": [
                {
                    "expression": f'variables.spec.driver == "{objects.driver}"',
                    "message": f"only slices of driver {objects.driver} may be written by its account",
                },
                {
                    "expression": 'variables.node != "" && has(variables.spec.nodeName)'
                    " && variables.spec.nodeName == variables.node",
                    "message": "only slices of the node that the pod runs on may be written",
                },
            ],
        }
    }
    yield objects.build_object("ValidatingAdmissionPolicyBinding", ADMISSION_VERSION, name) | {
        "spec": {"policyName": name, "validationActions": ["Deny"]}
    }
