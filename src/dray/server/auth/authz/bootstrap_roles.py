"""Bootstrap roles and bindings, which every server creates.

Theory of operation: two tables. A row of `BOOTSTRAP_ROLES` is a role with its rules in a short form, `VERBS:
RESOURCES`; a resource is written `resource.group/subresource`, a path with a slash in front, and names in
brackets restrict a rule to objects of these names. `view`, `edit` and `admin` have no rules of their own:
they aggregate roles with labels, and anybody may add to them in the same way. A row of `BOOTSTRAP_BINDINGS`
names the subjects of a role.

A component gets what its work needs. Only administrators get `*` for verbs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dray.api.preparation import RESTORED_PATH
from dray.server.auth.authz.controller_roles import CONTROLLER_RULES, EVENT_RULE, READ
from dray.server.auth.authz.namespaced_roles import build_namespaced_documents
from dray.server.auth.authz.rbac import GROUP
from dray.server.auth.authz.role_documents import build_binding, build_role, build_rules
from dray.server.http.requests import AUTHENTICATED, MASTERS, NODES, UNAUTHENTICATED
from dray.x509_certificates import RENEWAL_PATH

_R = READ
_W = "create,update,patch,delete,deletecollection"
_EVENTS = EVENT_RULE
_CONTROLLERS = "system:controller:"

_CLAIMS = "resourceclaims.resource.k8s.io resourceclaims.cdi.k8s.io"
_STATUSES = "resourceclaims.resource.k8s.io/status resourceclaims.cdi.k8s.io/status"
_BOUND = "resourceclaims.resource.k8s.io/binding resourceclaims.cdi.k8s.io/binding"
_TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
_CLASSES = "deviceclasses.resource.k8s.io resourceclasses.cdi.k8s.io"
_SLICES = "resourceslices.resource.k8s.io"
_TAINTS = "devicetaintrules.resource.k8s.io"

_NAMESPACE_RESOURCES = (
    "configmaps endpoints persistentvolumeclaims pods replicationcontrollers serviceaccounts services "
    "daemonsets.apps deployments.apps replicasets.apps statefulsets.apps "
    "horizontalpodautoscalers.autoscaling cronjobs.batch jobs.batch poddisruptionbudgets.policy "
    "ingresses.networking.k8s.io networkpolicies.networking.k8s.io"
)
"""Resources that people work with in a namespace, besides claims."""

_VIEW_ONLY = (
    "events events.events.k8s.io limitranges namespaces resourcequotas controllerrevisions.apps "
    f"endpointslices.discovery.k8s.io */status *.apps/status *.batch/status {_STATUSES}"
)

_ELECTION = (
    "create,list,watch: leases.coordination.k8s.io leasecandidates.coordination.k8s.io",
    "get,update,patch: leases.coordination.k8s.io"
    " [kube-scheduler kube-controller-manager dray-scheduler dray-controller]",
    "get,update,patch,delete: leasecandidates.coordination.k8s.io",
)
_DELEGATED = (
    "create: tokenreviews.authentication.k8s.io subjectaccessreviews.authorization.k8s.io",
    f"{_R}: configmaps [extension-apiserver-authentication]",
)
_SCHEDULING = (
    _EVENTS,
    *_ELECTION,
    f"{_R}: nodes namespaces {_TEMPLATES} {_CLASSES} {_SLICES} {_TAINTS} priorityclasses.scheduling.k8s.io",
    f"{_R},delete: pods",
    "create: pods/binding bindings",
    "update,patch: pods/status",
    f"{_R},update,patch: {_CLAIMS}",
    f"get,update,patch: {_STATUSES}",
    f"update,patch: {_BOUND}",
)
_CLAIM_CONTROL = (
    _EVENTS,
    f"{_R}: pods {_TEMPLATES} podgroups.scheduling.k8s.io",
    f"{_R},create,update,patch,delete: {_CLAIMS}",
    f"get,update,patch: {_STATUSES}",
    f"update,patch: {_BOUND}",
    "update,patch: pods/status",
    "update: pods/finalizers",
)
_HEALTH = "get: /healthz /healthz/* /livez /livez/* /readyz /readyz/* /version /version/"

TO_ADMIN, TO_EDIT, TO_VIEW = (f"{GROUP}/aggregate-to-{role}" for role in ("admin", "edit", "view"))


@dataclass(frozen=True, slots=True)
class BootstrapRole:
    """A role: its rules, the role it is aggregated into, and the roles it aggregates."""

    name: str
    rules: tuple[str, ...] = ()
    aggregates_to: str = ""
    aggregated_from: str = ""


BOOTSTRAP_ROLES: tuple[BootstrapRole, ...] = (
    BootstrapRole("cluster-admin", ("*: *.*", "*: /*")),
    BootstrapRole("admin", aggregated_from=TO_ADMIN),
    BootstrapRole("edit", aggregates_to=TO_ADMIN, aggregated_from=TO_EDIT),
    BootstrapRole("view", aggregates_to=TO_EDIT, aggregated_from=TO_VIEW),
    BootstrapRole(
        "system:aggregate-to-admin",
        (
            f"{_R},{_W}: roles.{GROUP} rolebindings.{GROUP}",
            "create: localsubjectaccessreviews.authorization.k8s.io",
        ),
        aggregates_to=TO_ADMIN,
    ),
    BootstrapRole(
        "system:aggregate-to-edit",
        (
            f"{_W}: {_NAMESPACE_RESOURCES} {_CLAIMS} {_TEMPLATES}",
            f"{_R},{_W}: secrets leases.coordination.k8s.io",
            "create: pods/eviction serviceaccounts/token",
            "create,update,patch: events events.events.k8s.io",
            "impersonate: serviceaccounts",
        ),
        aggregates_to=TO_EDIT,
    ),
    BootstrapRole(
        "system:aggregate-to-view",
        (f"{_R}: {_NAMESPACE_RESOURCES} {_VIEW_ONLY} {_CLAIMS} {_TEMPLATES}", "get: pods/log"),
        aggregates_to=TO_VIEW,
    ),
    BootstrapRole("system:public-info-viewer", (_HEALTH,)),
    BootstrapRole(
        "system:discovery", (_HEALTH, "get: /api /api/* /apis /apis/* /openapi /openapi/*"), aggregates_to=""
    ),
    BootstrapRole(
        "system:basic-user",
        (
            f"get: {RESTORED_PATH}",
            "create: selfsubjectaccessreviews.authorization.k8s.io "
            "selfsubjectrulesreviews.authorization.k8s.io selfsubjectreviews.authentication.k8s.io",
        ),
    ),
    BootstrapRole(
        "system:service-account-issuer-discovery",
        ("get: /.well-known/openid-configuration /openid/v1/jwks",),
    ),
    BootstrapRole("system:monitoring", (_HEALTH, "get: /metrics /metrics/*")),
    BootstrapRole("system:auth-delegator", (_DELEGATED[0],)),
    BootstrapRole(
        "system:node",
        (
            "create,get,update,patch,delete: nodes",
            f"{_R},create,delete: pods",
            "get,update,patch: nodes/status pods/status",
            f"get: configmaps secrets {_CLAIMS}",
            f"{_R},{_W}: {_SLICES} preparations.dray.dev",
            _EVENTS,
        ),
    ),
    BootstrapRole(
        "system:kube-scheduler",
        (
            *_SCHEDULING,
            *_DELEGATED,
            f"{_R}: replicationcontrollers services replicasets.apps statefulsets.apps "
            "poddisruptionbudgets.policy csinodes.storage.k8s.io csidrivers.storage.k8s.io "
            "csistoragecapacities.storage.k8s.io storageclasses.storage.k8s.io "
            "volumeattachments.storage.k8s.io podgroups.scheduling.k8s.io workloads.scheduling.k8s.io",
            f"{_R},update,patch: persistentvolumeclaims persistentvolumes",
            "update,patch: podgroups.scheduling.k8s.io/status",
            # kube-scheduler creates the claims of pods that ask for extended resources.
            "create,delete: resourceclaims.resource.k8s.io",
            "list,watch: resourceclaims.resource.k8s.io/status",
            "deletecollection: leasecandidates.coordination.k8s.io",
            "update: pods/finalizers",
        ),
    ),
    BootstrapRole(
        "system:kube-controller-manager",
        (
            *_CLAIM_CONTROL,
            *_ELECTION,
            *_DELEGATED,
            "list,watch: *.*",
            "get,create,update,delete: secrets serviceaccounts",
            "create: serviceaccounts/token",
            "get: configmaps namespaces",
        ),
    ),
    BootstrapRole("system:controller:resource-claim-controller", _CLAIM_CONTROL),
    BootstrapRole("system:controller:generic-garbage-collector", (_EVENTS, f"{_R},update,patch,delete: *.*")),
    BootstrapRole(
        "system:controller:namespace-controller",
        (
            f"{_R},delete: namespaces",
            "update: namespaces/status namespaces/finalize",
            f"{_R},delete,deletecollection: *.*",
        ),
    ),
    BootstrapRole(
        "system:controller:resourcequota-controller",
        (_EVENTS, "list,watch: *.*", "update: resourcequotas/status"),
    ),
    BootstrapRole("system:controller:service-account-controller", (_EVENTS, "create: serviceaccounts")),
    BootstrapRole(
        "system:controller:pod-garbage-collector",
        (_EVENTS, "list,watch,delete: pods", f"{_R}: nodes", "patch: pods/status"),
    ),
    BootstrapRole(
        "system:controller:device-taint-eviction-controller",
        (
            _EVENTS,
            f"{_R},delete: pods",
            "update,patch: pods/status",
            f"{_R}: {_CLAIMS} {_SLICES} {_TAINTS} {_CLASSES}",
            f"update,patch: {_TAINTS}/status",
        ),
    ),
    BootstrapRole(
        "system:controller:clusterrole-aggregation-controller",
        (f"escalate,get,list,watch,update,patch: clusterroles.{GROUP}",),
    ),
    *(BootstrapRole(_CONTROLLERS + name, rules) for name, rules in CONTROLLER_RULES.items()),
    BootstrapRole("dray:class-reader", (f"{_R}: {_CLASSES}",)),
    BootstrapRole("dray:scheduler", (*_SCHEDULING, f"{_R}: preparations.dray.dev")),
    BootstrapRole(
        "dray:controller",
        (
            *_CLAIM_CONTROL,
            *_ELECTION,
            f"{_R}: nodes namespaces resourcequotas preparations.dray.dev {_CLASSES} {_SLICES} {_TAINTS}",
            f"patch: {_TAINTS}/status",
            "delete: pods",
            f"{_R},create: serviceaccounts",
            "patch: nodes nodes/status",
            f"{_R}: leases.coordination.k8s.io",
            "update,patch: resourcequotas/status",
        ),
    ),
    # What scheduler and controllers in one process read together (`cluster/services/shared_kinds`).
    BootstrapRole("dray:informers", (f"list,watch: nodes pods {_CLAIMS} {_SLICES} {_TAINTS}",)),
    BootstrapRole(
        "dray:driver",
        (
            _EVENTS,
            f"{_R},{_W}: {_SLICES}",
            f"{_R}: {_CLASSES}",
            "get: nodes resourceclaims.resource.k8s.io",
            "get,update,patch: resourceclaims.resource.k8s.io/status",
            "list: preparations.dray.dev",
        ),
    ),
    BootstrapRole(
        "dray:classic-driver",
        (
            _EVENTS,
            f"{_R},update,patch: resourceclaims.cdi.k8s.io",
            "get,update,patch: resourceclaims.cdi.k8s.io/status",
            f"{_R}: nodes {_CLASSES}",
            "list: preparations.dray.dev",
        ),
    ),
    # The same rules as deploy/viewer.yaml.
    BootstrapRole(
        "dray:viewer",
        (f"{_R}: nodes pods {_SLICES} deviceclasses.resource.k8s.io {_CLAIMS} {_TEMPLATES} {_TAINTS}",),
        aggregates_to=TO_VIEW,
    ),
    # The server itself when it fetches the log of a container from an agent.
    BootstrapRole("dray:log-fetcher", ("get: nodes/proxy",)),
    # Components renew the client certificates that they have; see `authn.client_renewal`.
    BootstrapRole("dray:certificate-renewal", (f"post: {RENEWAL_PATH}",)),
    # Nobody can do more with it: every request inside a transaction is authorized by itself.
    BootstrapRole("dray:transactions", ("create: transactions.dray.dev",)),
    BootstrapRole(
        "dray:dashboard",
        (
            f"{_R}: nodes namespaces pods pods/status resourcequotas events events.events.k8s.io "
            f"{_CLAIMS} {_STATUSES} {_TEMPLATES} {_CLASSES} {_SLICES} {_TAINTS} preparations.dray.dev",
            "get: /metrics",
        ),
    ),
)

_EVERYBODY = (f"Group:{AUTHENTICATED}", f"Group:{UNAUTHENTICATED}")

BOOTSTRAP_BINDINGS: Mapping[str, tuple[str, ...]] = {
    "cluster-admin": (f"Group:{MASTERS}",),
    "system:public-info-viewer": _EVERYBODY,
    "system:service-account-issuer-discovery": _EVERYBODY,
    "system:discovery": (f"Group:{AUTHENTICATED}",),
    "system:basic-user": (f"Group:{AUTHENTICATED}",),
    "system:monitoring": ("Group:system:monitoring",),
    "system:kube-scheduler": ("User:system:kube-scheduler",),
    "system:kube-controller-manager": ("User:system:kube-controller-manager",),
    **{
        row.name: (f"Account:{row.name.removeprefix(_CONTROLLERS)}",)
        for row in BOOTSTRAP_ROLES
        if row.name.startswith(_CONTROLLERS)
    },
    "dray:class-reader": (f"Group:{AUTHENTICATED}",),
    "dray:scheduler": ("User:dray:scheduler",),
    "dray:controller": ("User:dray:controller",),
    "dray:informers": ("User:dray:informers",),
    "dray:driver": ("Group:dray:drivers",),
    "dray:classic-driver": ("Group:dray:classic-drivers",),
    "dray:log-fetcher": ("User:dray:apiserver",),
    "dray:certificate-renewal": (
        "User:dray:scheduler",
        "User:dray:controller",
        "Group:dray:drivers",
        "Group:dray:classic-drivers",
        f"Group:{NODES}",
    ),
    "dray:transactions": (
        "User:dray:scheduler",
        "User:dray:controller",
        "Group:dray:drivers",
        "Group:dray:classic-drivers",
        f"Group:{NODES}",
    ),
    "dray:dashboard": ("User:dray:dashboard",),
}
"""The subjects of each role; accounts are those of the namespace `kube-system`."""


def build_bootstrap_documents() -> list[dict[str, Any]]:
    """Build the roles and bindings to create when they are absent, in any order."""
    return [
        *map(_build_role, BOOTSTRAP_ROLES),
        *(build_binding(name, who) for name, who in BOOTSTRAP_BINDINGS.items()),
        *build_namespaced_documents(),
    ]


def _build_role(row: BootstrapRole) -> dict[str, Any]:
    labels = {row.aggregates_to: "true"} if row.aggregates_to else {}
    document = build_role(row.name, row.rules, labels)
    if row.aggregated_from:
        document["aggregationRule"] = {
            "clusterRoleSelectors": [{"matchLabels": {row.aggregated_from: "true"}}]
        }
        document["rules"] = [
            rule for part in _find_aggregated_roles(row.aggregated_from) for rule in build_rules(part.rules)
        ]
    return document


def _find_aggregated_roles(label: str) -> list[BootstrapRole]:
    found = [row for row in BOOTSTRAP_ROLES if row.aggregates_to == label]
    return [
        part
        for row in found
        for part in ([row] if not row.aggregated_from else _find_aggregated_roles(row.aggregated_from))
    ]
