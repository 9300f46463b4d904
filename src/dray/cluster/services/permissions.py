"""What scheduler, controllers and node agents must be allowed to do, and how to find out whether they are.

Theory of operation: the tables say every verb on every resource, in the short form of the server's own roles.
A service asks the server about each before it starts, because a watch that is refused looks like a cluster in
which nothing happens. Groups that a server does not have need no rights there. The roles in `deploy/` are the
same tables as manifests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dray.api.json_text import read_json, write_json
from dray.client.rest_client import Caller
from dray.client.transport import Request
from dray.errors import DrayError
from dray.server.auth.authz.policy_rules import rule_of

SYSTEM: Final = "kube-system"
"""The namespace of the leases by which one of several leads."""

_NODE_PREFIX: Final = "system:node:"
_R: Final = "get,list,watch"
_EVENTS: Final = "create,patch: events events.events.k8s.io"


@dataclass(frozen=True, slots=True)
class Rights:
    """What one service needs: in the whole cluster, and in the namespace of the leases."""

    service: str
    rules: tuple[str, ...]
    lease: str = ""
    inside: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What it needs in some namespaces only."""
    node: str = ""
    """The node it works for; a node is allowed by being that node, and needs no roles."""

    @property
    def election(self) -> tuple[str, ...]:
        """What it takes to lead."""
        return (
            "create: leases.coordination.k8s.io",
            f"get,update,patch: leases.coordination.k8s.io [{self.lease}]",
        )


SCHEDULER: Final = Rights(
    "scheduler",
    (
        f"{_R}: nodes pods",
        f"{_R}: resourceslices.resource.k8s.io deviceclasses.resource.k8s.io"
        " devicetaintrules.resource.k8s.io",
        f"{_R},patch: resourceclaims.resource.k8s.io",
        f"{_R}: resourceclaims.cdi.k8s.io",
        # The allocation and who may use it: `binding` is what servers ask for that tell it from the status.
        "update,patch: resourceclaims.resource.k8s.io/status resourceclaims.resource.k8s.io/binding",
        "patch: resourceclaims.cdi.k8s.io/status resourceclaims.cdi.k8s.io/binding",
        "create: pods/binding",
        "patch: pods/status",
        _EVENTS,
    ),
    "dray-scheduler",
)

CONTROLLER: Final = Rights(
    "controller",
    (
        f"{_R},delete: pods",
        f"{_R}: resourceclaimtemplates.resource.k8s.io resourceslices.resource.k8s.io"
        " devicetaintrules.resource.k8s.io",
        "patch: devicetaintrules.resource.k8s.io/status",
        f"{_R},create,patch,delete: resourceclaims.resource.k8s.io resourceclaims.cdi.k8s.io",
        "patch: resourceclaims.resource.k8s.io/status resourceclaims.cdi.k8s.io/status",
        # Claims are born with the finalizer that keeps them while they have devices.
        "update,patch: resourceclaims.resource.k8s.io/binding resourceclaims.cdi.k8s.io/binding",
        "patch: pods/status",
        # Claims are deleted before the pods they belong to; some servers ask whether their maker may say so.
        "update: pods/finalizers",
        _EVENTS,
    ),
    "dray-controller",
)

NODE: Final = Rights(
    "node",
    (
        f"{_R},delete: pods",
        "patch: pods/status",
        f"{_R},create,patch: nodes",
        "patch: nodes/status",
        "get: configmaps secrets",
        "get: resourceclaims.resource.k8s.io resourceclaims.cdi.k8s.io",
        # Those of drivers that have gone without a word.
        "list,deletecollection: resourceslices.resource.k8s.io",
        "get,list,create,delete: preparations.dray.dev",
        # Whether the one who asks for logs may.
        "create: subjectaccessreviews.authorization.k8s.io",
        _EVENTS,
    ),
    inside=(("kube-node-lease", ("create,patch: leases.coordination.k8s.io",)),),
)
"""What an agent needs that does not work under the name of its node."""

UPKEEP: Final = (
    f"{_R}: namespaces",
    f"{_R},patch: nodes",
    "patch: nodes/status",
    f"{_R}: leases.coordination.k8s.io",
    f"{_R},create: serviceaccounts",
)
"""What the controllers need besides where they do the work of `kube-controller-manager`, too."""


class Want(NamedTuple):
    """One verb on one thing."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    @property
    def thing(self) -> str:
        """The resource as roles of this project name it: `pods/status`, `leases.coordination.k8s.io`."""
        plural, slash, part = self.resource.partition("/")
        whole = f"{plural}.{self.group}" if self.group else plural
        return whole + slash + part


class RightsMissing(DrayError):  # noqa: N818 - what is the case
    """The server does not let a service do its work."""


def wants(rules: Sequence[str], namespace: str = "") -> Iterator[Want]:
    """The rules taken apart."""
    for text in rules:
        verbs, _, what = text.partition(": ")
        what, _, _ = what.partition("[")
        for place in what.split():
            rule = rule_of(f"{verbs}: {place}")
            names = sorted(rule_of(text).names) or [""]
            for verb in verbs.split(","):
                (group,), (resource,) = rule.groups, rule.resources
                yield from (Want(verb, group, resource, namespace, name) for name in names)


async def check(caller: Caller, rights: Rights, *, elect: bool) -> None:
    """Raise `RightsMissing` with everything the server would refuse."""
    if rights.node and await _is_node(caller, rights.node):
        return
    groups = await _served(caller)
    asked = [want for want in wants(rights.rules) if want.group in groups]
    for namespace, rules in rights.inside:
        asked += wants(rules, namespace)
    if elect:
        asked += wants(rights.election, SYSTEM)
    allowed = await asyncio.gather(*(_may(caller, want) for want in asked))
    refused = [want for want, yes in zip(asked, allowed, strict=True) if not yes]
    if refused:
        who = await _name(caller)
        raise RightsMissing(
            f"user `{who}` may not do what a {rights.service} does: {_told(refused)}; "
            f"deploy/{rights.service}.yaml has the roles for it"
        )


def _told(refused: Sequence[Want]) -> str:
    """Verbs by resource."""
    verbs: dict[str, list[str]] = {}
    for want in refused:
        thing = f"`{want.thing}`" + (f" in {want.namespace}" if want.namespace else "")
        verbs.setdefault(thing, []).append(want.verb)
    return "; ".join(f"{', '.join(dict.fromkeys(words))} {thing}" for thing, words in verbs.items())


async def _served(caller: Caller) -> set[str]:
    reply = await caller.call(Request("GET", "/apis"))
    groups = read_json(reply.body).get("groups") or ()
    return {"", *(str(group.get("name")) for group in groups)}


async def _may(caller: Caller, want: Want) -> bool:
    resource, _, subresource = want.resource.partition("/")
    attributes = {
        "verb": want.verb,
        "group": want.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": want.namespace,
        "name": want.name,
    }
    spec = {"resourceAttributes": {name: value for name, value in attributes.items() if value}}
    answer = await _review(caller, "authorization.k8s.io", "SelfSubjectAccessReview", spec)
    return bool((answer.get("status") or {}).get("allowed"))


async def _is_node(caller: Caller, node: str) -> bool:
    """Whether the server takes us for this node; to be another one is no use."""
    name = await _name(caller)
    known = name.removeprefix(_NODE_PREFIX)
    if name.startswith(_NODE_PREFIX) and known != node:
        raise RightsMissing(
            f"the credentials are those of node `{known}` and cannot work for node `{node}`; "
            f"start the agent with --name {known}, or with credentials of user `{_NODE_PREFIX}{node}`"
        )
    return name.startswith(_NODE_PREFIX)


async def _name(caller: Caller) -> str:
    answer = await _review(caller, "authentication.k8s.io", "SelfSubjectReview", {})
    user = (answer.get("status") or {}).get("userInfo") or {}
    return str(user.get("username") or "unknown")


async def _review(caller: Caller, group: str, kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    document = {"apiVersion": f"{group}/v1", "kind": kind} | ({"spec": spec} if spec else {})
    path = f"/apis/{group}/v1/{kind.lower()}s"
    reply = await caller.call(Request("POST", path, body=write_json(document)))
    answer: dict[str, Any] = read_json(reply.body)
    return answer
