"""The permissions that the scheduler, the controllers, the guard and node agents need, and the check that the
server grants them.

Theory of operation: the tables list every verb on every resource, in the short form of the server's own
roles. A service checks each with an access review before it starts, because a watch that is refused looks
like a cluster in which nothing happens. API groups that a server does not serve need no permissions. The
roles in `deploy/` are the same tables as manifests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dray.api.json_text import read_json, write_json
from dray.client.rest_client import RestClient
from dray.client.transport import TransportRequest
from dray.errors import DrayError
from dray.server.auth.authz.policy_rules import parse_rule

LEASE_NAMESPACE: Final = "kube-system"
"""The namespace of the leases of leader elections."""

_NODE_PREFIX: Final = "system:node:"
_READ_VERBS: Final = "get,list,watch"
_TRANSACTION_RULE: Final = "create: transactions.dray.dev"
_EVENT_RULE: Final = "create,patch: events events.events.k8s.io"


@dataclass(frozen=True, slots=True)
class ServicePermissions:
    """What one service needs: in the whole cluster, and in some namespaces."""

    service: str
    rules: tuple[str, ...]
    lease_name: str = ""
    namespaced_rules: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What it needs in some namespaces only."""
    optional_rules: tuple[str, ...] = ()
    """What it uses where it may, in the whole cluster; it works without."""
    node: str = ""
    """The node it works for; the node authorizer allows a node its requests, and it needs no roles."""

    @property
    def election_rules(self) -> tuple[str, ...]:
        """The rules for leader election."""
        return (
            "create: leases.coordination.k8s.io",
            f"get,update,patch: leases.coordination.k8s.io [{self.lease_name}]",
        )


SCHEDULER_PERMISSIONS: Final = ServicePermissions(
    "scheduler",
    (
        f"{_READ_VERBS}: nodes pods",
        f"{_READ_VERBS}: resourceslices.resource.k8s.io deviceclasses.resource.k8s.io"
        " devicetaintrules.resource.k8s.io",
        f"{_READ_VERBS},update,patch: resourceclaims.resource.k8s.io",
        f"{_READ_VERBS}: resourceclaims.cdi.k8s.io",
        # Allocation and reservations: some servers check `binding` apart from the status.
        "update,patch: resourceclaims.resource.k8s.io/status resourceclaims.resource.k8s.io/binding",
        "patch: resourceclaims.cdi.k8s.io/status resourceclaims.cdi.k8s.io/binding",
        "create: pods/binding",
        "patch: pods/status",
        _EVENT_RULE,
    ),
    "dray-scheduler",
    # Whether the guard keeps a ledger of devices; several writes in one request.
    optional_rules=(
        "get: validatingwebhookconfigurations.admissionregistration.k8s.io [dray-guard]",
        _TRANSACTION_RULE,
    ),
)

CONTROLLER_PERMISSIONS: Final = ServicePermissions(
    "controller",
    (
        f"{_READ_VERBS},delete: pods",
        f"{_READ_VERBS}: resourceclaimtemplates.resource.k8s.io resourceslices.resource.k8s.io"
        " devicetaintrules.resource.k8s.io",
        "patch: devicetaintrules.resource.k8s.io/status",
        f"{_READ_VERBS},create,update,patch,delete: resourceclaims.resource.k8s.io",
        f"{_READ_VERBS},create,patch,delete: resourceclaims.cdi.k8s.io",
        "update,patch: resourceclaims.resource.k8s.io/status",
        "patch: resourceclaims.cdi.k8s.io/status",
        # Claims are created with the finalizer that keeps them while they have devices.
        "update,patch: resourceclaims.resource.k8s.io/binding resourceclaims.cdi.k8s.io/binding",
        "patch: pods/status",
        # Claims block the deletion of their owner; some servers check that with this permission.
        "update: pods/finalizers",
        _EVENT_RULE,
    ),
    "dray-controller",
    # Whether kube-controller-manager keeps the claims already.
    namespaced_rules=((LEASE_NAMESPACE, ("get: leases.coordination.k8s.io [kube-controller-manager]",)),),
    optional_rules=(_TRANSACTION_RULE,),
)

GUARD_PERMISSIONS: Final = ServicePermissions(
    "guard",
    (
        # A patch of an annotation fences a claim: writes on their way cannot be stored any more. Claims that
        # JSON cannot carry unchanged are updated.
        f"{_READ_VERBS},patch,update: resourceclaims.resource.k8s.io",
        f"{_READ_VERBS}: resourceslices.resource.k8s.io",
        # Pods of claims that were deleted by force.
        "get: pods",
        _EVENT_RULE,
    ),
    "dray-guard",
)

GUARD_TLS_RULES: Final = (
    "get,patch: validatingwebhookconfigurations.admissionregistration.k8s.io [dray-guard]",
)
GUARD_SECRET_RULES: Final = ("create: secrets", "get,patch: secrets [dray-guard-tls]")
"""What the guard needs in addition where it issues its own certificates."""

NODE_PERMISSIONS: Final = ServicePermissions(
    "node",
    (
        f"{_READ_VERBS},delete: pods",
        "patch: pods/status",
        f"{_READ_VERBS},create,patch: nodes",
        "patch: nodes/status",
        "get: configmaps secrets",
        "get: resourceclaims.resource.k8s.io resourceclaims.cdi.k8s.io",
        # The slices of drivers that did not unregister.
        "list,deletecollection: resourceslices.resource.k8s.io",
        "get,list,create,delete: preparations.dray.dev",
        # Whether the user who reads logs may do so.
        "create: subjectaccessreviews.authorization.k8s.io",
        _EVENT_RULE,
    ),
    namespaced_rules=(("kube-node-lease", ("create,patch: leases.coordination.k8s.io",)),),
    optional_rules=(_TRANSACTION_RULE,),
)
"""What an agent needs whose user is not its node."""

UPKEEP_RULES: Final = (
    f"{_READ_VERBS}: namespaces",
    f"{_READ_VERBS},patch: nodes",
    "patch: nodes/status",
    f"{_READ_VERBS}: leases.coordination.k8s.io",
    f"{_READ_VERBS},create: serviceaccounts",
)
"""What the controllers need in addition where they replace `kube-controller-manager`."""


class RequiredAccess(NamedTuple):
    """One verb on one resource."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    @property
    def resource_name(self) -> str:
        """The resource in the notation of the rules: `pods/status`, `leases.coordination.k8s.io`."""
        plural, slash, part = self.resource.partition("/")
        whole = f"{plural}.{self.group}" if self.group else plural
        return whole + slash + part


class MissingPermissionsError(DrayError):
    """The server does not permit a service its work."""


def expand_rules(rules: Sequence[str], namespace: str = "") -> Iterator[RequiredAccess]:
    """Expand rules into single verbs on single resources."""
    for text in rules:
        verbs, _, what = text.partition(": ")
        what, _, _ = what.partition("[")
        for resources in what.split():
            rule = parse_rule(f"{verbs}: {resources}")
            names = sorted(parse_rule(text).names) or [""]
            for verb in verbs.split(","):
                (group,), (resource,) = rule.groups, rule.resources
                yield from (RequiredAccess(verb, group, resource, namespace, name) for name in names)


async def check_permissions(
    rest_client: RestClient, permissions: ServicePermissions, *, leader_elect: bool
) -> None:
    """Raise `MissingPermissionsError` with everything the server would refuse."""
    if permissions.node and await _is_node(rest_client, permissions.node):
        return
    groups = await _list_served_groups(rest_client)
    required = [access for access in expand_rules(permissions.rules) if access.group in groups]
    if leader_elect:
        required += expand_rules(permissions.election_rules, LEASE_NAMESPACE)
    for namespace, rules in permissions.namespaced_rules:
        required += expand_rules(rules, namespace)
    allowed = await asyncio.gather(*(_is_allowed(rest_client, access) for access in required))
    refused = [access for access, granted in zip(required, allowed, strict=True) if not granted]
    if refused:
        who = await _read_username(rest_client)
        raise MissingPermissionsError(
            f"user `{who}` may not do what a {permissions.service} does: {_describe_missing(refused)}; "
            f"deploy/{permissions.service}.yaml has the roles for it"
        )


def _describe_missing(refused: Sequence[RequiredAccess]) -> str:
    """Describe the missing verbs by resource."""
    verbs: dict[str, list[str]] = {}
    for access in refused:
        thing = f"`{access.resource_name}`" + (f" in {access.namespace}" if access.namespace else "")
        verbs.setdefault(thing, []).append(access.verb)
    return "; ".join(f"{', '.join(dict.fromkeys(words))} {thing}" for thing, words in verbs.items())


async def _list_served_groups(rest_client: RestClient) -> set[str]:
    reply = await rest_client.call(TransportRequest("GET", "/apis"))
    groups = read_json(reply.body).get("groups") or ()
    return {"", *(str(group.get("name")) for group in groups)}


async def _is_allowed(rest_client: RestClient, access: RequiredAccess) -> bool:
    resource, _, subresource = access.resource.partition("/")
    attributes = {
        "verb": access.verb,
        "group": access.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": access.namespace,
        "name": access.name,
    }
    spec = {"resourceAttributes": {name: value for name, value in attributes.items() if value}}
    answer = await _post_review(rest_client, "authorization.k8s.io", "SelfSubjectAccessReview", spec)
    return bool((answer.get("status") or {}).get("allowed"))


async def _is_node(rest_client: RestClient, node: str) -> bool:
    """Whether the server authenticates us as this node; as another one is an error."""
    name = await _read_username(rest_client)
    known = name.removeprefix(_NODE_PREFIX)
    if name.startswith(_NODE_PREFIX) and known != node:
        raise MissingPermissionsError(
            f"the credentials are those of node `{known}` and cannot work for node `{node}`; "
            f"start the agent with --name {known}, or with credentials of user `{_NODE_PREFIX}{node}`"
        )
    return name.startswith(_NODE_PREFIX)


async def _read_username(rest_client: RestClient) -> str:
    answer = await _post_review(rest_client, "authentication.k8s.io", "SelfSubjectReview", {})
    user = (answer.get("status") or {}).get("userInfo") or {}
    return str(user.get("username") or "unknown")


async def _post_review(
    rest_client: RestClient, group: str, kind: str, spec: Mapping[str, Any]
) -> dict[str, Any]:
    document = {"apiVersion": f"{group}/v1", "kind": kind} | ({"spec": spec} if spec else {})
    path = f"/apis/{group}/v1/{kind.lower()}s"
    reply = await rest_client.call(TransportRequest("POST", path, body=write_json(document)))
    answer: dict[str, Any] = read_json(reply.body)
    return answer
