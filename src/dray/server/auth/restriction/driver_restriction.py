"""Driver restriction: which drivers a user may act for, on which nodes, and which slices it may write.

Theory of operation: publishing devices of a driver, or their status, requires the right to act for that
driver. A user is bound to drivers by the annotation `dray.dev/driver` of its service account (or a label of
that name), or by groups `dray:driver:NAME` in its certificate or token; it may then act for these and for no
other, whatever its roles say. A user that is not bound may act for the drivers that its roles name, as in
Kubernetes: by the verbs `associated-node:update` or `arbitrary-node:update` on `resourceclaims/driver`. The
node comes from the token, which is bound to a pod there, or from a group `dray:on-node:NAME`. A user with a
node is restricted to that node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dray.api.kinds import get_kind
from dray.server.admission.change import (
    ADMITTED,
    CREATE,
    DELETE,
    UPDATE,
    AdmissionEffects,
    ObjectChange,
    RuleScope,
)
from dray.server.auth.authn.service_account_tokens import NODE_NAME_EXTRA, SERVICE_ACCOUNT_PREFIX
from dray.server.auth.authz.authorizer import UnionAuthorizer
from dray.server.auth.authz.node_authorizer import SLICE
from dray.server.auth.authz.node_pod_graph import DEVICES
from dray.server.auth.authz.policy_rules import AccessAttributes
from dray.server.http.errors import new_forbidden
from dray.server.http.requests import MASTERS, RequestUser
from dray.server.watch.cache import WatchCache

DRIVER_ANNOTATION = "dray.dev/driver"
"""The annotation that binds a service account to drivers; several names are separated by commas."""

DRIVER_GROUP, NODE_GROUP = "dray:driver:", "dray:on-node:"

_ACCOUNT = get_kind("", "ServiceAccount")


@dataclass(frozen=True, slots=True)
class DriverBinding:
    """The drivers a user is bound to (None: not bound) and the node it is on."""

    drivers: frozenset[str] | None
    node: str | None


@dataclass(frozen=True, slots=True)
class DriverScope:
    """The nodes on which a user may act for a driver: all, one, or none."""

    all_nodes: bool = False
    node: str | None = None

    def covers(self, node: str | None) -> bool:
        return self.all_nodes or (node is not None and node == self.node)


NO_SCOPE = DriverScope()


class DriverAuthorizer:
    """Decides who may act for which driver."""

    def __init__(self, cache: WatchCache, authorizer: UnionAuthorizer) -> None:
        self._cache = cache
        self._authorizer = authorizer

    def find_driver_binding(self, user: RequestUser) -> DriverBinding:
        """Return what a user is bound to."""
        named = {group.removeprefix(DRIVER_GROUP) for group in user.groups if group.startswith(DRIVER_GROUP)}
        named |= self._read_account_drivers(user)
        nodes = [
            *user.extra.get(NODE_NAME_EXTRA, ()),
            *(group.removeprefix(NODE_GROUP) for group in user.groups if group.startswith(NODE_GROUP)),
        ]
        # A user with two nodes has none.
        node = nodes[0] if len(set(nodes)) == 1 else None
        return DriverBinding(frozenset(named) or None, node)

    def resolve_scope(self, user: RequestUser, driver: str, verb: str, namespace: str = "") -> DriverScope:
        """Return where the user may act for a driver."""
        if MASTERS in user.groups:
            return DriverScope(all_nodes=True)
        bound = self.find_driver_binding(user)
        if bound.drivers is not None and driver not in bound.drivers:
            return NO_SCOPE
        if self._is_granted(user, f"arbitrary-node:{verb}", driver, namespace):
            return DriverScope(all_nodes=True)
        if bound.node is None:
            return NO_SCOPE
        if bound.drivers is not None or self._is_granted(user, f"associated-node:{verb}", driver, namespace):
            return DriverScope(node=bound.node)
        return NO_SCOPE

    def _is_granted(self, user: RequestUser, verb: str, driver: str, namespace: str) -> bool:
        return self._authorizer.allows(
            user, AccessAttributes(verb, DEVICES, "resourceclaims", "driver", namespace, driver)
        )

    def _read_account_drivers(self, user: RequestUser) -> set[str]:
        if not user.name.startswith(SERVICE_ACCOUNT_PREFIX):
            return set()
        namespace, _, name = user.name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
        stored = self._cache.get(_ACCOUNT, namespace, name)
        if stored is None:
            return set()
        return read_driver_names(
            {"annotations": stored.metadata.annotations, "labels": stored.metadata.labels}
        )


def read_driver_names(metadata: Mapping[str, Mapping[str, str] | None]) -> set[str]:
    """Return the drivers that a service account is bound to."""
    written = [(metadata.get(part) or {}).get(DRIVER_ANNOTATION, "") for part in ("annotations", "labels")]
    return {name.strip() for text in written for name in text.split(",") if name.strip()}


class SliceWriteRule:
    """Restricts the slices of a driver to users who may act for it, on their nodes."""

    scopes: Final = (RuleScope((SLICE,)),)

    def __init__(self, driver_authorizer: DriverAuthorizer) -> None:
        self._driver_authorizer = driver_authorizer

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        user = change.request.user
        if user.node_name is not None or MASTERS in user.groups:
            return ADMITTED
        bound = self._driver_authorizer.find_driver_binding(user)
        if bound.drivers is None and change.operation == DELETE:
            return ADMITTED  # deleting leftovers requires no driver
        for view in (change.old_view, change.view):
            if view is not None:
                self._check_scope(change, view.spec.driver, view.spec.node_name, bound)
        return ADMITTED

    def _check_scope(
        self, change: ObjectChange, driver: str, node: str | None, binding: DriverBinding
    ) -> None:
        user = change.request.user
        if binding.drivers is not None and driver not in binding.drivers:
            names = ", ".join(f'"{name}"' for name in sorted(binding.drivers))
            raise new_forbidden(
                change.kind,
                change.name,
                f'User "{user.name}" may act for driver {names} and not for "{driver}"',
            )
        if binding.drivers is not None and binding.node is None:
            return  # a driver that serves the whole cluster
        verb = "patch" if change.request.call.verb == "patch" else "update"
        reach = self._driver_authorizer.resolve_scope(user, driver, verb)
        if reach.covers(node):
            return
        if reach.node is not None:
            why = f'User "{user.name}" is on node "{reach.node}" and can only write slices of that node'
        else:
            why = (
                f'User "{user.name}" may not act for driver "{driver}"; annotate its service account with '
                f"`{DRIVER_ANNOTATION}: {driver}`, or "
                f'grant it "arbitrary-node:{verb}" on "resourceclaims/driver"'
            )
        raise new_forbidden(change.kind, change.name, why)


class DriverBindingRule:
    """Requires the right to bind a driver from users who bind it to a service account."""

    scopes: Final = (RuleScope((_ACCOUNT,), (CREATE, UPDATE)),)

    def __init__(self, authorizer: UnionAuthorizer) -> None:
        self._authorizer = authorizer

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        if change.document is None:
            return ADMITTED
        before = (change.old_document or {}).get("metadata", {})
        for driver in sorted(read_driver_names(change.document["metadata"]) ^ read_driver_names(before)):
            attributes = AccessAttributes("bind", "dray.dev", "drivers", name=driver)
            if not self._authorizer.allows(change.request.user, attributes):
                why = (
                    f'User "{change.request.user.name}" cannot bind the driver "{driver}" to a service '
                    'account; that needs the verb "bind" on "drivers" in API group "dray.dev"'
                )
                raise new_forbidden(change.kind, change.name, why)
        return ADMITTED
