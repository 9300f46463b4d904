"""Claim restriction: who may write the allocation, device status, admin access and finalizers of a claim.

Theory of operation: the right to write a claim's status is split, as in Kubernetes. `allocation` and
`reservedFor` require the right to write `resourceclaims/binding`; an entry of `devices` requires the right to
act for its driver on the node the claim is allocated to. Both come on top of the right to write
`resourceclaims/status`. Entries that vanish together with their allocation require no right to act for the
driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from dray.api.fields import FieldPath
from dray.api.kinds import get_kind
from dray.api.resource import AllocatedDeviceStatus, ResourceClaim
from dray.claims import classic_phases
from dray.claims.admin_access import (
    ADMIN_ACCESS_LABEL,
    build_unlabelled_error,
    check_admin_results,
    find_admin_requests,
    find_admin_results,
)
from dray.server.admission.change import ADMITTED, CREATE, UPDATE, AdmissionEffects, ObjectChange, RuleScope
from dray.server.auth.authz.authorizer import UnionAuthorizer
from dray.server.auth.authz.node_pod_graph import CLASSIC, DEVICES
from dray.server.auth.authz.policy_rules import AccessAttributes
from dray.server.auth.restriction.driver_restriction import DriverAuthorizer
from dray.server.http.errors import new_forbidden, new_invalid
from dray.server.objects.stored_object import build_key
from dray.server.watch.cache import WatchCache
from dray.store import KeyUnchanged

CLAIM, TEMPLATE = get_kind(DEVICES, "ResourceClaim"), get_kind(DEVICES, "ResourceClaimTemplate")
CLASSIC_CLAIM = get_kind(CLASSIC, "ResourceClaim")
_NAMESPACE, _POD = get_kind("", "Namespace"), get_kind("", "Pod")

_NO_CLAIM = ResourceClaim()


def _get_verb(change: ObjectChange) -> str:
    return "patch" if change.request.call.verb == "patch" else "update"


def _build_binding_attributes(change: ObjectChange) -> AccessAttributes:
    return AccessAttributes(
        _get_verb(change), change.kind.group, "resourceclaims", "binding", change.namespace, change.name
    )


class ClaimStatusRule:
    """Splits the right to write the status of a claim."""

    scopes: Final = (RuleScope((CLAIM, CLASSIC_CLAIM), (CREATE, UPDATE)),)

    def __init__(
        self, cache: WatchCache, authorizer: UnionAuthorizer, driver_authorizer: DriverAuthorizer
    ) -> None:
        self._cache = cache
        self._authorizer = authorizer
        self._driver_authorizer = driver_authorizer

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        if change.kind is CLAIM and change.pending is not None:
            self._check_claim(change, change.view, change.old_view or _NO_CLAIM)
        elif change.kind is CLASSIC_CLAIM and change.pending is not None:
            self._check_classic_claim(change)
        return ADMITTED

    def _check_claim(self, change: ObjectChange, new: ResourceClaim, old: ResourceClaim) -> None:
        if new.status == old.status:
            return
        moved = new.status.allocation != old.status.allocation
        if moved or new.status.reserved_for != old.status.reserved_for:
            self._authorizer.require(change.request.user, _build_binding_attributes(change))
        drivers = find_changed_drivers(new, old)
        if drivers:
            # What counts is the allocation that the driver has seen, not the one of this very write.
            nodes = self._find_claim_nodes(old if change.operation != CREATE else new, change.namespace)
            for driver in drivers:
                self._check_driver(change, driver, nodes)

    def _check_driver(self, change: ObjectChange, driver: str, nodes: frozenset[str]) -> None:
        user, verb = change.request.user, _get_verb(change)
        reach = self._driver_authorizer.resolve_scope(user, driver, verb, change.namespace)
        if reach.all_nodes or (reach.node is not None and reach.node in nodes):
            return
        if reach.node is not None:
            where = ", ".join(f'"{node}"' for node in sorted(nodes)) or "no node"
            why = (
                f'changing status.devices of driver "{driver}": User "{user.name}" is on node '
                f'"{reach.node}", the claim is allocated to {where}'
            )
        else:
            why = (
                f'changing status.devices requires "associated-node:{verb}" or "arbitrary-node:{verb}" on '
                f'"resourceclaims/driver" for driver "{driver}": User "{user.name}" does not have it'
            )
        raise new_forbidden(change.kind, change.name, why)

    def _find_claim_nodes(self, claim: ResourceClaim, namespace: str) -> frozenset[str]:
        """Return the node an allocation is tied to; for devices that many nodes
        reach, the nodes of its pods.
        """
        allocation = claim.status.allocation
        selector = None if allocation is None else allocation.node_selector
        if selector is not None and selector.only_node:
            return frozenset({selector.only_node})
        found = (self._find_pod_node(namespace, user.name, user.uid) for user in claim.status.reserved_for)
        return frozenset(node for node in found if node)

    def _find_pod_node(self, namespace: str, name: str, uid: str) -> str | None:
        stored = self._cache.get(_POD, namespace, name)
        if stored is None or stored.metadata.uid != uid:
            return None
        node: str | None = (stored.document.get("spec") or {}).get("nodeName")
        return node

    def _check_classic_claim(self, change: ObjectChange) -> None:
        """Check the status of a classic claim: a controller writes its part, and only for its own driver."""
        user, new, old = change.request.user, change.view.status, getattr(change.old_view, "status", None)
        bound = self._driver_authorizer.find_driver_binding(user).drivers
        if bound is None or new == old:
            return
        for status in (new, old):
            if status is not None and status.driver_name and status.driver_name not in bound:
                why = f'User "{user.name}" may not act for driver "{status.driver_name}"'
                raise new_forbidden(change.kind, change.name, why)
        if old is None:
            self._authorizer.require(user, _build_binding_attributes(change))
            return
        beyond = list(classic_phases.find_driver_violations(change.view, change.old_view))
        if beyond and not self._authorizer.allows(user, _build_binding_attributes(change)):
            raise new_forbidden(
                change.kind, change.name, f'User "{user.name}" is a driver: {"; ".join(beyond)}'
            )


def find_changed_drivers(new: ResourceClaim, old: ResourceClaim) -> list[str]:
    """Return the drivers whose entries in `status.devices` differ, except entries that go with their
    allocation.
    """
    before, after = _index_device_statuses(old.status.devices), _index_device_statuses(new.status.devices)
    allocation = new.status.allocation
    results = () if allocation is None else allocation.devices.results
    still = {(one.driver, one.pool, one.device, one.share_id) for one in results}
    changed = {
        place[0]
        for place in {*before, *after}
        if before.get(place) != after.get(place) and (place in after or place in still)
    }
    return sorted(changed)


def _index_device_statuses(
    devices: Sequence[AllocatedDeviceStatus],
) -> dict[tuple[str, ...], AllocatedDeviceStatus]:
    return {(one.driver, one.pool, one.device, one.share_id): one for one in devices}  # type: ignore[misc]


# --- admin access ---


class AdminAccessRule:
    """Allows admin access to devices only in namespaces that an administrator has labelled for it."""

    scopes: Final = (RuleScope((CLAIM,), (CREATE, UPDATE)), RuleScope((TEMPLATE,), (CREATE,)))

    def __init__(self, cache: WatchCache) -> None:
        self._cache = cache

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        place = next(_find_new_admin_access(change), None)
        if place is None:
            return ADMITTED
        where = build_key(_NAMESPACE, "", change.namespace)
        namespace = self._cache.get_by_key(where)
        if namespace is None or namespace.metadata.labels.get(ADMIN_ACCESS_LABEL) != "true":
            raise new_invalid(change.kind, change.name, [build_unlabelled_error(place)])
        unasked = [] if change.kind is TEMPLATE else list(check_admin_results(change.view))
        if unasked:
            raise new_invalid(change.kind, change.name, unasked)
        # The label must still be there when the write happens.
        return AdmissionEffects(compares=(KeyUnchanged(where, namespace.revision),))


def _find_new_admin_access(change: ObjectChange) -> Iterator[FieldPath]:
    """List where a change requests admin access that was not there before."""
    if change.pending is None:
        return
    if change.kind is CLAIM:
        if change.operation == CREATE:
            yield from find_admin_requests(change.view)
        if not any(find_admin_results(change.old_view or _NO_CLAIM)):
            yield from find_admin_results(change.view)
    elif change.kind is TEMPLATE and change.operation == CREATE:
        yield from find_admin_requests(change.view)


# --- finalizers ---

SYSTEM_FINALIZERS = frozenset({"resource.kubernetes.io/delete-protection"})


class ClaimFinalizerRule:
    """Reserves the finalizers that protect a claim in use for the system."""

    scopes: Final = (RuleScope((CLAIM, CLASSIC_CLAIM)),)

    def __init__(self, authorizer: UnionAuthorizer) -> None:
        self._authorizer = authorizer

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        # A claim that vanishes with a finalizer on it vanishes because that finalizer was just removed.
        touched = SYSTEM_FINALIZERS & (_read_finalizers(change.old_view) ^ _read_finalizers(change.view))
        if touched and not self._authorizer.allows(change.request.user, _build_binding_attributes(change)):
            why = (
                f'User "{change.request.user.name}" cannot add or remove the finalizer `{min(touched)}`; '
                f'that needs the verb "{_get_verb(change)}" on "resourceclaims/binding"'
            )
            raise new_forbidden(change.kind, change.name, why)
        return ADMITTED


def _read_finalizers(view: Any) -> set[str]:
    return set() if view is None else set(view.metadata.finalizers)
