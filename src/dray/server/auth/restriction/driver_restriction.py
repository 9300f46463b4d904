"""Which driver somebody speaks for, and on which node; and what follows for slices.

Theory of operation: to publish devices of a driver, or to tell how they are, one must speak for that driver.
An identity is bound to drivers by the annotation `dray.dev/driver` of its service account (or a label of that
name), or by groups `dray:driver:NAME` in its certificate or token; it then speaks for these and for no other,
whatever its roles say. An identity that is not bound speaks for the drivers that its roles name, as
Kubernetes has it: by the verbs `associated-node:update` or `arbitrary-node:update` on
`resourceclaims/driver`. The node comes from the token, which is bound to a pod there, or from a group
`dray:on-node:NAME`. Who has a node reaches only that node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dray.api.kinds import known_kind
from dray.server.admission.change import DELETE, NOTHING, Change, Extra
from dray.server.auth.authn.service_account_tokens import ACCOUNT_PREFIX, NODE_NAME
from dray.server.auth.authz.authorizer import Access
from dray.server.auth.authz.node_authorizer import SLICE
from dray.server.auth.authz.node_pod_graph import DEVICES
from dray.server.auth.authz.policy_rules import Asked
from dray.server.http.errors import forbidden
from dray.server.http.requests import MASTERS, User
from dray.server.watch.cache import Cache

DRIVER = "dray.dev/driver"
"""The annotation of a service account that says whose driver it is; several names are separated by commas."""

DRIVER_GROUP, NODE_GROUP = "dray:driver:", "dray:on-node:"

_ACCOUNT = known_kind("", "ServiceAccount")


@dataclass(frozen=True, slots=True)
class Spokesman:
    """The drivers an identity is bound to (None: not bound) and the node it is on."""

    drivers: frozenset[str] | None
    node: str | None


@dataclass(frozen=True, slots=True)
class Reach:
    """On which nodes somebody speaks for a driver: all, one, or none."""

    everywhere: bool = False
    node: str | None = None

    def covers(self, node: str | None) -> bool:
        return self.everywhere or (node is not None and node == self.node)


NOWHERE = Reach()


class Drivers:
    """Knows who speaks for which driver."""

    def __init__(self, cache: Cache, access: Access) -> None:
        self._cache = cache
        self._access = access

    def spokesman(self, user: User) -> Spokesman:
        """What an identity is bound to."""
        named = {group.removeprefix(DRIVER_GROUP) for group in user.groups if group.startswith(DRIVER_GROUP)}
        named |= self._annotated(user)
        nodes = [
            *user.extra.get(NODE_NAME, ()),
            *(group.removeprefix(NODE_GROUP) for group in user.groups if group.startswith(NODE_GROUP)),
        ]
        # Somebody who claims to be in two places is in none.
        node = nodes[0] if len(set(nodes)) == 1 else None
        return Spokesman(frozenset(named) or None, node)

    def reach(self, user: User, driver: str, verb: str, namespace: str = "") -> Reach:
        """Where the user speaks for a driver."""
        if MASTERS in user.groups:
            return Reach(everywhere=True)
        bound = self.spokesman(user)
        if bound.drivers is not None and driver not in bound.drivers:
            return NOWHERE
        if self._granted(user, f"arbitrary-node:{verb}", driver, namespace):
            return Reach(everywhere=True)
        if bound.node is None:
            return NOWHERE
        if bound.drivers is not None or self._granted(user, f"associated-node:{verb}", driver, namespace):
            return Reach(node=bound.node)
        return NOWHERE

    def _granted(self, user: User, verb: str, driver: str, namespace: str) -> bool:
        return self._access.allows(user, Asked(verb, DEVICES, "resourceclaims", "driver", namespace, driver))

    def _annotated(self, user: User) -> set[str]:
        if not user.name.startswith(ACCOUNT_PREFIX):
            return set()
        namespace, _, name = user.name.removeprefix(ACCOUNT_PREFIX).partition(":")
        held = self._cache.get(_ACCOUNT, namespace, name)
        if held is None:
            return set()
        return driver_names({"annotations": held.metadata.annotations, "labels": held.metadata.labels})


def driver_names(metadata: Mapping[str, Mapping[str, str] | None]) -> set[str]:
    """The drivers that a service account is bound to."""
    written = [(metadata.get(part) or {}).get(DRIVER, "") for part in ("annotations", "labels")]
    return {name.strip() for text in written for name in text.split(",") if name.strip()}


class SliceRule:
    """Only who speaks for a driver publishes its slices, and only on the nodes where they do."""

    def __init__(self, drivers: Drivers) -> None:
        self._drivers = drivers

    def judge(self, change: Change) -> Extra:
        user = change.request.user
        if change.kind is not SLICE or user.node is not None or MASTERS in user.groups:
            return NOTHING
        bound = self._drivers.spokesman(user)
        if bound.drivers is None and change.operation == DELETE:
            return NOTHING  # whoever tidies up speaks for no driver
        for view in (change.old_view, change.view):
            if view is not None:
                self._check(change, view.spec.driver, view.spec.node_name, bound)
        return NOTHING

    def _check(self, change: Change, driver: str, node: str | None, bound: Spokesman) -> None:
        user = change.request.user
        if bound.drivers is not None and driver not in bound.drivers:
            names = ", ".join(f'"{name}"' for name in sorted(bound.drivers))
            raise forbidden(
                change.kind,
                change.name,
                f'User "{user.name}" speaks for driver {names} and not for "{driver}"',
            )
        if bound.drivers is not None and bound.node is None:
            return  # a driver that serves the whole cluster
        verb = "patch" if change.request.call.verb == "patch" else "update"
        reach = self._drivers.reach(user, driver, verb)
        if reach.covers(node):
            return
        if reach.node is not None:
            why = f'User "{user.name}" is on node "{reach.node}" and can only write slices of that node'
        else:
            why = (
                f'User "{user.name}" does not speak for driver "{driver}"; annotate its service account with '
                f'`{DRIVER}: {driver}`, or grant it "arbitrary-node:{verb}" on "resourceclaims/driver"'
            )
        raise forbidden(change.kind, change.name, why)


class NamingRule:
    """Who says that a service account speaks for a driver must be allowed to bind that driver."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def judge(self, change: Change) -> Extra:
        if change.kind is not _ACCOUNT or change.document is None:
            return NOTHING
        before = (change.old_document or {}).get("metadata", {})
        for driver in sorted(driver_names(change.document["metadata"]) ^ driver_names(before)):
            asked = Asked("bind", "dray.dev", "drivers", name=driver)
            if not self._access.allows(change.request.user, asked):
                why = (
                    f'User "{change.request.user.name}" cannot bind the driver "{driver}" to a service '
                    'account; that needs the verb "bind" on "drivers" in API group "dray.dev"'
                )
                raise forbidden(change.kind, change.name, why)
        return NOTHING
